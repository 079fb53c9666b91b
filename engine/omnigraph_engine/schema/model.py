"""What a schema means, as plain data: types, properties and constraints, resolved and normalised.

``Catalog`` is what the parser's result becomes once every rule of the language holds: interface properties are merged into
their nodes, one-property annotations are expanded into constraints, column lists are sorted. It knows names, not
identities; ``AcceptedSchema`` (identity.py) adds the stable ids that the disk format is built on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Literal


class Scalar(str, Enum):
    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    BLOB = "Blob"


@dataclass(frozen=True)
class Vector:
    """A fixed number of 32-bit floats."""

    size: int


ScalarType = Scalar | Vector


@dataclass(frozen=True)
class PropType:
    scalar: ScalarType
    nullable: bool = False
    list: bool = False
    enum_values: tuple[str, ...] | None = None  # sorted and unique; the scalar is String

    def __str__(self) -> str:
        """As it is written in the schema language."""
        if self.enum_values is not None:
            text = f"enum({', '.join(self.enum_values)})"
        elif isinstance(self.scalar, Vector):
            text = f"Vector({self.scalar.size})"
        else:
            text = self.scalar.value
        if self.list:
            text = f"[{text}]"
        return f"{text}?" if self.nullable else text


@dataclass(frozen=True)
class Annotation:
    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str], ...] = ()  # sorted by name


@dataclass(frozen=True)
class Key:
    columns: tuple[str, ...]  # sorted and unique, like those of Unique and Index


@dataclass(frozen=True)
class Unique:
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Index:
    columns: tuple[str, ...]


Bound = int | float | None


@dataclass(frozen=True)
class Range:
    property: str
    min: Bound
    max: Bound


@dataclass(frozen=True)
class Check:
    property: str
    pattern: str


Constraint = Key | Unique | Index | Range | Check

PropertyConstraint = Literal["key", "unique", "index"]


@dataclass(frozen=True)
class EmbedSource:
    property_name: str
    model: str | None


@dataclass(frozen=True)
class Property:
    name: str
    type: PropType
    annotations: tuple[Annotation, ...] = ()  # as written, in source order, all of them
    property_constraints: tuple[PropertyConstraint, ...] = ()  # the bare annotations, in the order key, unique, index
    embed_source: EmbedSource | None = None
    declared_directly: bool = True  # False: it came from an interface only
    satisfies: tuple[tuple[str, str], ...] = ()  # (interface, property) pairs, sorted

    @property
    def rename_from(self) -> str | None:
        return rename_hint(self.annotations)


@dataclass(frozen=True)
class Cardinality:
    min: int = 0
    max: int | None = None


TypeKind = Literal["interface", "node", "edge"]


@dataclass(frozen=True)
class InterfaceType:
    kind: ClassVar[TypeKind] = "interface"

    name: str
    properties: tuple[Property, ...]  # sorted by name, here and below


@dataclass(frozen=True)
class NodeType:
    kind: ClassVar[TypeKind] = "node"

    name: str
    properties: tuple[Property, ...]
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[str, ...] = ()  # sorted
    constraints: tuple[Constraint, ...] = ()  # in canonical order, without duplicates
    # The members of ``@key`` as the text of the schema has them. Their order is no part of what the schema means, so only a
    # catalog that was made from text knows it.
    declared_key: tuple[str, ...] = field(default=(), compare=False)

    @property
    def table_key(self) -> str:
        return f"node:{self.name}"

    @property
    def key(self) -> tuple[str, ...]:
        """The members of ``@key``, sorted by name; empty when the type has none."""
        return next((constraint.columns for constraint in self.constraints if isinstance(constraint, Key)), ())


@dataclass(frozen=True)
class EdgeType:
    kind: ClassVar[TypeKind] = "edge"

    name: str
    from_type: str
    to_type: str
    properties: tuple[Property, ...] = ()
    cardinality: Cardinality = field(default_factory=Cardinality)
    annotations: tuple[Annotation, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    @property
    def table_key(self) -> str:
        return f"edge:{self.name}"


TableType = NodeType | EdgeType
AnyType = InterfaceType | NodeType | EdgeType


@dataclass(frozen=True)
class Catalog:
    """A schema all of whose rules hold. Mappings are by name, sorted by name."""

    interfaces: Mapping[str, InterfaceType]
    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]

    def table_types(self) -> list[TableType]:
        """The types that store rows: nodes by name, then edges by name."""
        return [*self.nodes.values(), *self.edges.values()]

    def all_types(self) -> list[AnyType]:
        """Interfaces, then nodes, then edges, each by name: the order in which identities are given out."""
        return [*self.interfaces.values(), *self.table_types()]


def rename_hint(annotations: tuple[Annotation, ...]) -> str | None:
    """The old name that ``@rename_from("Old")`` gives, or None."""
    return next((annotation.value for annotation in annotations if annotation.name == "rename_from"), None)
