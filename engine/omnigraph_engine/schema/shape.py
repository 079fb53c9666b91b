"""The canonical shape of a schema (FORMAT 5.2): what two schema texts have in common when they mean the same.

Comments, order of declarations and rename hints do not show in it. It is never stored, only hashed; the parts that the
stored document (ir.py) spells in the same way are rendered here for both.
"""

from __future__ import annotations

import hashlib
from typing import Any

from omnigraph_engine.schema.json_text import compact_json
from omnigraph_engine.schema.model import (
    Annotation,
    Bound,
    Cardinality,
    Catalog,
    Check,
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropType,
    Range,
    Vector,
)

# Kept elsewhere in the shape (as constraints and embed_source), or not part of what a schema means (rename_from).
_NOT_OPAQUE = frozenset({"rename_from", "embed", "key", "unique", "index"})


def shape_json(catalog: Catalog) -> str:
    """The same text for every source that means the same schema, byte for byte as OmniGraph writes it."""
    return compact_json(
        {
            "interfaces": [_interface(interface) for interface in catalog.interfaces.values()],
            "nodes": [_node(node) for node in catalog.nodes.values()],
            "edges": [_edge(edge) for edge in catalog.edges.values()],
        }
    )


def shape_hash(catalog: Catalog) -> str:
    return sha256_text(shape_json(catalog))


def sha256_text(text: str) -> str:
    """A hash as the schema files spell it: ``sha256:`` and lower-case hex."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def canonical_annotations(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    """The annotations that have no place of their own in the shape, in its order, each once."""
    opaque = {annotation for annotation in annotations if annotation.name not in _NOT_OPAQUE}
    return tuple(sorted(opaque, key=lambda annotation: compact_json(_annotation(annotation))))


# -- parts that the shape and the IR spell alike ------------------------------------------------------------


def annotations_document(annotations: tuple[Annotation, ...]) -> list[dict[str, Any]]:
    return [_annotation(annotation) for annotation in canonical_annotations(annotations)]


def _annotation(annotation: Annotation) -> dict[str, Any]:
    document: dict[str, Any] = {"name": annotation.name, "value": annotation.value}
    if annotation.kwargs:
        document["kwargs"] = dict(annotation.kwargs)
    return document


def type_document(prop_type: PropType) -> dict[str, Any]:
    scalar = prop_type.scalar
    return {
        "scalar": {"Vector": scalar.size} if isinstance(scalar, Vector) else scalar.value,
        "nullable": prop_type.nullable,
        "list": prop_type.list,
        "enum_values": None if prop_type.enum_values is None else list(prop_type.enum_values),
    }


def bound_document(bound: Bound) -> dict[str, Any] | None:
    if bound is None:
        return None
    return {"Float": bound} if isinstance(bound, float) else {"Integer": bound}


def cardinality_document(cardinality: Cardinality) -> dict[str, Any]:
    return {"min": cardinality.min, "max": cardinality.max}


# -- parts of the shape alone -------------------------------------------------------------------------------


def constraint_document(constraint: Constraint) -> dict[str, Any]:
    if isinstance(constraint, Range):
        bounds = {"min": bound_document(constraint.min), "max": bound_document(constraint.max)}
        return {"Range": {"property": constraint.property, **bounds}}
    if isinstance(constraint, Check):
        return {"Check": {"property": constraint.property, "pattern": constraint.pattern}}
    return {type(constraint).__name__: list(constraint.columns)}


def _interface(interface: InterfaceType) -> dict[str, Any]:
    return {"name": interface.name, "properties": _properties(interface.properties)}


def _node(node: NodeType) -> dict[str, Any]:
    return {
        "name": node.name,
        "annotations": annotations_document(node.annotations),
        "implements": list(node.implements),
        "properties": _properties(node.properties),
        "constraints": [constraint_document(constraint) for constraint in node.constraints],
    }


def _edge(edge: EdgeType) -> dict[str, Any]:
    return {
        "name": edge.name,
        "from_type": edge.from_type,
        "to_type": edge.to_type,
        "cardinality": cardinality_document(edge.cardinality),
        "annotations": annotations_document(edge.annotations),
        "properties": _properties(edge.properties),
        "constraints": [constraint_document(constraint) for constraint in edge.constraints],
    }


def _properties(properties: tuple[Property, ...]) -> list[dict[str, Any]]:
    return [_property(prop) for prop in properties]


def _property(prop: Property) -> dict[str, Any]:
    embed = prop.embed_source
    return {
        "name": prop.name,
        "prop_type": type_document(prop.type),
        "annotations": annotations_document(prop.annotations),
        "property_constraints": list(prop.property_constraints),
        "embed_source": None if embed is None else {"property_name": embed.property_name, "model": embed.model},
        "declared_directly": prop.declared_directly,
        "satisfies_interface_properties": [
            {"owner_name": owner, "property_name": name} for owner, name in prop.satisfies
        ],
    }
