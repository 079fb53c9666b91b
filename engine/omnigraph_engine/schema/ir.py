"""The accepted schema as ``_schema.ir.json`` stores it (FORMAT 5.3): names, identities and every reference by both.

Writing is exact, key order included, because a hash is taken over it. Reading trusts nothing: the text becomes an
``AcceptedSchema`` only if writing that again gives the same document, which leaves no reference, order or duplicate
unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph_engine.errors import SchemaContractBroken
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.ir_reader import broken, read_schema
from omnigraph_engine.schema.json_text import compact_json, load_object, pretty_json
from omnigraph_engine.schema.model import (
    AnyType,
    Catalog,
    Check,
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    Range,
    TableType,
)
from omnigraph_engine.schema.shape import (
    annotations_document,
    bound_document,
    cardinality_document,
    sha256_text,
    type_document,
)

IR_VERSION = 2

_SYSTEM_COLUMNS = frozenset({"id", "src", "dst"})  # never property names


def ir_document(accepted: AcceptedSchema) -> dict[str, Any]:
    """The document as plain data, keys in the order of the format."""
    catalog = accepted.catalog
    writer = _Writer(accepted)
    return {
        "ir_version": IR_VERSION,
        "schema_identity_domain": accepted.domain,
        "next_identity_id": accepted.next_identity_id,
        "interfaces": [writer.interface(interface) for interface in catalog.interfaces.values()],
        "nodes": [writer.node(node) for node in catalog.nodes.values()],
        "edges": [writer.edge(edge) for edge in catalog.edges.values()],
    }


def ir_text(accepted: AcceptedSchema) -> str:
    """What the file holds, byte for byte."""
    return pretty_json(ir_document(accepted))


def ir_hash(accepted: AcceptedSchema) -> str:
    """The hash that ``__schema_state.json`` pins: over the compact text, not over the file."""
    return sha256_text(compact_json(ir_document(accepted)))


def parse_ir(text: str) -> AcceptedSchema:
    """A schema whose identities are unique and whose references all hold; its catalog has no rename hints.

    Raises:
        SchemaContractBroken: The text is not such a document; the message says where.
    """
    document = load_object("_schema.ir.json", text)
    version = document.get("ir_version")
    if version != IR_VERSION:
        raise SchemaContractBroken(
            f"_schema.ir.json has ir_version {version!r}, and this package reads {IR_VERSION}.",
            details={"found": version, "expected": IR_VERSION},
            hint="Rebuild an older graph by export and load; read a newer one with a newer release.",
        )
    accepted = read_schema(document)
    _check_references(accepted.catalog)
    try:
        canonical = ir_document(accepted)
    except KeyError as error:
        raise SchemaContractBroken(
            f"_schema.ir.json refers to {error.args[0]!r}, which it does not declare."
        ) from error
    if difference := _difference(document, canonical):
        raise SchemaContractBroken(f"_schema.ir.json contradicts itself: {difference}.")
    return accepted


class _Writer:
    """Renders the parts of one schema; references are spelled with the identities of that schema."""

    def __init__(self, accepted: AcceptedSchema) -> None:
        self._accepted = accepted

    def interface(self, interface: InterfaceType) -> dict[str, Any]:
        return {
            "name": interface.name,
            "type_id": self._accepted.type_ids[interface.name],
            "properties": self._properties(interface.name, interface.properties),
        }

    def node(self, node: NodeType) -> dict[str, Any]:
        implements = [self._type_ref(name) for name in node.implements]
        return {
            **self._table_head(node),
            "annotations": annotations_document(node.annotations),
            "implements": sorted(implements, key=lambda reference: int(reference["type_id"])),
            "properties": self._properties(node.name, node.properties),
            "constraints": [self._constraint(node, constraint) for constraint in node.constraints],
        }

    def edge(self, edge: EdgeType) -> dict[str, Any]:
        return {
            **self._table_head(edge),
            "from_type": self._type_ref(edge.from_type),
            "to_type": self._type_ref(edge.to_type),
            "cardinality": cardinality_document(edge.cardinality),
            "annotations": annotations_document(edge.annotations),
            "properties": self._properties(edge.name, edge.properties),
            "constraints": [self._constraint(edge, constraint) for constraint in edge.constraints],
        }

    def _table_head(self, table: TableType) -> dict[str, Any]:
        identity = self._accepted.identity(table)
        return {
            "name": table.name,
            "type_id": identity.stable_id,
            "table_incarnation_id": identity.incarnation_id,
        }

    def _properties(self, owner: str, properties: tuple[Property, ...]) -> list[dict[str, Any]]:
        return [self._property(owner, prop) for prop in properties]

    def _property(self, owner: str, prop: Property) -> dict[str, Any]:
        embed = prop.embed_source
        satisfies = [self._property_ref(interface, name) for interface, name in prop.satisfies]
        return {
            "name": prop.name,
            "property_id": self._accepted.property_ids[owner, prop.name],
            "prop_type": type_document(prop.type),
            "annotations": annotations_document(prop.annotations),
            "property_constraints": list(prop.property_constraints),
            "embed_source": None
            if embed is None
            else {"source": self._property_ref(owner, embed.property_name), "model": embed.model},
            "declared_directly": prop.declared_directly,
            "satisfies_interface_properties": sorted(satisfies, key=lambda reference: tuple(reference.values())),
        }

    def _type_ref(self, name: str) -> dict[str, Any]:
        return {"type_id": self._accepted.type_ids[name], "type_name": name}

    def _property_ref(self, owner: str, name: str) -> dict[str, Any]:
        return {
            "owner_type_id": self._accepted.type_ids[owner],
            "owner_type_name": owner,
            "property_id": self._accepted.property_ids[owner, name],
            "property_name": name,
        }

    def _constraint(self, table: TableType, constraint: Constraint) -> dict[str, Any]:
        if isinstance(constraint, Range):
            bounds = {"min": bound_document(constraint.min), "max": bound_document(constraint.max)}
            return {"kind": "range", "field": self._field_ref(table, constraint.property), **bounds}
        if isinstance(constraint, Check):
            field = self._field_ref(table, constraint.property)
            return {"kind": "check", "field": field, "pattern": constraint.pattern}
        fields = [self._field_ref(table, column) for column in constraint.columns]
        return {"kind": type(constraint).__name__.lower(), "fields": fields}

    def _field_ref(self, table: TableType, column: str) -> dict[str, Any]:
        if column not in _SYSTEM_COLUMNS:
            return {"kind": "property", **self._property_ref(table.name, column)}
        identity = self._accepted.identity(table)
        return {
            "kind": "system",
            "stable_table_id": identity.stable_id,
            "table_type_name": table.name,
            "table_incarnation_id": identity.incarnation_id,
            "role": column,
        }


def _difference(found: Any, canonical: Any, place: str = "") -> str | None:
    """The first place where two documents differ, in words; types count, so 1, 1.0 and true are three values."""
    if isinstance(found, dict) and isinstance(canonical, dict):
        if found.keys() != canonical.keys():
            return f"{place or 'the document'} has the keys {sorted(found)} where {sorted(canonical)} belong"
        pairs = ((found[key], canonical[key], f"{place}.{key}" if place else key) for key in canonical)
    elif isinstance(found, list) and isinstance(canonical, list):
        if len(found) != len(canonical):
            return f"{place} has {len(found)} entries where {len(canonical)} belong"
        pairs = ((*pair, f"{place}[{at}]") for at, pair in enumerate(zip(found, canonical, strict=True)))
    elif type(found) is type(canonical) and found == canonical:
        return None
    else:
        return f"{place} is {found!r} where {canonical!r} belongs"
    return next((text for pair in pairs if (text := _difference(*pair))), None)


def _check_references(catalog: Catalog) -> None:
    """Edges join nodes, nodes implement interfaces and satisfy each of their properties with one of the same type."""
    for edge in catalog.edges.values():
        for endpoint in (edge.from_type, edge.to_type):
            if endpoint not in catalog.nodes:
                raise broken(f"edge '{edge.name}' ends at '{endpoint}', which is not a node type")
        _check_declared_directly(edge)
    for interface in catalog.interfaces.values():
        _check_declared_directly(interface)
    for node in catalog.nodes.values():
        _check_interfaces(node, catalog.interfaces)


def _check_declared_directly(owner: AnyType) -> None:
    for prop in owner.properties:
        if prop.satisfies or not prop.declared_directly:
            raise broken(f"'{owner.name}.{prop.name}' stands for an interface property, which only a node's can")


def _check_interfaces(node: NodeType, interfaces: Mapping[str, InterfaceType]) -> None:
    if unknown := [name for name in node.implements if name not in interfaces]:
        raise broken(f"node '{node.name}' implements '{unknown[0]}', which is not an interface")
    demanded = {(name, prop.name): prop.type for name in node.implements for prop in interfaces[name].properties}
    for prop in node.properties:
        if not (prop.declared_directly or prop.satisfies):
            raise broken(f"'{node.name}.{prop.name}' is said to come from an interface, but from none by name")
        for interface, name in prop.satisfies:
            if demanded.pop((interface, name), None) != prop.type:
                raise broken(f"'{node.name}.{prop.name}' cannot satisfy '{interface}.{name}'")
    for interface, name in demanded:
        raise broken(f"node '{node.name}' has no property that satisfies '{interface}.{name}'")
