"""A schema drawn as text, for a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import get_args

from omnigraph_engine.schema.model import (
    Bound,
    Catalog,
    Check,
    Constraint,
    EdgeType,
    Index,
    InterfaceType,
    Key,
    NodeType,
    Property,
    PropertyConstraint,
    Range,
    Unique,
)

_WIDTH = 100
_TYPE_COLUMN = 24  # types up to this width are padded to one; the marks of a longer one follow it directly


def diagram(catalog: Catalog) -> str:
    """The schema as a drawing: interfaces, nodes and edges by name, each with its properties beneath it.

    The same catalog gives the same text. Properties are wrapped at 100 columns.
    """
    edges = [line for edge in catalog.edges.values() for line in _edge(edge)]
    blocks = [
        *map(_interface, catalog.interfaces.values()),
        *map(_node, catalog.nodes.values()),
        *([edges] if edges else []),
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _interface(interface: InterfaceType) -> Iterator[str]:
    yield f"interface {interface.name}"
    yield from _tree(interface.properties, ())


def _node(node: NodeType) -> Iterator[str]:
    interfaces = f" : {', '.join(node.implements)}" if node.implements else ""
    yield f"node {node.name}{interfaces}"
    yield from _tree(node.properties, node.constraints)


def _edge(edge: EdgeType) -> Iterator[str]:
    limit = "" if edge.cardinality.max is None else edge.cardinality.max
    yield f"{edge.from_type} ──{edge.name}──▶ {edge.to_type}  ({edge.cardinality.min}..{limit})"
    yield from _tree(edge.properties, edge.constraints)


def _tree(properties: Sequence[Property], constraints: Sequence[Constraint]) -> Iterator[str]:
    name_width = max((len(property_.name) for property_ in properties), default=0)
    type_widths = (len(str(property_.type)) for property_ in properties)
    type_width = max((width for width in type_widths if width <= _TYPE_COLUMN), default=0)
    rows = [
        (
            f"{property_.name:<{name_width}}  ",
            f"{property_.type!s:<{type_width}}  {', '.join(_marks(property_, constraints))}".rstrip(),
        )
        for property_ in properties
    ]
    rows.extend(("", text) for text in _not_on_one_property(properties, constraints))
    for number, (name, text) in enumerate(rows, start=1):
        branch, below = ("└─ ", "   ") if number == len(rows) else ("├─ ", "│  ")
        yield from textwrap.wrap(
            text,
            _WIDTH,
            initial_indent=branch + name,
            subsequent_indent=below + " " * (len(name) + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )


def _marks(property_: Property, constraints: Sequence[Constraint]) -> Iterator[str]:
    """What holds for one property: each member of a key is marked, and every rule over this property alone."""
    own = set(property_.property_constraints)
    for constraint in constraints:
        if isinstance(constraint, Key) and property_.name in constraint.columns:
            own.add("key")
        elif isinstance(constraint, (Unique, Index)) and constraint.columns == (property_.name,):
            own.add("unique" if isinstance(constraint, Unique) else "index")
    yield from (kind for kind in get_args(PropertyConstraint) if kind in own)
    for constraint in constraints:
        if isinstance(constraint, Range) and constraint.property == property_.name:
            yield f"in {_bound(constraint.min)}..{_bound(constraint.max)}"
        elif isinstance(constraint, Check) and constraint.property == property_.name:
            yield f"matches {json.dumps(constraint.pattern, ensure_ascii=False)}"
    if property_.embed_source is not None:
        yield f"embeds {property_.embed_source.property_name}"
    if not property_.declared_directly:
        yield f"from {', '.join(interface for interface, _ in property_.satisfies)}"


def _bound(bound: Bound) -> str:
    return "" if bound is None else str(bound)


def _not_on_one_property(properties: Sequence[Property], constraints: Sequence[Constraint]) -> Iterator[str]:
    """Rules over several columns, or over an edge's ends, which are not properties."""
    alone = {(property_.name,) for property_ in properties}
    for constraint in constraints:
        if isinstance(constraint, (Unique, Index)) and constraint.columns not in alone:
            yield f"{type(constraint).__name__.lower()} ({', '.join(constraint.columns)})"
