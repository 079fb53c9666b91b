"""Schema text to catalog: what a schema means, and each rule it can break."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omnigraph_engine.errors import SchemaError
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.model import (
    Annotation,
    Cardinality,
    Check,
    EmbedSource,
    Index,
    Key,
    NodeType,
    Property,
    PropType,
    Range,
    Scalar,
    Unique,
    Vector,
)
from omnigraph_engine.schema.rules import RESERVED_PROPERTY_NAMES

INDUSTRY_INTEL = Path(__file__).parents[2] / "data" / "industry-intel" / "schema.pg"


def node(source: str, name: str = "P") -> NodeType:
    return parse_catalog(source).nodes[name]


def properties(source: str, name: str = "P") -> dict[str, Property]:
    return {property_.name: property_ for property_ in node(source, name).properties}


def test_a_schema_written_for_omnigraph_has_the_meaning_it_had_there() -> None:
    catalog = parse_catalog(INDUSTRY_INTEL.read_text(encoding="utf-8"))
    assert (len(catalog.interfaces), len(catalog.nodes), len(catalog.edges)) == (0, 10, 23)
    assert catalog.nodes["Signal"].key == ("slug",)
    assert catalog.nodes["Chunk"].key == ()
    assert catalog.edges["PartOfArtifact"].cardinality == Cardinality(1, 1)
    assert catalog.edges["PartOfArtifact"].constraints == (Unique(("src",)),)
    chunk = {property_.name: property_ for property_ in catalog.nodes["Chunk"].properties}
    assert chunk["embedding"].type == PropType(Vector(3072))
    assert chunk["embedding"].embed_source == EmbedSource("text", None)


def test_types_properties_and_interfaces_are_sorted_by_name() -> None:
    source = """
        edge Z: P -> P  edge A: P -> P
        interface J { b: String a: String }  interface I {}
        node P implements J, I, J { d: String c: String }  node B {}
    """
    catalog = parse_catalog(source)
    assert list(catalog.interfaces) == ["I", "J"]
    assert list(catalog.nodes) == ["B", "P"]
    assert list(catalog.edges) == ["A", "Z"]
    assert [property_.name for property_ in catalog.nodes["P"].properties] == ["a", "b", "c", "d"]
    assert [property_.name for property_ in catalog.interfaces["J"].properties] == ["a", "b"]
    assert catalog.nodes["P"].implements == ("I", "J")


def test_the_order_of_declarations_does_not_change_the_meaning() -> None:
    declarations = ["interface I { x: I32 }", "node P implements I { a: String b: I32 }", "edge E: P -> P"]
    assert parse_catalog("\n".join(declarations)) == parse_catalog("/* x */".join(reversed(declarations)))


def test_a_constraint_on_a_property_is_kept_there_and_expanded_into_the_type() -> None:
    person = node("node P { a: String @index @unique @key @key_note b: I32 @range(b, 0..) @unique(b, a, b) }")
    assert person.properties[0].property_constraints == ("key", "unique", "index")
    assert [annotation.name for annotation in person.properties[0].annotations] == [
        "index",
        "unique",
        "key",
        "key_note",
    ]
    assert person.constraints == (Index(("a",)), Key(("a",)), Range("b", 0, None), Unique(("a",)), Unique(("a", "b")))
    assert person.key == ("a",)


def test_a_constraint_in_the_body_is_not_a_property_constraint() -> None:
    person = node('node P { a: String b: String @key(b, a) @check(a, "^x") }')
    assert person.constraints == (Check("a", "^x"), Key(("a", "b")))
    assert [property_.property_constraints for property_ in person.properties] == [(), ()]


def test_an_edge_may_be_unique_or_indexed_on_its_ends() -> None:
    edge = parse_catalog("node P {} edge E: P -> P { w: I32 @unique(src, dst, w) @index(src) }").edges["E"]
    assert edge.constraints == (Index(("src",)), Unique(("dst", "src", "w")))


def test_an_edge_without_card_takes_any_number_per_source() -> None:
    edges = parse_catalog("node P {} edge A: P -> P edge B: P -> P @card(2..)").edges
    assert edges["A"].cardinality == Cardinality(0, None)
    assert edges["B"].cardinality == Cardinality(2, None)


def test_a_property_only_an_interface_declares_comes_with_its_annotations_and_constraints() -> None:
    source = 'interface I { slug: String @key @note("n") } node P implements I { a: I32 }'
    slug = properties(source)["slug"]
    assert not slug.declared_directly
    assert slug.satisfies == (("I", "slug"),)
    assert slug.annotations == (Annotation("key"), Annotation("note", "n"))
    assert slug.property_constraints == ("key",)
    assert node(source).constraints == (Key(("slug",)),)
    assert properties(source)["a"].satisfies == ()


def test_a_property_the_node_declares_too_has_only_the_annotations_of_the_node() -> None:
    source = "interface I { slug: String @key } node P implements I { slug: String @index }"
    slug = properties(source)["slug"]
    assert slug.declared_directly
    assert slug.satisfies == (("I", "slug"),)
    assert node(source).constraints == (Index(("slug",)),)


def test_a_property_satisfies_every_interface_that_declares_it() -> None:
    source = "interface B { x: I32 @index @note } interface A { x: I32 @note @index } node P implements B, A {}"
    assert properties(source)["x"].satisfies == (("A", "x"), ("B", "x"))


def test_interfaces_agree_on_a_property_whatever_it_was_called_before() -> None:
    source = 'interface A { x: I32 @rename_from("y") } interface B { x: I32 } node P implements A, B {}'
    assert properties(source)["x"].rename_from == "y"


def test_an_enum_equals_another_with_the_same_values_in_any_order() -> None:
    source = "interface I { x: enum(b, a) } node P implements I { x: enum(a, b) }"
    assert properties(source)["x"].type == PropType(Scalar.STRING, enum_values=("a", "b"))


def test_an_interface_is_data_of_its_own_and_stores_nothing() -> None:
    catalog = parse_catalog("interface I { x: I32 } node P implements I {}")
    assert catalog.interfaces["I"].properties == (Property("x", PropType(Scalar.I32)),)
    assert [table.name for table in catalog.table_types()] == ["P"]


def test_embed_names_its_source_and_perhaps_a_model() -> None:
    source = 'node P { t: String? u: Vector(2) @embed(t) v: Vector(2)? @embed("t", model="m") }'
    assert properties(source)["u"].embed_source == EmbedSource("t", None)
    assert properties(source)["v"].embed_source == EmbedSource("t", "m")


def test_an_interface_may_leave_the_source_of_embed_to_its_nodes() -> None:
    source = "interface I { v: Vector(2) @embed(t) } node P implements I { t: String }"
    assert properties(source)["v"].embed_source == EmbedSource("t", None)


def test_rename_hints_are_kept() -> None:
    source = 'node P @rename_from("Old") { a: String @rename_from("b") }'
    assert node(source).annotations == (Annotation("rename_from", "Old"),)
    assert properties(source)["a"].rename_from == "b"


def test_unknown_annotations_are_kept_with_keywords_sorted() -> None:
    source = 'node P @x @x @style(dark, z=1, a="b") {}'
    assert node(source).annotations == (
        Annotation("x"),
        Annotation("x"),
        Annotation("style", "dark", (("a", "b"), ("z", "1"))),
    )


def test_a_name_may_be_a_property_of_many_types() -> None:
    catalog = parse_catalog("node P { a: String } node Q { a: I32 } edge E: P -> Q { a: Bool }")
    assert catalog.edges["E"].properties[0].type == PropType(Scalar.BOOL)


def test_a_check_may_be_on_an_enum_and_a_range_on_anything_numeric() -> None:
    node('node P { e: enum(a, b) @check(e, "a|b") }')
    for scalar in ("I32", "I64", "U32", "U64", "F32", "F64?"):
        node(f"node P {{ x: {scalar} @range(x, 1..1) }}")


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTY_NAMES))
@pytest.mark.parametrize("declaration", ["node P", "interface I", "node P {} edge E: P -> P"])
def test_a_reserved_name_is_not_a_property_name(declaration: str, name: str) -> None:
    with pytest.raises(SchemaError, match=f"'{name}' is reserved"):
        parse_catalog(f"{declaration} {{ {name}: String }}")


BROKEN = {
    # names
    "type names differ in more than case": (
        "node Person {}\nnode Other {}\nedge PERSON: Other -> Other",
        (3, 6, "the name 'PERSON' is taken by node Person in line 1", None),
    ),
    "a type is declared once": ("node P {} node P {}", (1, 16, "taken by node P", None)),
    "interfaces share the namespace": ("interface P {} node P {}", (1, 21, "taken by interface P", None)),
    "a property is declared once": (
        "node P {\n  a: String\n  a: I32\n}",
        (3, 3, "node P has two properties named 'a'", None),
    ),
    "also on an edge": ("node P {} edge E: P -> P { a: I32 a: I32 }", (1, 35, "edge E has two properties", None)),
    "an endpoint exists": (
        "node Person {}\nedge E: Person -> Persn",
        (2, 19, "unknown node 'Persn'", "Did you mean 'Person'?"),
    ),
    "the first endpoint too": ("edge E: Zebra -> Zebra", (1, 9, "unknown node 'Zebra'", None)),
    "an endpoint is a node": (
        "interface I {} node P {} edge E: P -> I",
        (1, 39, "'I' is of kind interface, not node", None),
    ),
    # interfaces
    "an interface exists": (
        "interface Named {} node P implements Namd {}",
        (1, 38, "unknown interface 'Namd'", "Did you mean 'Named'?"),
    ),
    "an interface is an interface": (
        "node Q {} node P implements Q {}",
        (1, 29, "'Q' is of kind node, not interface", None),
    ),
    "a node's type is the interface's": (
        "interface I { x: I32 } node P implements I { x: I32? }",
        (1, 49, "'x' of node P is I32?, but interface I declares I32", None),
    ),
    "interfaces agree on types": (
        "interface A { x: I32 } interface B { x: I64 } node P implements A, B {}",
        (1, 68, "interfaces A and B declare 'x' with different types: I32 and I64", None),
    ),
    "interfaces agree on annotations": (
        "interface A { x: I32 @index } interface B { x: I32 } node P implements A, B {}",
        (1, 75, "interfaces A and B declare 'x' with different annotations", "Declare 'x' in node P"),
    ),
    # types
    "a vector has a size": ("node P { v: Vector(0) }", (1, 13, "from 1 to 2147483647, not 0", None)),
    "a vector's size fits Arrow": ("node P { v: Vector(2147483648) }", (1, 13, "not 2147483648", None)),
    "no list of blobs": ("node P { a: [Blob]? }", (1, 13, "a list of Blob is not supported", None)),
    "no list of vectors": ("node P { a: [Vector(3)] }", (1, 13, "a list of Vector is not supported", None)),
    "no list of enums": ("node P { a: [enum(a)] }", (1, 13, "a list of enum is not supported", None)),
    "enum values differ": ("node P { a: enum(x, y, x) }", (1, 24, "the enum has the value 'x' twice", None)),
    # key
    "key members are required": (
        "node P {\n  a: String? @key\n}",
        (2, 14, "'a' of node P cannot have @key: it is nullable", None),
    ),
    "key members are no lists": ("node P { a: [I32] @key }", (1, 19, "it is a list", None)),
    "key members are no vectors": ("node P { a: Vector(2) @key }", (1, 23, "it is a Vector", None)),
    "key members are no blobs": ("node P { a: Blob @key(a) }", (1, 23, "it is a Blob", None)),
    "key members exist": (
        "node P { name: String @key(nam) }",
        (1, 28, "@key names 'nam', which node P does not have", "Did you mean 'name'?"),
    ),
    "there is one key": (
        "node P {\n  b: String @key\n  a: String @key\n}",
        (3, 13, "node P has more than one @key", "Write one in its place: @key(b, a)."),
    ),
    "one key, property and body": (
        "node P { a: String @key @key(a) }",
        (1, 25, "node P has more than one @key", "@key(a)"),
    ),
    "one key, inherited and own": (
        "interface I { a: I32 @key } node P implements I { b: I32 @key }",
        (1, 22, "node P has more than one @key", "@key(b, a)"),
    ),
    "an interface's key obeys too": ("interface I { a: I32? @key }", (1, 23, "'a' of interface I cannot", None)),
    "an edge has no key": ("node P {} edge E: P -> P { a: I32 @key }", (1, 35, "@key is for nodes; edge E", None)),
    "an edge has no key in its body": ("node P {} edge E: P -> P { @key(src) }", (1, 28, "@key is for nodes", None)),
    # unique and index
    "unique is no blob": ("node P { a: Blob @unique }", (1, 18, "cannot have @unique: it is a Blob", None)),
    "unique names exist": ("node P { a: I32 @unique(a, b) }", (1, 28, "@unique names 'b'", None)),
    "a node has no ends": ("node P { a: I32 @unique(src) }", (1, 25, "@unique names 'src'", None)),
    "index is no blob": ("node P { a: Blob? @index }", (1, 19, "cannot have @index: it is a Blob", None)),
    "index names exist": (
        "node P {} edge E: P -> P { since: Date @index(sinse) }",
        (1, 47, "@index names 'sinse', which edge E does not have", "Did you mean 'since'?"),
    ),
    # range
    "range is for numbers": (
        "node P { a: String @range(a, 0..) }",
        (1, 27, "@range is for numbers; 'a' of node P is String", None),
    ),
    "range is not for lists": ("node P { a: [I32] @range(a, 0..) }", (1, 26, "'a' of node P is [I32]", None)),
    "range has a bound": ("node P { a: I32 @range(a, ..) }", (1, 17, "@range needs at least one bound", None)),
    "range goes up": ("node P { a: I32 @range(a, 2..1.5) }", (1, 17, "2 is more than 1.5", None)),
    "range names exist": ("node P { age: I32 @range(agge, 0..) }", (1, 26, "@range names 'agge'", "'age'")),
    "an edge has no range": ("node P {} edge E: P -> P { a: I32 @range(a, 0..) }", (1, 35, "for nodes", None)),
    # check
    "check is for strings": (
        'node P { a: I32 @check(a, "x") }',
        (1, 24, "@check is for a String; 'a' of node P is I32", None),
    ),
    "check is not for lists": ('node P { a: [String] @check(a, "x") }', (1, 29, "is [String]", None)),
    "a pattern compiles": ('node P { a: String @check(a, "(") }', (1, 30, "@check has a bad pattern", None)),
    "check names exist": ('node P { a: String @check(b, "x") }', (1, 27, "@check names 'b'", None)),
    "an edge has no check": ('node P {} edge E: P -> P { a: String @check(a, "") }', (1, 38, "for nodes", None)),
    # card
    "card goes up": ("node P {} edge E: P -> P @card(2..1)", (1, 26, "2 is more than 1", None)),
    "card fits": ("node P {} edge E: P -> P @card(4294967296..)", (1, 26, "4294967295 at most", None)),
    # embed
    "embed is for vectors": (
        "node P { t: String u: String @embed(t) }",
        (1, 30, "@embed is for a Vector; 'u' of node P is String", None),
    ),
    "embed names its source": (
        "node P { text: String v: Vector(2) @embed(txt) }",
        (1, 36, "@embed names 'txt', which node P does not have", "Did you mean 'text'?"),
    ),
    "an inherited embed too": (
        "interface I { v: Vector(2) @embed(t) } node P implements I {}",
        (1, 28, "@embed names 't', which node P does not have", None),
    ),
    "embed's source is a string": ("node P { t: I32 v: Vector(2) @embed(t) }", (1, 30, "'t' is I32", None)),
    "embed's source is no list": ("node P { t: [String] v: Vector(2) @embed(t) }", (1, 35, "'t' is [String]", None)),
    "embed needs a source": (
        "node P { v: Vector(2) @embed }",
        (1, 23, "@embed needs the property it is computed from", '@embed("...")'),
    ),
    "embed knows one keyword": (
        'node P { t: String v: Vector(2) @embed(t, modle="m") }',
        (1, 43, "@embed takes no 'modle='", "Did you mean 'model'?"),
    ),
    "an edge embeds nothing": (
        "node P {} edge E: P -> P { t: String v: Vector(2) @embed(t) }",
        (1, 51, "@embed is for nodes", None),
    ),
    # other annotations
    "rename_from needs a name": ("node P @rename_from {}", (1, 8, "@rename_from needs the old name", "Write")),
    "rename_from needs a text": ('node P { a: I32 @rename_from(" ") }', (1, 17, "@rename_from needs", "Write")),
    "rename_from has no keywords": ('node P @rename_from("O", x=1) {}', (1, 26, "takes no 'x='", None)),
    "description needs a text": ("node P @description {}", (1, 8, "@description needs a text", "Write")),
    "instruction needs a text": ("node P {} edge E: P -> P @instruction", (1, 26, "@instruction needs", "Write")),
    "once is enough": (
        "node P { a: I32 @index @index }",
        (1, 24, "property 'a' of node P has @index twice", None),
    ),
    "once on a type": ('node P @description("a") @description("b") {}', (1, 26, "node P has @description twice", None)),
    "a keyword is given once": ("node P @x(a, k=1, k=2) {}", (1, 19, "@x has 'k=' twice", None)),
    "key is not for a type": ("node P @key {}", (1, 8, "@key belongs to a property, not to node P itself", None)),
    "embed is not for a type": ("node P {} edge E: P -> P @embed(a)", (1, 26, "@embed belongs to a property", None)),
    "range needs arguments": ("node P { a: I32 @range }", (1, 17, "@range needs arguments", "@range(age, 0..150)")),
    "card needs arguments": ("node P {} edge E: P -> P @card", (1, 26, "@card needs arguments", "@card(0..1)")),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_refused_with_its_place_and_a_way_out(rule: str) -> None:
    source, (line, column, message, hint) = BROKEN[rule]
    with pytest.raises(SchemaError) as caught:
        parse_catalog(source)
    error = caught.value
    first, shown, carets = error.message.split("\n")
    assert error.code == "OG3002"
    assert (error.details["line"], error.details["column"]) == (line, column)
    assert first.startswith(f"line {line}, column {column}: ")
    assert message in first
    assert shown == source.split("\n")[line - 1]
    assert carets == " " * (column - 1) + "^" * len(error.details["text"])
    assert (hint in (error.hint or "")) if hint else error.hint is None


NAMES = st.from_regex(r"[a-z_][A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda name: name not in RESERVED_PROPERTY_NAMES
)
TYPE_NAMES = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,6}", fullmatch=True)
SCALARS = st.builds(PropType, st.sampled_from(Scalar), nullable=st.booleans())
TYPES = st.one_of(
    SCALARS,
    SCALARS.filter(lambda scalar: scalar.scalar is not Scalar.BLOB).map(lambda scalar: replace(scalar, list=True)),
    st.builds(PropType, st.builds(Vector, st.integers(1, 2**31 - 1)), nullable=st.booleans()),
    st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), min_size=1, max_size=4, unique=True).map(
        lambda values: PropType(Scalar.STRING, enum_values=tuple(sorted(values)))
    ),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ANNOTATIONS = st.lists(
    st.builds(Annotation, NAMES.map("x_{}".format), st.none() | TEXTS), max_size=2, unique_by=lambda item: item.name
).map(tuple)
PROPERTIES = st.lists(
    st.builds(Property, NAMES, TYPES, ANNOTATIONS), max_size=4, unique_by=lambda property_: property_.name
).map(lambda found: tuple(sorted(found, key=lambda property_: property_.name)))
NODES = st.lists(
    st.builds(NodeType, TYPE_NAMES, PROPERTIES, ANNOTATIONS), max_size=3, unique_by=lambda found: found.name.lower()
)


def written(node: NodeType, gap: str) -> str:
    body = (f"{item.name}:{gap}{item.type} {_annotations(item.annotations)}" for item in reversed(node.properties))
    return f"node {node.name}{gap} {_annotations(node.annotations)} {{ {gap.join(body)} }}"


def _annotations(annotations: tuple[Annotation, ...]) -> str:
    return " ".join(
        f"@{item.name}" + ("" if item.value is None else f"({_quoted(item.value)})") for item in annotations
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@settings(max_examples=60, deadline=None)
@given(NODES, st.sampled_from([" ", "\n", "\t", " /* node { */ ", " // }\n"]))
def test_a_catalog_written_as_text_reads_back_equal(nodes: list[NodeType], gap: str) -> None:
    catalog = parse_catalog("\n".join(written(item, gap) for item in nodes))
    assert catalog.nodes == {item.name: item for item in nodes}
    assert list(catalog.nodes) == sorted(catalog.nodes)
