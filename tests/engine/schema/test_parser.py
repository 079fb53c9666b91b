"""Schema text to syntax tree: form, places and the words of a syntax error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from omnigraph_engine.errors import SchemaSyntaxError
from omnigraph_engine.schema.model import Scalar, Vector
from omnigraph_engine.schema.parser import parse
from omnigraph_engine.schema.source import Span
from omnigraph_engine.schema.syntax import (
    CheckSyntax,
    ColumnsSyntax,
    EdgeSyntax,
    InterfaceSyntax,
    NodeSyntax,
    RangeSyntax,
)

INDUSTRY_INTEL = Path(__file__).parents[2] / "data" / "industry-intel" / "schema.pg"


def node(source: str) -> NodeSyntax:
    (declaration,) = parse(source).declarations
    assert isinstance(declaration, NodeSyntax)
    return declaration


def edge(source: str) -> EdgeSyntax:
    (declaration,) = parse(source).declarations
    assert isinstance(declaration, EdgeSyntax)
    return declaration


def text(source: str, span: Span) -> str:
    return source[span.start : span.end]


def test_a_schema_written_for_omnigraph_parses_unchanged() -> None:
    declarations = parse(INDUSTRY_INTEL.read_text(encoding="utf-8")).declarations
    assert sum(isinstance(declaration, NodeSyntax) for declaration in declarations) == 10
    assert sum(isinstance(declaration, EdgeSyntax) for declaration in declarations) == 23


@pytest.mark.parametrize("source", ["", "\n\t\r\n", "// only a comment", "/* one\n * two **/", "/**/"])
def test_a_file_without_declarations_is_a_schema(source: str) -> None:
    assert parse(source).declarations == ()


def test_declarations_keep_their_order() -> None:
    declarations = parse("edge E: N -> N node N {} interface I {}").declarations
    assert [type(declaration) for declaration in declarations] == [EdgeSyntax, NodeSyntax, InterfaceSyntax]


def test_whitespace_and_comments_may_stand_between_any_two_words() -> None:
    dense = 'node P@d("x")implements A,B{a:[String]?@x@key(a)b:enum(u,v)}edge E:P->P@card(0..1){@unique(src)}'
    words = re.findall(r'@?\w+|"x"|->|\.\.|\S', dense)
    assert _without_places(" ".join(words)) == _without_places(dense)
    assert _without_places("\r\n".join(words)) == _without_places(dense)
    assert _without_places(" /* ( ** */ // )\n".join(words)) == _without_places(dense)


def _without_places(source: str) -> str:
    return re.sub(r"Span\([^)]*\)", "", repr(parse(source)))


@pytest.mark.parametrize("word", ["node", "edge", "interface", "implements", "enum", "true", "key", "type", "_x9"])
def test_a_keyword_is_also_a_property_name(word: str) -> None:
    written = node(f"node P {{ first: String @note {word}: {'enum(a)'} @unique({word}) {word}s: Bool }}")
    assert [property_.name.text for property_ in written.body.properties] == ["first", word, f"{word}s"]
    (unique,) = written.body.constraints
    assert isinstance(unique, ColumnsSyntax)
    assert [column.text for column in unique.columns] == [word]


def test_every_type_of_the_language_parses() -> None:
    for scalar in Scalar:
        (property_,) = node(f"node P {{ a: {scalar.value} }}").body.properties
        assert (property_.type.scalar, property_.type.nullable, property_.type.list) == (scalar, False, False)
    (listed, vector, values) = node("node P { a: [I64]? b: Vector(768)? c: enum(data-eng, 2d, _x) }").body.properties
    assert (listed.type.scalar, listed.type.nullable, listed.type.list) == (Scalar.I64, True, True)
    assert (vector.type.scalar, vector.type.nullable) == (Vector(768), True)
    assert values.type.enum_values is not None
    assert [value.text for value in values.type.enum_values] == ["data-eng", "2d", "_x"]


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [
        ("0..150", 0, 150),
        ("-1.5..", -1.5, None),
        ("..10", None, 10),
        ("..", None, None),
        ("-40.0..60.0", -40.0, 60.0),
        ("1e3 .. 2E+3", 1000.0, 2000.0),
        ("-9223372036854775808..9223372036854775807", -(2**63), 2**63 - 1),
        ("0..18446744073709551615", 0, float(2**64)),
    ],
)
def test_a_bound_is_an_integer_when_written_as_one_that_fits_64_bits(
    written: str, low: float | None, high: float | None
) -> None:
    (constraint,) = node(f"node P {{ @range(x, {written}) }}").body.constraints
    assert isinstance(constraint, RangeSyntax)
    assert (constraint.min, constraint.max) == (low, high)
    assert (type(constraint.min), type(constraint.max)) == (type(low), type(high))


def test_an_annotation_value_is_the_text_of_a_string_a_number_or_a_name() -> None:
    source = r'node P @a @b("say \"hi\"\\\n\t\r") @c(-1.50) @d(true) @e(bar, model="m", n=3, on=false) {}'
    assert [(written.name, written.value) for written in node(source).annotations] == [
        ("a", None),
        ("b", 'say "hi"\\\n\t\r'),
        ("c", "-1.50"),
        ("d", "true"),
        ("e", "bar"),
    ]
    assert [(keyword.name.text, keyword.value) for keyword in node(source).annotations[-1].keywords] == [
        ("model", "m"),
        ("n", "3"),
        ("on", "false"),
    ]


def test_a_constraint_with_names_is_never_an_annotation_of_the_property_before_it() -> None:
    body = node('node P { a: I32 @unique\n@range(a, 0..) @key(a) b: String @check(b, "x") }').body
    assert [written.name for property_ in body.properties for written in property_.annotations] == ["unique"]
    assert [type(constraint) for constraint in body.constraints] == [RangeSyntax, ColumnsSyntax, CheckSyntax]


def test_an_edge_may_have_cardinality_annotations_and_no_body() -> None:
    written = edge('edge E: A -> B @card(1..) @description("x")')
    assert written.cardinality is not None
    assert (written.cardinality.min, written.cardinality.max) == (1, None)
    assert written.annotations[0].value == "x"
    assert written.body.properties == ()
    assert edge("edge E: A -> B").cardinality is None


def test_every_part_knows_its_place() -> None:
    source = 'node Person @note("x")\n  implements Named {\n\tage: I32? @index\n  @range(age, 0..) @check(age, "a")\n}'
    written = node(source)
    (age,) = written.body.properties
    range_, check = written.body.constraints
    assert written.name.span == Span(line=1, column=6, start=5, end=11)
    assert text(source, written.annotations[0].span) == '@note("x")'
    assert (written.implements[0].span.line, written.implements[0].span.column) == (2, 14)
    assert (age.name.span.line, age.name.span.column) == (3, 2)
    assert text(source, age.type.span) == "I32?"
    assert text(source, age.annotations[0].span) == "@index"
    assert text(source, range_.span) == "@range(age, 0..)"
    assert isinstance(check, CheckSyntax)
    assert text(source, check.pattern_span) == '"a"'


@pytest.mark.parametrize(
    ("source", "line", "column", "found", "message", "hint"),
    [
        ("nodee P {}", 1, 1, "nodee", "expected 'interface', 'node' or 'edge', found 'nodee'", "Did you mean 'node'?"),
        ("intterface P {}", 1, 1, "intterface", "found 'intterface'", "Did you mean 'interface'?"),
        ("edge E: A -> B nodee N {}", 1, 16, "nodee", "found 'nodee'", "Did you mean 'node'?"),
        (
            "node P\n implments A {}",
            2,
            2,
            "implments",
            "'implements', an annotation or '{'",
            "Did you mean 'implements'?",
        ),
        ("node P { a: Strng }", 1, 13, "Strng", "unknown type 'Strng'", "Did you mean 'String'?"),
        ("node P { a: [Sting] }", 1, 14, "Sting", "unknown type 'Sting'", "Did you mean 'String'?"),
        ("node P { a: string }", 1, 13, "string", "expected a type or '[', found 'string'", "Did you mean 'String'?"),
        ("node P { a: enun(x) }", 1, 13, "enun", "found 'enun'", "Did you mean 'enum'?"),
        ("node P { a: Vektor(3) }", 1, 13, "Vektor", "unknown type 'Vektor'", "Did you mean 'Vector'?"),
        ("node P { a: Vector }", 1, 13, "Vector", "Vector needs its number of elements", "Vector(768)"),
        ("node P { a: String(3) }", 1, 20, "3", "String takes no size", None),
        ("node P { a: Vector(999999999999999999999) }", 1, 20, "9" * 21, "too large", None),
        ("node P { a: Vector(-1) }", 1, 20, "-1", "expected a whole number, found '-1'", None),
        ("node P { a: [[String]] }", 1, 14, "[", "expected a type, found '['", None),
        ("node P { a: enum() }", 1, 18, ")", "expected an enum value, found ')'", None),
        ("node person {}", 1, 6, "person", "expected a type name, found 'person'", "Did you mean 'Person'?"),
        ("node P { Name: String }", 1, 10, "Name", "expected a name", "Did you mean 'name'?"),
        ("node P { a String }", 1, 12, "String", "expected ':', found 'String'", None),
        ("edge E: A B", 1, 11, "B", "expected '->', found 'B'", None),
        ("node P {\n  a: String\n", 2, 12, "", "found the end of the file", None),
        ("node P { a: String; }", 1, 19, ";", "unexpected character ';'", None),
        ('node P @d("x {}', 1, 11, '"', "this string is not closed", None),
        ("node P {} /* x", 1, 11, "/*", "this comment is not closed", None),
        ("node P { @key() }", 1, 15, ")", "expected a name, found ')'", None),
        ("node P { @check(a, 3) }", 1, 20, "3", "expected a string, found '3'", None),
        ("node P { @check(a, b) }", 1, 20, "b", "expected a string, found 'b'", 'Put it in quotes: "b".'),
        ("node P { @range(a, 1e999..) }", 1, 20, "1e999", "1e999 is too large", None),
        ("node P @rename_from(Old) {}", 1, 21, "Old", "found 'Old'", 'Put it in quotes: "Old".'),
        ("node P @key(a) {}", 1, 8, "@key", "found '@key'", "between the braces of a node or an edge"),
        ("interface I { a: I32 @range(a, 0..) }", 1, 22, "@range", "found '@range'", "between the braces"),
        ("edge E: A -> B @d @card(0..1)", 1, 19, "@card", "found '@card'", "right after the edge's types"),
        ("edge E: A -> B @card(-1..1)", 1, 22, "-1", "expected a whole number", None),
        ('node P { @check(a, "\n  \\d") }', 2, 3, "\\d", "unknown escape '\\d'", "write two: '\\\\d'"),
    ],
)
def test_a_syntax_error_says_where_what_was_found_and_what_was_meant(
    source: str, line: int, column: int, found: str, message: str, hint: str | None
) -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        parse(source)
    error = caught.value
    assert error.code == "OG3001"
    assert error.details == {"line": line, "column": column, "text": found}
    assert error.message.startswith(f"line {line}, column {column}: ")
    assert message in error.message
    assert (hint in error.hint) if hint and error.hint else (error.hint is None and hint is None)


def test_a_caret_line_marks_the_offending_text_also_behind_tabs() -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        parse("node P {\r\n\ta:\tStrng\r\n}")
    assert caught.value.message.split("\n")[1:] == ["\ta:\tStrng", "\t  \t^^^^^"]
