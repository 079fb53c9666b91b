"""The rules of the schema language that concern one type: its property names, types, annotations and constraints.

Each function raises ``Fault`` at the place where its rule is broken; those that return something return it in the
terms of model.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_engine.errors import did_you_mean
from omnigraph_engine.schema.model import (
    Annotation,
    Cardinality,
    Check,
    Constraint,
    EmbedSource,
    Index,
    Key,
    PropertyConstraint,
    PropType,
    Range,
    Scalar,
    Unique,
    Vector,
)
from omnigraph_engine.schema.source import Fault
from omnigraph_engine.schema.syntax import (
    AnnotationSyntax,
    CardinalitySyntax,
    CheckSyntax,
    ColumnsSyntax,
    ConstraintSyntax,
    Name,
    PropertySyntax,
    RangeSyntax,
    TypeSyntax,
)

RESERVED_PROPERTY_NAMES = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "id",
        "src",
        "dst",
    }
)

_NUMERIC = {Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64}
_COLUMNS: Mapping[PropertyConstraint, type[Key | Unique | Index]] = {"key": Key, "unique": Unique, "index": Index}
_ENDPOINTS = {"src", "dst"}

_ON_PROPERTIES_ONLY = {"key", "unique", "index", "embed"}
_ONCE = _ON_PROPERTIES_ONLY | {"rename_from", "description", "instruction"}
_WITH_TEXT = {
    "rename_from": "the old name",
    "description": "a text",
    "instruction": "a text",
    "embed": "the property it is computed from",
}
_WITH_ARGUMENTS = {"range": "@range(age, 0..150)", "check": '@check(code, "^[A-Z]+$")', "card": "@card(0..1)"}
_KEYWORDS = {"rename_from": frozenset[str](), "embed": frozenset({"model"})}

_MAX_VECTOR_SIZE = 2**31 - 1
_MAX_CARDINALITY = 2**32 - 1


@dataclass(frozen=True)
class Owner:
    """The type that a message is about."""

    kind: Literal["interface", "node", "edge"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def check_property_names(owner: Owner, names: Iterable[Name]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.text in RESERVED_PROPERTY_NAMES:
            raise Fault(name.span, f"'{name.text}' is reserved and cannot be a property of {owner}")
        if name.text in seen:
            raise Fault(name.span, f"{owner} has two properties named '{name.text}'")
        seen.add(name.text)


def property_type(written: TypeSyntax) -> PropType:
    if isinstance(written.scalar, Vector) and not 1 <= written.scalar.size <= _MAX_VECTOR_SIZE:
        raise Fault(written.span, f"the size of a Vector is from 1 to {_MAX_VECTOR_SIZE}, not {written.scalar.size}")
    if written.list:
        element = _never_in_lists(written)
        if element:
            raise Fault(written.span, f"a list of {element} is not supported")
    if written.enum_values is None:
        return PropType(written.scalar, written.nullable, written.list)
    values: set[str] = set()
    for value in written.enum_values:
        if value.text in values:
            raise Fault(value.span, f"the enum has the value '{value.text}' twice")
        values.add(value.text)
    return PropType(written.scalar, written.nullable, enum_values=tuple(sorted(values)))


def _never_in_lists(written: TypeSyntax) -> str | None:
    if written.enum_values is not None:
        return "enum"
    if isinstance(written.scalar, Vector):
        return "Vector"
    return "Blob" if written.scalar is Scalar.BLOB else None


def type_annotations(owner: Owner, written: Iterable[AnnotationSyntax]) -> tuple[Annotation, ...]:
    annotations = tuple(written)
    for annotation in annotations:
        if annotation.name in _ON_PROPERTIES_ONLY:
            raise Fault(annotation.span, f"@{annotation.name} belongs to a property, not to {owner} itself")
    return _annotations(str(owner), annotations)


def property_annotations(owner: Owner, written: PropertySyntax) -> tuple[Annotation, ...]:
    return _annotations(f"property '{written.name.text}' of {owner}", written.annotations)


def _annotations(place: str, written: tuple[AnnotationSyntax, ...]) -> tuple[Annotation, ...]:
    seen: set[str] = set()
    for annotation in written:
        name = annotation.name
        if name in _WITH_ARGUMENTS:
            raise Fault(annotation.span, f"@{name} needs arguments", f"For example {_WITH_ARGUMENTS[name]}.")
        if name in _ONCE and name in seen:
            raise Fault(annotation.span, f"{place} has @{name} twice")
        if name in _WITH_TEXT and not (annotation.value or "").strip():
            raise Fault(annotation.span, f"@{name} needs {_WITH_TEXT[name]}", f'Write @{name}("...").')
        _check_keywords(annotation)
        seen.add(name)
    return tuple(_annotation(annotation) for annotation in written)


def _check_keywords(annotation: AnnotationSyntax) -> None:
    known = _KEYWORDS.get(annotation.name)
    seen: set[str] = set()
    for keyword in annotation.keywords:
        name = keyword.name.text
        if known is not None and name not in known:
            raise Fault(keyword.name.span, f"@{annotation.name} takes no '{name}='", did_you_mean(name, known))
        if name in seen:
            raise Fault(keyword.name.span, f"@{annotation.name} has '{name}=' twice")
        seen.add(name)


def _annotation(written: AnnotationSyntax) -> Annotation:
    keywords = sorted((keyword.name.text, keyword.value) for keyword in written.keywords)
    return Annotation(written.name, written.value, tuple(keywords))


def embed_source(owner: Owner, written: PropertySyntax, types: Mapping[str, PropType]) -> EmbedSource | None:
    """What ``@embed`` says, or None without one. An interface may leave its source to the node that implements it."""
    annotation = next((annotation for annotation in written.annotations if annotation.name == "embed"), None)
    if annotation is None or annotation.value is None:
        return None
    if owner.kind == "edge":
        raise Fault(annotation.span, f"@embed is for nodes; {owner} cannot have it")
    name = written.name.text
    if not isinstance(types[name].scalar, Vector):
        raise Fault(annotation.span, f"@embed is for a Vector; '{name}' of {owner} is {types[name]}")
    source = annotation.value
    if source in types:
        if types[source].scalar is not Scalar.STRING or types[source].list:
            raise Fault(annotation.span, f"@embed needs a String to compute from; '{source}' is {types[source]}")
    elif owner.kind == "node":
        raise _unknown_property(owner, "embed", Name(source, annotation.span), types)
    keywords = {keyword.name.text: keyword.value for keyword in annotation.keywords}
    return EmbedSource(source, keywords.get("model"))


def cardinality(written: CardinalitySyntax | None) -> Cardinality:
    if written is None:
        return Cardinality()
    highest = written.min if written.max is None else max(written.min, written.max)
    if highest > _MAX_CARDINALITY:
        raise Fault(written.span, f"@card counts to {_MAX_CARDINALITY} at most")
    if written.max is not None and written.min > written.max:
        raise Fault(written.span, f"@card needs its minimum first: {written.min} is more than {written.max}")
    return Cardinality(written.min, written.max)


def check_one_key(owner: Owner, constraints: Iterable[ConstraintSyntax]) -> None:
    keys = [written for written in constraints if isinstance(written, ColumnsSyntax) and written.kind == "key"]
    if len(keys) > 1:
        columns = ", ".join(dict.fromkeys(column.text for key in keys for column in key.columns))
        raise Fault(keys[1].span, f"{owner} has more than one @key", f"Write one in its place: @key({columns}).")


def constraint(owner: Owner, written: ConstraintSyntax, types: Mapping[str, PropType]) -> Constraint:
    if isinstance(written, ColumnsSyntax):
        return _columns(owner, written, types)
    if isinstance(written, RangeSyntax):
        return _range(owner, written, types)
    return _check(owner, written, types)


def _columns(owner: Owner, written: ColumnsSyntax, types: Mapping[str, PropType]) -> Constraint:
    if written.kind == "key":
        _nodes_only(owner, "key", written)
    for column in written.columns:
        if owner.kind == "edge" and column.text in _ENDPOINTS:
            continue
        column_type = _type_of(owner, written.kind, column, types)
        obstacle = _obstacle_to_key(column_type) if written.kind == "key" else _obstacle(column_type)
        if obstacle:
            raise Fault(column.span, f"'{column.text}' of {owner} cannot have @{written.kind}: it is {obstacle}")
    return _COLUMNS[written.kind](tuple(column.text for column in written.columns))


def _obstacle(column_type: PropType) -> str | None:
    return "a Blob" if column_type.scalar is Scalar.BLOB else None


def _obstacle_to_key(column_type: PropType) -> str | None:
    if column_type.list:
        return "a list"
    if isinstance(column_type.scalar, Vector):
        return "a Vector"
    return _obstacle(column_type) or ("nullable" if column_type.nullable else None)


def _range(owner: Owner, written: RangeSyntax, types: Mapping[str, PropType]) -> Range:
    _nodes_only(owner, "range", written)
    name = written.property
    property_type = _type_of(owner, "range", name, types)
    if property_type.scalar not in _NUMERIC or property_type.list:
        raise Fault(name.span, f"@range is for numbers; '{name.text}' of {owner} is {property_type}")
    if written.min is None and written.max is None:
        raise Fault(written.span, "@range needs at least one bound")
    if written.min is not None and written.max is not None and written.min > written.max:
        raise Fault(written.span, f"@range needs its lower bound first: {written.min} is more than {written.max}")
    return Range(name.text, written.min, written.max)


def _check(owner: Owner, written: CheckSyntax, types: Mapping[str, PropType]) -> Check:
    _nodes_only(owner, "check", written)
    name = written.property
    property_type = _type_of(owner, "check", name, types)
    if property_type.scalar is not Scalar.STRING or property_type.list:
        raise Fault(name.span, f"@check is for a String; '{name.text}' of {owner} is {property_type}")
    try:
        # The pattern is compiled by what will evaluate it, and only when there is a value to evaluate it on.
        pc.match_substring_regex(pa.array([""]), pattern=written.pattern)
    except pa.ArrowInvalid as error:
        raise Fault(written.pattern_span, f"@check has a bad pattern: {error}") from None
    return Check(name.text, written.pattern)


def _nodes_only(owner: Owner, rule: str, written: ConstraintSyntax) -> None:
    if owner.kind == "edge":
        raise Fault(written.span, f"@{rule} is for nodes; {owner} cannot have it")


def _type_of(owner: Owner, rule: str, name: Name, types: Mapping[str, PropType]) -> PropType:
    if name.text not in types:
        raise _unknown_property(owner, rule, name, types)
    return types[name.text]


def _unknown_property(owner: Owner, rule: str, name: Name, types: Mapping[str, PropType]) -> Fault:
    return Fault(name.span, f"@{rule} names '{name.text}', which {owner} does not have", did_you_mean(name.text, types))
