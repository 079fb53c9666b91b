"""A schema file as written: one frozen class for each construct of the grammar, each knowing its place.

Nothing here is checked beyond the grammar; catalog.py applies the rules of the language and needs the places to say
where one is broken.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_engine.schema.model import Bound, PropertyConstraint, ScalarType
from omnigraph_engine.schema.source import Span


@dataclass(frozen=True)
class Name:
    text: str
    span: Span


@dataclass(frozen=True)
class TypeSyntax:
    scalar: ScalarType
    nullable: bool
    list: bool
    enum_values: tuple[Name, ...] | None  # in source order, duplicates and all
    span: Span


@dataclass(frozen=True)
class KeywordSyntax:
    name: Name
    value: str


@dataclass(frozen=True)
class AnnotationSyntax:
    name: str
    value: str | None  # the content of a string, otherwise the literal or name as written
    keywords: tuple[KeywordSyntax, ...]
    span: Span


@dataclass(frozen=True)
class PropertySyntax:
    name: Name
    type: TypeSyntax
    annotations: tuple[AnnotationSyntax, ...]


@dataclass(frozen=True)
class ColumnsSyntax:
    """``@key(a, b)``, ``@unique(a, b)`` or ``@index(a, b)``."""

    kind: PropertyConstraint
    columns: tuple[Name, ...]
    span: Span


@dataclass(frozen=True)
class RangeSyntax:
    property: Name
    min: Bound
    max: Bound
    span: Span


@dataclass(frozen=True)
class CheckSyntax:
    property: Name
    pattern: str
    pattern_span: Span
    span: Span


ConstraintSyntax = ColumnsSyntax | RangeSyntax | CheckSyntax


@dataclass(frozen=True)
class BodySyntax:
    properties: tuple[PropertySyntax, ...] = ()
    constraints: tuple[ConstraintSyntax, ...] = ()


@dataclass(frozen=True)
class CardinalitySyntax:
    min: int
    max: int | None
    span: Span


@dataclass(frozen=True)
class InterfaceSyntax:
    name: Name
    properties: tuple[PropertySyntax, ...]


@dataclass(frozen=True)
class NodeSyntax:
    name: Name
    annotations: tuple[AnnotationSyntax, ...]
    implements: tuple[Name, ...]
    body: BodySyntax


@dataclass(frozen=True)
class EdgeSyntax:
    name: Name
    from_type: Name
    to_type: Name
    cardinality: CardinalitySyntax | None
    annotations: tuple[AnnotationSyntax, ...]
    body: BodySyntax


Declaration = InterfaceSyntax | NodeSyntax | EdgeSyntax


@dataclass(frozen=True)
class SchemaFile:
    declarations: tuple[Declaration, ...]  # in source order
