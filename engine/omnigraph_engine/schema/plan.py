"""The migration plan: what it takes to get from an accepted schema to a new one, as data.

A plan is a pure function of the two schemas and never looks at rows: where a step is right for an empty table only, it
says so, and where it takes stored values out of sight it is destructive. What the engine cannot do is a step too, with
the way round in its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from omnigraph_engine.schema.constraints import canonical, sort_key
from omnigraph_engine.schema.identity import AcceptedSchema, Descent, descent
from omnigraph_engine.schema.json_text import compact_json
from omnigraph_engine.schema.model import (
    Annotation,
    AnyType,
    Catalog,
    Check,
    Constraint,
    EdgeType,
    EmbedSource,
    Index,
    InterfaceType,
    Key,
    NodeType,
    Property,
    PropType,
    Range,
    TypeKind,
)
from omnigraph_engine.schema.shape import canonical_annotations
from omnigraph_engine.schema.steps import (
    AddIndex,
    AddProperty,
    AddType,
    ChangeMetadata,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
    Unsupported,
    WidenEnum,
)

_NEW_PROPERTY = "Add a property under a new name, copy the values into it, then drop the old one."
_NEW_TYPE = "Add a type under a new name, load the rows into it, then drop the old one."


@dataclass(frozen=True)
class MigrationPlan:
    """Steps in an order in which they can be carried out."""

    steps: tuple[Step, ...]

    @property
    def is_empty(self) -> bool:
        """True exactly when the two schemas have the same shape."""
        return not self.steps

    @property
    def supported(self) -> bool:
        return not any(isinstance(step, Unsupported) for step in self.steps)

    @property
    def destructive(self) -> bool:
        return any(step.destructive for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        steps = [step.to_json() for step in self.steps]
        return {"supported": self.supported, "destructive": self.destructive, "steps": steps}


def plan(old: AcceptedSchema, new: Catalog) -> MigrationPlan:
    """What continues, by name or by rename hint, keeps its rows; everything else is added or dropped.

    Additions and changes come first, nodes before the edges that join them; drops come last, edges before the nodes they
    joined. A hint that cannot be followed is unsupported, beside the addition and the drop it would otherwise mean.
    """
    known = descent(old, new)
    kinds = {new_type.name: new_type.kind for new_type in new.all_types()}
    old_types = {old_type.name: old_type for old_type in old.catalog.all_types()}
    continued = set(known.types.values())

    steps: list[Step] = [
        Unsupported(kinds[hint.type_name], hint.type_name, hint.property_name, hint.reason)
        for hint in known.broken_hints
    ]
    for new_type in new.all_types():
        if new_type.name in known.types:
            steps += _Comparison(old_types[known.types[new_type.name]], new_type, known).steps()
        else:
            steps.append(AddType(new_type.kind, new_type.name))
    droppable: list[AnyType] = [
        *old.catalog.edges.values(),
        *old.catalog.nodes.values(),
        *old.catalog.interfaces.values(),
    ]
    steps += (DropType(old_type.kind, old_type.name) for old_type in droppable if old_type.name not in continued)
    return MigrationPlan(tuple(steps))


class _Comparison:
    """One type before and after. Old columns and constraints are compared under the names they have now."""

    def __init__(self, old: AnyType, new: AnyType, known: Descent) -> None:
        self._old = old
        self._new = new
        self._known = known
        old_properties = {prop.name: prop for prop in old.properties}
        self._continued = {
            prop.name: old_properties[known.properties[new.name, prop.name][1]]
            for prop in new.properties
            if (new.name, prop.name) in known.properties
        }
        self._new_names = {prop.name: name for name, prop in self._continued.items()}
        self._dropped = set(old_properties) - set(self._new_names)
        self._added = {prop.name for prop in new.properties} - set(self._continued)
        # By text and not by equality: bounds 0 and 0.0 are equal in Python but two different constraints on disk.
        self._old_constraints = {sort_key(rule): rule for rule in canonical(map(self._renamed, _constraints(old)))}
        self._new_constraints = {sort_key(rule): rule for rule in _constraints(new)}

    def steps(self) -> Iterator[Step]:
        if self._new.name != self._old.name:
            yield RenameType(*self._place, self._old.name)
        yield from self._type_changes()
        for prop in self._new.properties:
            if prop.name in self._continued:
                yield from self._property_changes(self._continued[prop.name], prop)
            else:
                needs_empty_table = not prop.type.nullable and not isinstance(self._new, InterfaceType)
                yield AddProperty(*self._place, prop.name, str(prop.type), needs_empty_table)
        yield from self._constraint_changes()
        for name in sorted(self._dropped):
            yield DropProperty(*self._place, name)

    @property
    def _place(self) -> tuple[TypeKind, str]:
        return self._new.kind, self._new.name

    def _type_changes(self) -> Iterator[Step]:
        old, new = self._old, self._new
        if isinstance(old, NodeType) and isinstance(new, NodeType) and old.implements != new.implements:
            yield Unsupported(*self._place, None, f"the interfaces it implements cannot change. {_NEW_TYPE}")
        if isinstance(old, EdgeType) and isinstance(new, EdgeType):
            if (old.from_type, old.to_type) != tuple(map(self._known.types.get, (new.from_type, new.to_type))):
                ends = f"{old.from_type} -> {old.to_type}"
                yield Unsupported(*self._place, None, f"its endpoints are {ends}, which cannot change. {_NEW_TYPE}")
            if old.cardinality != new.cardinality:
                yield Unsupported(*self._place, None, f"its cardinality cannot change. {_NEW_TYPE}")
        if _annotations(old) != _annotations(new):
            yield ChangeMetadata(*self._place, None)

    def _property_changes(self, old: Property, new: Property) -> Iterator[Step]:
        place = (*self._place, new.name)
        if new.name != old.name:
            yield RenameProperty(*place, old.name)
        if added_values := _widening(old.type, new.type):
            yield WidenEnum(*place, added_values)
        elif old.type != new.type:
            yield Unsupported(*place, _why_not(old.type, new.type))
        if self._embedding(old) != new.embed_source:
            yield Unsupported(*place, f"stored vectors belong to the old source and model of @embed. {_NEW_PROPERTY}")
        if old.declared_directly != new.declared_directly:
            where = f"in {self._old.name} itself" if old.declared_directly else "by an interface alone"
            yield Unsupported(*place, f"it is declared {where}, which cannot change. Declare it as before.")
        if canonical_annotations(old.annotations) != canonical_annotations(new.annotations) or self._respelled(
            old, new
        ):
            yield ChangeMetadata(*place)

    def _respelled(self, old: Property, new: Property) -> bool:
        """Whether a constraint that stays moved between property and body; one that comes or goes is a step of its own.

        An interface has no body and stores nothing: there every such change is only one of the text.
        """
        moved = set(old.property_constraints) ^ set(new.property_constraints)
        if isinstance(self._new, InterfaceType):
            return bool(moved)
        unchanged = self._old_constraints.keys() & self._new_constraints.keys()
        return any(f"{kind}:{new.name}" in unchanged for kind in moved)

    def _constraint_changes(self) -> Iterator[Step]:
        came = [rule for key, rule in self._new_constraints.items() if key not in self._old_constraints]
        went = [rule for key, rule in self._old_constraints.items() if key not in self._new_constraints]
        if any(isinstance(rule, Key) for rule in (*came, *went)):
            yield Unsupported(*self._place, None, f"its @key cannot change: ids are made of it. {_NEW_TYPE}")
        for rule in came:
            if isinstance(rule, Key) or not self._added.isdisjoint(_columns(rule)):
                continue
            if isinstance(rule, Index):
                yield AddIndex(*self._place, rule.columns)
            else:
                yield Unsupported(*self._place, None, f"stored rows were never held to {_spelled(rule)}. {_NEW_TYPE}")
        for rule in went:
            if isinstance(rule, Key) or not self._dropped.isdisjoint(_columns(rule)):
                continue
            why = "Keep it; it costs nothing and changes no answer." if isinstance(rule, Index) else _NEW_TYPE
            yield Unsupported(*self._place, None, f"{_spelled(rule)} cannot be taken away. {why}")

    def _renamed(self, rule: Constraint) -> Constraint:
        if isinstance(rule, (Range, Check)):
            return replace(rule, property=self._new_names.get(rule.property, rule.property))
        return replace(rule, columns=tuple(self._new_names.get(column, column) for column in rule.columns))

    def _embedding(self, old: Property) -> EmbedSource | None:
        embed = old.embed_source
        if embed is None:
            return None
        return replace(embed, property_name=self._new_names.get(embed.property_name, embed.property_name))


def _annotations(owner: AnyType) -> tuple[Annotation, ...]:
    return () if isinstance(owner, InterfaceType) else canonical_annotations(owner.annotations)


def _constraints(owner: AnyType) -> tuple[Constraint, ...]:
    return () if isinstance(owner, InterfaceType) else owner.constraints


def _columns(rule: Constraint) -> tuple[str, ...]:
    return (rule.property,) if isinstance(rule, (Range, Check)) else rule.columns


def _spelled(rule: Constraint) -> str:
    if isinstance(rule, Range):
        low, high = ("" if bound is None else str(bound) for bound in (rule.min, rule.max))
        return f"@range({rule.property}, {low}..{high})"
    if isinstance(rule, Check):
        return f"@check({rule.property}, {compact_json(rule.pattern)})"
    return f"@{type(rule).__name__.lower()}({', '.join(rule.columns)})"


def _widening(old: PropType, new: PropType) -> tuple[str, ...]:
    """The values an enum gains, when that is all that happens to it."""
    if old.enum_values is None or new.enum_values is None or replace(old, enum_values=new.enum_values) != new:
        return ()
    if not set(old.enum_values) < set(new.enum_values):
        return ()
    return tuple(value for value in new.enum_values if value not in old.enum_values)


def _why_not(old: PropType, new: PropType) -> str:
    if replace(old, nullable=new.nullable) == new:
        return f"it is {'optional' if old.nullable else 'required'}, which cannot change. {_NEW_PROPERTY}"
    if old.enum_values and new.enum_values and replace(old, enum_values=new.enum_values) == new:
        lost = sorted(set(old.enum_values) - set(new.enum_values))
        return f"rows may hold values that its enum would lose: {', '.join(lost)}. Keep them in the enum."
    return f"its type cannot change from {old} to {new}. {_NEW_PROPERTY}"
