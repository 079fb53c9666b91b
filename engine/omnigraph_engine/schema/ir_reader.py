"""From the JSON of ``_schema.ir.json`` to an ``AcceptedSchema``: its form and its identities.

References are read by name, and everything that has a canonical order is put into it; that the names exist and that the
document says the same identities and orders is for the caller to check (ir.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from omnigraph_engine.errors import SchemaContractBroken
from omnigraph_engine.schema.constraints import canonical
from omnigraph_engine.schema.identity import AcceptedSchema, is_domain
from omnigraph_engine.schema.model import (
    Annotation,
    Bound,
    Cardinality,
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
    PropertyConstraint,
    PropType,
    Range,
    Scalar,
    ScalarType,
    TypeKind,
    Unique,
    Vector,
)

_PROPERTY_CONSTRAINTS: tuple[PropertyConstraint, ...] = ("key", "unique", "index")
_COLUMN_CONSTRAINTS: Mapping[str, type[Key | Unique | Index]] = {"key": Key, "unique": Unique, "index": Index}
_SYSTEM_ROLES: Mapping[TypeKind, tuple[str, ...]] = {"node": ("id",), "edge": ("id", "src", "dst")}

Named = TypeVar("Named", Property, InterfaceType, NodeType, EdgeType)
Value = TypeVar("Value")


def read_schema(document: dict[str, Any]) -> AcceptedSchema:
    """A schema in which every identity is held once and the counter is ahead of them all.

    Raises:
        SchemaContractBroken: The document has no such meaning; the message says where.
    """
    reader = _Reader()
    root = _Entry(document, "")
    domain = root.text("schema_identity_domain")
    if not is_domain(domain):
        raise root.fault("schema_identity_domain", "a canonical ULID")
    catalog = Catalog(
        interfaces=_by_name([reader.interface(entry) for entry in root.entries("interfaces")]),
        nodes=_by_name([reader.node(entry) for entry in root.entries("nodes")]),
        edges=_by_name([reader.edge(entry) for entry in root.entries("edges")]),
    )
    next_identity_id = root.number("next_identity_id", least=1)
    if next_identity_id <= max(reader.holders, default=0):
        raise root.fault("next_identity_id", f"greater than {max(reader.holders)}, the greatest identity in use")
    return AcceptedSchema(
        catalog, domain, next_identity_id, reader.type_ids, reader.property_ids, reader.incarnation_ids
    )


def broken(message: str) -> SchemaContractBroken:
    return SchemaContractBroken(f"_schema.ir.json: {message}.")


@dataclass(frozen=True)
class _Entry:
    """One JSON object and its place in the document; a member of the wrong form is an error that names the place."""

    members: dict[str, Any]
    place: str

    def text(self, key: str) -> str:
        return self._member(key, str, "a text")

    def optional_text(self, key: str) -> str | None:
        return None if self.members.get(key) is None else self.text(key)

    def texts(self, key: str) -> list[str]:
        values = self._member(key, list, "a list")
        if not all(isinstance(value, str) for value in values):
            raise self.fault(key, "a list of texts")
        return values

    def flag(self, key: str) -> bool:
        return self._member(key, bool, "true or false")

    def number(self, key: str, least: int) -> int:
        value = self._member(key, int, "a whole number")
        if isinstance(value, bool) or value < least:
            raise self.fault(key, f"a whole number from {least}")
        return value

    def entry(self, key: str) -> _Entry:
        return _Entry(self._member(key, dict, "an object"), self._path(key) + ".")

    def entries(self, key: str) -> list[_Entry]:
        values = {f"{key}[{at}]": value for at, value in enumerate(self._member(key, list, "a list"))}
        listed = _Entry(values, self.place)
        return [listed.entry(at) for at in values]

    def fault(self, key: str, wanted: str) -> SchemaContractBroken:
        return broken(f"{self._path(key)} is {self.members.get(key)!r}, not {wanted}")

    def _path(self, key: str) -> str:
        return self.place + key

    def _member(self, key: str, form: type[Value], wanted: str) -> Value:
        value = self.members.get(key)
        if not isinstance(value, form):
            raise self.fault(key, wanted)
        return value


class _Reader:
    """Reads types one after the other and remembers who holds which identity and name."""

    def __init__(self) -> None:
        self.holders: dict[int, str] = {}
        self.type_ids: dict[str, int] = {}
        self.property_ids: dict[tuple[str, str], int] = {}
        self.incarnation_ids: dict[str, int] = {}

    def interface(self, entry: _Entry) -> InterfaceType:
        name = self._type_name(entry)
        return InterfaceType(name, self._properties(name, entry))

    def node(self, entry: _Entry) -> NodeType:
        name = self._type_name(entry)
        self._incarnation(name, entry)
        return NodeType(
            name,
            properties=self._properties(name, entry),
            annotations=_annotations(entry),
            implements=tuple(sorted({reference.text("type_name") for reference in entry.entries("implements")})),
            constraints=_constraints("node", entry),
        )

    def edge(self, entry: _Entry) -> EdgeType:
        name = self._type_name(entry)
        self._incarnation(name, entry)
        cardinality = entry.entry("cardinality")
        return EdgeType(
            name,
            from_type=entry.entry("from_type").text("type_name"),
            to_type=entry.entry("to_type").text("type_name"),
            properties=self._properties(name, entry),
            cardinality=Cardinality(
                cardinality.number("min", least=0),
                None if cardinality.members.get("max") is None else cardinality.number("max", least=0),
            ),
            annotations=_annotations(entry),
            constraints=_constraints("edge", entry),
        )

    def _type_name(self, entry: _Entry) -> str:
        name = entry.text("name")
        if name.lower() in (other.lower() for other in self.type_ids):
            raise entry.fault("name", "a name of its own: another type has it")
        self.type_ids[name] = self._claim(entry, "type_id", f"type '{name}'")
        return name

    def _incarnation(self, name: str, entry: _Entry) -> None:
        self.incarnation_ids[name] = self._claim(entry, "table_incarnation_id", f"the table of '{name}'")

    def _properties(self, owner: str, entry: _Entry) -> tuple[Property, ...]:
        return tuple(_by_name([self._property(owner, member) for member in entry.entries("properties")]).values())

    def _property(self, owner: str, entry: _Entry) -> Property:
        name = entry.text("name")
        self.property_ids[owner, name] = self._claim(entry, "property_id", f"property '{owner}.{name}'")
        constraints = entry.texts("property_constraints")
        satisfies = entry.entries("satisfies_interface_properties")
        return Property(
            name,
            _prop_type(entry.entry("prop_type")),
            annotations=_annotations(entry),
            property_constraints=tuple(kind for kind in _PROPERTY_CONSTRAINTS if kind in constraints),
            embed_source=_embed_source(entry),
            declared_directly=entry.flag("declared_directly"),
            satisfies=tuple(sorted((ref.text("owner_type_name"), ref.text("property_name")) for ref in satisfies)),
        )

    def _claim(self, entry: _Entry, key: str, holder: str) -> int:
        identity = entry.number(key, least=1)
        other = self.holders.setdefault(identity, holder)
        if other != holder:
            raise entry.fault(key, f"free for {holder}: {other} has that identity")
        return identity


def _by_name(things: Sequence[Named]) -> dict[str, Named]:
    return {thing.name: thing for thing in sorted(things, key=lambda thing: thing.name)}


def _annotations(entry: _Entry) -> tuple[Annotation, ...]:
    return tuple(_annotation(member) for member in entry.entries("annotations"))


def _annotation(entry: _Entry) -> Annotation:
    kwargs = entry.entry("kwargs") if "kwargs" in entry.members else _Entry({}, entry.place)
    return Annotation(
        entry.text("name"),
        entry.optional_text("value"),
        tuple(sorted((name, kwargs.text(name)) for name in kwargs.members)),
    )


def _embed_source(entry: _Entry) -> EmbedSource | None:
    if entry.members.get("embed_source") is None:
        return None
    embed = entry.entry("embed_source")
    return EmbedSource(embed.entry("source").text("property_name"), embed.optional_text("model"))


def _prop_type(entry: _Entry) -> PropType:
    enumerated = entry.members.get("enum_values") is not None
    return PropType(
        _scalar(entry),
        nullable=entry.flag("nullable"),
        list=entry.flag("list"),
        enum_values=tuple(sorted(set(entry.texts("enum_values")))) if enumerated else None,
    )


def _scalar(entry: _Entry) -> ScalarType:
    if isinstance(entry.members.get("scalar"), dict):
        return Vector(entry.entry("scalar").number("Vector", least=1))
    try:
        return Scalar(entry.text("scalar"))
    except ValueError:
        raise entry.fault("scalar", "a scalar type") from None


def _constraints(kind: TypeKind, entry: _Entry) -> tuple[Constraint, ...]:
    return canonical(_constraint(kind, member) for member in entry.entries("constraints"))


def _constraint(owner_kind: TypeKind, entry: _Entry) -> Constraint:
    kind = entry.text("kind")
    if kind in _COLUMN_CONSTRAINTS:
        return _COLUMN_CONSTRAINTS[kind](tuple(_column(owner_kind, field) for field in entry.entries("fields")))
    column = _column(owner_kind, entry.entry("field"))
    if kind == "range":
        return Range(column, _bound(entry, "min"), _bound(entry, "max"))
    if kind == "check":
        return Check(column, entry.text("pattern"))
    raise entry.fault("kind", "a kind of constraint")


def _column(owner_kind: TypeKind, field: _Entry) -> str:
    if field.text("kind") == "property":
        return field.text("property_name")
    role = field.text("role")
    if role not in _SYSTEM_ROLES[owner_kind]:
        raise field.fault("role", f"a system column of an {owner_kind} table")
    return role


def _bound(entry: _Entry, key: str) -> Bound:
    if entry.members.get(key) is None:
        return None
    bound = entry.entry(key).members
    integer, number = bound.get("Integer"), bound.get("Float")
    if isinstance(integer, int) and not isinstance(integer, bool):
        return integer
    if isinstance(number, float) and math.isfinite(number):
        return number
    raise entry.fault(key, "a bound")
