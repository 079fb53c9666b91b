"""Stable identities: which number each type, property and table lifetime has, for ever.

FORMAT 5.5: one counter per graph, never reused, shared by types, properties and incarnations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from ulid import ULID

from omnigraph_engine.errors import InvalidArgument, SchemaError, did_you_mean
from omnigraph_engine.schema.model import AnyType, Catalog, InterfaceType, TableType, rename_hint

_CANONICAL_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


@dataclass(frozen=True)
class TableIdentity:
    """One lifetime of one table: dropping and adding a type again gives another."""

    stable_id: int
    incarnation_id: int


@dataclass(frozen=True)
class AcceptedSchema:
    """A catalog with the identities this graph gave it. Immutable; evolution makes a new one."""

    catalog: Catalog
    domain: str  # ULID, unique per graph
    next_identity_id: int
    type_ids: Mapping[str, int]  # interfaces, nodes and edges: names are unique across them
    property_ids: Mapping[tuple[str, str], int]  # (owner type name, property name)
    incarnation_ids: Mapping[str, int]  # nodes and edges

    def identity(self, table: TableType) -> TableIdentity:
        return TableIdentity(self.type_ids[table.name], self.incarnation_ids[table.name])

    def key_in_identity_order(self, table: TableType) -> tuple[str, ...]:
        """Key members in the order their values take in a composite id: by property id, not by name."""
        members = getattr(table, "key", ())
        return tuple(sorted(members, key=lambda name: self.property_ids[table.name, name]))


def table_location(table_key: str, identity: TableIdentity) -> str:
    """Path of a table's dataset below the graph root, e.g. ``nodes/0000000000000002-000000000000000a``."""
    folder = {"node": "nodes", "edge": "edges"}[table_key.split(":", 1)[0]]
    return f"{folder}/{identity.stable_id:016x}-{identity.incarnation_id:016x}"


def is_domain(text: str) -> bool:
    """Whether the text is a ULID in the one spelling that identity domains have."""
    return _CANONICAL_ULID.fullmatch(text) is not None


# -- descent: what a new catalog continues ------------------------------------------------------------------


@dataclass(frozen=True)
class BrokenHint:
    """A ``@rename_from`` that cannot be followed. ``property_name`` is None when it stands on the type itself."""

    type_name: str
    property_name: str | None
    reason: str


@dataclass(frozen=True)
class Descent:
    """Which accepted type or property each one of a new catalog continues; what is missing here is new."""

    types: Mapping[str, str]  # new name to accepted name
    properties: Mapping[tuple[str, str], tuple[str, str]]
    broken_hints: tuple[BrokenHint, ...]


def descent(accepted: AcceptedSchema, catalog: Catalog) -> Descent:
    """Every accepted type and property is continued at most once, and only by one of its own kind and owner.

    The same name continues; where there is none, ``@rename_from`` says what does. A hint beside a continued name has done
    its work in an earlier change and is ignored. A hint on a property of a new type is inert, as at the first creation.
    """
    old_types = {old.name: old for old in accepted.catalog.all_types()}
    hints = {new.name: _type_hint(new) for new in catalog.all_types()}
    kinds = {new.name: new.kind for new in catalog.all_types()}
    types: dict[str, str] = {}
    properties: dict[tuple[str, str], tuple[str, str]] = {}
    broken: list[BrokenHint] = []

    for kind in ("interface", "node", "edge"):
        old_names = [name for name, old in old_types.items() if old.kind == kind]
        new_hints = {name: hint for name, hint in hints.items() if kinds[name] == kind}
        continued, reasons = _follow(new_hints, old_names, owner=f"{kind} types")
        types |= continued
        broken += [BrokenHint(name, None, reason) for name, reason in reasons.items()]

    for new in catalog.all_types():
        if new.name not in types:
            continue
        old = old_types[types[new.name]]
        property_hints = {prop.name: prop.rename_from for prop in new.properties}
        old_names = [prop.name for prop in old.properties]
        continued, reasons = _follow(property_hints, old_names, owner=f"properties of '{old.name}'")
        properties |= {(new.name, name): (old.name, old_name) for name, old_name in continued.items()}
        broken += [BrokenHint(new.name, name, reason) for name, reason in reasons.items()]
    return Descent(types, properties, tuple(broken))


def _type_hint(new: AnyType) -> str | None:
    return None if isinstance(new, InterfaceType) else rename_hint(new.annotations)


def _follow(hints: Mapping[str, str | None], old_names: list[str], owner: str) -> tuple[dict[str, str], dict[str, str]]:
    """New names to the old ones they continue, and new names to what is wrong with their hints."""
    continued = {name: name for name in hints if name in old_names}
    reasons: dict[str, str] = {}
    for name, hint in hints.items():
        if hint is None or name in continued:
            continue
        claimant = next((other for other, old_name in continued.items() if old_name == hint), None)
        if hint not in old_names:
            suggestion = did_you_mean(hint, old_names) or "Correct the name, or remove the hint to add it as new."
            reasons[name] = f"@rename_from({hint!r}) names none of the accepted {owner}. {suggestion}"
        elif claimant == hint:
            reasons[name] = f"@rename_from({hint!r}), but '{hint}' is still declared. Remove it, or remove the hint."
        elif claimant is not None:
            reasons[name] = f"'{claimant}' is renamed from '{hint}' already. Remove one of the two hints."
        else:
            continued[name] = hint
    return continued, reasons


# -- giving out identities ----------------------------------------------------------------------------------


def accept_initial(catalog: Catalog, domain: str | None = None) -> AcceptedSchema:
    """Identities for a new graph: the same catalog gets the same numbers, whatever the order of its source.

    Args:
        catalog: The schema. Its rename hints are inert, for there is nothing to rename.
        domain: The graph's identity domain, a canonical ULID; a fresh one when not given.

    Raises:
        SchemaError: An interface embeds a property that it does not declare itself.
    """
    if domain is None:
        domain = str(ULID())
    elif not is_domain(domain):
        raise InvalidArgument(f"'{domain}' is not a canonical ULID, so it cannot be an identity domain.")
    nothing = Catalog(interfaces={}, nodes={}, edges={})
    return _number(AcceptedSchema(nothing, domain, 1, {}, {}, {}), catalog, Descent({}, {}, ()))


def evolve(accepted: AcceptedSchema, catalog: Catalog) -> AcceptedSchema:
    """What continues keeps its identities, what is new gets numbers never used before, in this graph or its past.

    Raises:
        SchemaError: As for a new graph; or a rename hint cannot be followed, and taking what it stands on for new would
            drop data silently.
    """
    known = descent(accepted, catalog)
    if known.broken_hints:
        hint = known.broken_hints[0]
        place = hint.type_name if hint.property_name is None else f"{hint.type_name}.{hint.property_name}"
        raise SchemaError(f"{place}: {hint.reason}", details={"type": hint.type_name, "property": hint.property_name})
    return _number(accepted, catalog, known)


def _number(accepted: AcceptedSchema, catalog: Catalog, known: Descent) -> AcceptedSchema:
    _check_embed_sources(catalog)
    numbers = count(accepted.next_identity_id)
    type_ids = {new: accepted.type_ids[old] for new, old in known.types.items()}
    property_ids = {new: accepted.property_ids[old] for new, old in known.properties.items()}
    incarnation_ids = {
        new: accepted.incarnation_ids[old] for new, old in known.types.items() if old in accepted.incarnation_ids
    }

    for new in catalog.all_types():
        if new.name not in type_ids:
            type_ids[new.name] = next(numbers)
    by_type_id = sorted(catalog.all_types(), key=lambda new: type_ids[new.name])
    for new in by_type_id:
        for prop in new.properties:
            if (new.name, prop.name) not in property_ids:
                property_ids[new.name, prop.name] = next(numbers)
    for new in by_type_id:
        if not isinstance(new, InterfaceType) and new.name not in incarnation_ids:
            incarnation_ids[new.name] = next(numbers)
    return AcceptedSchema(catalog, accepted.domain, next(numbers), type_ids, property_ids, incarnation_ids)


def _check_embed_sources(catalog: Catalog) -> None:
    # The language lets an interface leave the source to its nodes; the stored schema refers to it within the interface.
    for interface in catalog.interfaces.values():
        names = {prop.name for prop in interface.properties}
        for prop in interface.properties:
            if prop.embed_source is not None and prop.embed_source.property_name not in names:
                raise SchemaError(
                    f"interface {interface.name}: '{prop.name}' embeds '{prop.embed_source.property_name}', which the "
                    "interface does not declare, so the stored schema cannot refer to it.",
                    details={"type": interface.name, "property": prop.name},
                    hint=f"Declare '{prop.embed_source.property_name}: String' in the interface.",
                )
