"""Schema text to syntax tree."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from importlib import resources
from typing import cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args
from lark.exceptions import VisitError
from lark.tree import Meta

from omnigraph_engine.errors import SchemaSyntaxError, did_you_mean
from omnigraph_engine.schema.model import Bound, PropertyConstraint, Scalar, ScalarType, Vector
from omnigraph_engine.schema.source import Fault, Span
from omnigraph_engine.schema.syntax import (
    AnnotationSyntax,
    BodySyntax,
    CardinalitySyntax,
    CheckSyntax,
    ColumnsSyntax,
    ConstraintSyntax,
    Declaration,
    EdgeSyntax,
    InterfaceSyntax,
    KeywordSyntax,
    Name,
    NodeSyntax,
    PropertySyntax,
    RangeSyntax,
    SchemaFile,
    TypeSyntax,
)
from omnigraph_engine.schema.syntax_errors import TYPE_WORDS, span_of, unexpected_character, unexpected_token

_PARSER = Lark(
    resources.files(__package__).joinpath("pg.lark").read_text(encoding="utf-8"),
    parser="lalr",
    propagate_positions=True,
)

_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def parse(source: str) -> SchemaFile:
    """The syntax tree of a schema file, every part with its place in the text.

    Raises:
        SchemaSyntaxError: The text is not of the language's form; the message shows the place, ``details`` has line,
            column and the offending text.
    """
    try:
        return _parse(source)
    except Fault as fault:
        raise fault.located(SchemaSyntaxError, source) from None


def _parse(source: str) -> SchemaFile:
    try:
        return _Builder().transform(_PARSER.parse(source))
    except UnexpectedToken as error:
        raise unexpected_token(error) from None
    except UnexpectedCharacters as error:
        raise unexpected_character(error, source) from None
    except VisitError as error:
        raise error.orig_exc from None


@v_args(inline=True)
class _Builder(Transformer[Token, SchemaFile]):
    """One method for each rule of pg.lark; an optional part that is absent arrives as None."""

    def start(self, *declarations: Declaration) -> SchemaFile:
        return SchemaFile(declarations)

    def interface(self, _keyword: Token, name: Token, *properties: PropertySyntax) -> InterfaceSyntax:
        return InterfaceSyntax(_name(name), properties)

    def node(
        self,
        _keyword: Token,
        name: Token,
        annotations: tuple[AnnotationSyntax, ...],
        implements: tuple[Name, ...] | None,
        body: BodySyntax,
    ) -> NodeSyntax:
        return NodeSyntax(_name(name), annotations, implements or (), body)

    def edge(
        self,
        _keyword: Token,
        name: Token,
        from_type: Token,
        to_type: Token,
        cardinality: CardinalitySyntax | None,
        annotations: tuple[AnnotationSyntax, ...],
        body: BodySyntax | None,
    ) -> EdgeSyntax:
        return EdgeSyntax(_name(name), _name(from_type), _name(to_type), cardinality, annotations, body or BodySyntax())

    def implements(self, _keyword: Token, *names: Token) -> tuple[Name, ...]:
        return tuple(map(_name, names))

    @v_args(meta=True, inline=True)
    def cardinality(self, meta: Meta, low: Token, high: Token | None) -> CardinalitySyntax:
        return CardinalitySyntax(_integer(low), None if high is None else _integer(high), _span(meta))

    def body(self, *items: PropertySyntax | ConstraintSyntax) -> BodySyntax:
        return BodySyntax(
            properties=tuple(item for item in items if isinstance(item, PropertySyntax)),
            constraints=tuple(item for item in items if not isinstance(item, PropertySyntax)),
        )

    def property(self, name: Token, type_: TypeSyntax, annotations: tuple[AnnotationSyntax, ...]) -> PropertySyntax:
        return PropertySyntax(_name(name), type_, annotations)

    @v_args(meta=True, inline=True)
    def type(self, meta: Meta, element: _Element, nullable: Token | None) -> TypeSyntax:
        return TypeSyntax(element.scalar, nullable is not None, False, element.enum_values, _span(meta))

    @v_args(meta=True, inline=True)
    def list_type(self, meta: Meta, element: _Element, nullable: Token | None) -> TypeSyntax:
        return TypeSyntax(element.scalar, nullable is not None, True, element.enum_values, _span(meta))

    def scalar(self, name: Token, size: Token | None) -> _Element:
        return _Element(_scalar(name, size))

    def enum(self, *values: Token) -> _Element:
        return _Element(Scalar.STRING, tuple(map(_name, values)))

    def annotations(self, *annotations: AnnotationSyntax) -> tuple[AnnotationSyntax, ...]:
        return annotations

    @v_args(meta=True, inline=True)
    def annotation(
        self, meta: Meta, name: Token, value: Token | None = None, *keywords: KeywordSyntax
    ) -> AnnotationSyntax:
        return AnnotationSyntax(_unsigned(name), None if value is None else _literal(value), keywords, _span(meta))

    def keyword(self, name: Token, value: Token) -> KeywordSyntax:
        return KeywordSyntax(_name(name), _literal(value))

    @v_args(meta=True, inline=True)
    def columns(self, meta: Meta, kind: Token, *names: Token) -> ColumnsSyntax:
        return ColumnsSyntax(cast("PropertyConstraint", _unsigned(kind)), tuple(map(_name, names)), _span(meta))

    @v_args(meta=True, inline=True)
    def range(self, meta: Meta, name: Token, low: Token | None, high: Token | None) -> RangeSyntax:
        return RangeSyntax(_name(name), _bound(low), _bound(high), _span(meta))

    @v_args(meta=True, inline=True)
    def check(self, meta: Meta, name: Token, pattern: Token) -> CheckSyntax:
        return CheckSyntax(_name(name), _literal(pattern), span_of(pattern), _span(meta))


@dataclass(frozen=True)
class _Element:
    """A type without its list and null marks."""

    scalar: ScalarType
    enum_values: tuple[Name, ...] | None = None


def _name(token: Token) -> Name:
    return Name(str(token), span_of(token))


def _unsigned(token: Token) -> str:
    """The name of an annotation or constraint without its ``@``."""
    return token.removeprefix("@").strip()


def _span(meta: Meta) -> Span:
    return Span(meta.line, meta.column, meta.start_pos, meta.end_pos)


def _scalar(name: Token, size: Token | None) -> ScalarType:
    if name == "Vector":
        if size is None:
            raise Fault(span_of(name), "Vector needs its number of elements", "Write for example Vector(768).")
        return Vector(_integer(size))
    if name not in TYPE_WORDS:
        raise Fault(span_of(name), f"unknown type '{name}'", did_you_mean(name, TYPE_WORDS))
    if size is not None:
        raise Fault(span_of(size), f"{name} takes no size")
    return Scalar(str(name))


def _integer(token: Token) -> int:
    if len(token) > 20:
        raise Fault(span_of(token), f"{token} is too large")
    return int(token)


def _bound(token: Token | None) -> Bound:
    """An integer when written as one that fits 64 bits, else a float: so OmniGraph stores it, and so it is hashed."""
    if token is None:
        return None
    number = float(token)
    if not math.isfinite(number):
        raise Fault(span_of(token), f"{token} is too large")
    if len(token) <= 20 and token.removeprefix("-").isdecimal() and -(2**63) <= int(token) < 2**63:
        return int(token)
    return number


def _literal(token: Token) -> str:
    """The value as text: the content of a string, anything else as written."""
    return _decoded(token) if token.type == "STRING" else str(token)


def _decoded(string: Token) -> str:
    def decode(escape: re.Match[str]) -> str:
        character = escape[1]
        if character not in _ESCAPES:
            raise Fault(
                _inside(string, escape),
                f"unknown escape '{escape[0]}'; known are \\\" \\\\ \\n \\r \\t",
                f"For a backslash write two: '\\{escape[0]}'.",
            )
        return _ESCAPES[character]

    return re.sub(r"\\(.)", decode, string[1:-1], flags=re.DOTALL)


def _inside(string: Token, escape: re.Match[str]) -> Span:
    whole = span_of(string)
    before = string[: escape.start() + 1]
    newlines = before.count("\n")
    column = len(before) - before.rfind("\n") if newlines else whole.column + len(before)
    start = whole.start + len(before)
    return Span(whole.line + newlines, column, start, start + len(escape[0]))
