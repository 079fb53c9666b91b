"""The canonical shape: byte for byte what OmniGraph hashes, and the same for texts that mean the same."""

from __future__ import annotations

import hashlib
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omnigraph_engine.errors import SchemaContractBroken
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.json_text import compact_json, load_object, pretty_json
from omnigraph_engine.schema.shape import shape_hash, shape_json
from schema_sources import EVERYTHING, EXAMPLE, GOLDEN, SchemaSketch, schemas


def test_the_example_has_the_golden_shape_and_hash() -> None:
    golden = (GOLDEN / "shape.json").read_text(encoding="utf-8")
    catalog = parse_catalog(EXAMPLE)
    assert shape_json(catalog) == golden
    assert shape_hash(catalog) == "sha256:" + hashlib.sha256(golden.encode()).hexdigest()
    assert shape_hash(catalog) == "sha256:cb13f01bfc204519ef5bc4453f934ad570c95eff4614b217610e25e3f5981dd0"


def test_every_construct_is_spelled_as_the_format_says() -> None:
    shape = json.loads(shape_json(parse_catalog(EVERYTHING)))
    document, wrote = shape["nodes"][1], shape["edges"][1]
    properties = {prop["name"]: prop for prop in document["properties"]}

    assert [list(entry) for entry in (shape["interfaces"][0], document, wrote)] == [
        ["name", "properties"],
        ["name", "annotations", "implements", "properties", "constraints"],
        ["name", "from_type", "to_type", "cardinality", "annotations", "properties", "constraints"],
    ]
    assert [interface["name"] for interface in shape["interfaces"]] == ["Dated", "Named"]
    assert document["implements"] == ["Dated", "Named"]
    assert document["annotations"] == [
        {"name": "description", "value": "A document"},
        {"name": "owner", "value": "search", "kwargs": {"team": "a"}},
    ]
    assert document["constraints"] == [
        {"Check": {"property": "name", "pattern": '^[A-Z]"é\\d+'}},
        {"Index": ["kind"]},
        {"Key": ["body", "name"]},
        {"Range": {"property": "pages", "min": {"Integer": 1}, "max": None}},
        {"Range": {"property": "score", "min": {"Float": -0.5}, "max": {"Integer": 2}}},
        {"Unique": ["kind", "pages"]},
        {"Unique": ["name"]},
    ]
    assert list(properties) == sorted(properties)
    assert properties["kind"]["prop_type"] == {
        "scalar": "String",
        "nullable": True,
        "list": False,
        "enum_values": ["memo", "note", "report"],
    }
    assert properties["vector"]["prop_type"]["scalar"] == {"Vector": 8}
    assert properties["vector"]["embed_source"] == {"property_name": "body", "model": "m1"}
    assert properties["vector"]["annotations"] == []
    assert properties["tags"]["prop_type"]["list"] is True
    assert properties["name"]["property_constraints"] == ["unique"]
    assert properties["name"]["declared_directly"] is True
    assert properties["label"]["declared_directly"] is False
    assert properties["name"]["satisfies_interface_properties"] == [{"owner_name": "Named", "property_name": "name"}]
    assert wrote["cardinality"] == {"min": 1, "max": 3}
    assert wrote["constraints"] == [{"Index": ["dst"]}, {"Unique": ["dst", "src"]}]


def test_annotations_are_sorted_by_their_text_and_each_stands_once() -> None:
    written = parse_catalog('node P { a: String @z @b("2") @b("10") @z @b("2", k="v") }')
    (prop,) = json.loads(shape_json(written))["nodes"][0]["properties"]
    assert prop["annotations"] == [
        {"name": "b", "value": "10"},
        {"name": "b", "value": "2", "kwargs": {"k": "v"}},  # a comma sorts before the closing brace
        {"name": "b", "value": "2"},
        {"name": "z", "value": None},
    ]


def test_rename_hints_and_comments_do_not_show() -> None:
    plain = "node P { a: String }"
    hinted = '/* note */ node P @rename_from("Q") { a: String @rename_from("b") } // note'
    assert shape_json(parse_catalog(hinted)) == shape_json(parse_catalog(plain))


@settings(max_examples=30)
@given(schemas(), st.randoms())
def test_the_order_of_declarations_does_not_show(schema: SchemaSketch, randomness: random.Random) -> None:
    shuffled = SchemaSketch(tuple(randomness.sample(schema.types, len(schema.types))))
    assert shape_json(parse_catalog(shuffled.source())) == shape_json(parse_catalog(schema.source()))


@pytest.mark.parametrize(
    ("change", "into"),
    [
        ("age: I32?", "age: I64?"),
        ("age: I32?", "age: I32"),
        ("age: I32?", 'age: I32? @description("in years")'),
        ("age: I32?", "age: I32? @range(age, 0..)"),
        ("edge WorksAt: Person -> Company", "edge WorksAt: Company -> Person"),
        ("edge WorksAt: Person -> Company", "edge WorksAt: Person -> Company @card(0..1)"),
        ("since", "until"),
    ],
)
def test_whatever_changes_the_meaning_changes_the_hash(change: str, into: str) -> None:
    changed = EXAMPLE.replace(change, into)
    assert changed != EXAMPLE
    assert shape_hash(parse_catalog(changed)) != shape_hash(parse_catalog(EXAMPLE))


# -- JSON as serde_json writes it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e16"),
        (1.5e16, "1.5e16"),
        (1e21, "1e21"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
        (1e-4, "0.0001"),
        (1e-5, "0.00001"),
        (-1.25e-5, "-0.0000125"),
        (1e-6, "1e-6"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
    ],
)
def test_floats_are_spelled_as_serde_json_does(value: float, text: str) -> None:
    assert compact_json(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_reads_back_as_itself(value: float) -> None:
    back = json.loads(compact_json(value))
    assert isinstance(back, float)
    assert (back, math.copysign(1, back)) == (value, math.copysign(1, value))


def test_a_float_that_json_cannot_spell_is_refused() -> None:
    with pytest.raises(ValueError, match="inf"):
        compact_json(math.inf)


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=30)
@given(plain_json)
def test_without_floats_compact_text_is_that_of_the_json_module(value: object) -> None:
    assert compact_json(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@settings(max_examples=30)
@given(plain_json)
def test_pretty_text_reads_back_and_ends_without_a_newline(value: object) -> None:
    assert json.loads(pretty_json(value)) == value
    assert not pretty_json(value).endswith("\n")


def test_pretty_text_has_two_spaces_and_keeps_empty_containers_on_one_line() -> None:
    assert pretty_json({"a": [], "b": {}, "c": [1, {"d": "é"}]}) == (
        '{\n  "a": [],\n  "b": {},\n  "c": [\n    1,\n    {\n      "d": "é"\n    }\n  ]\n}'
    )


def test_a_member_given_twice_is_refused() -> None:
    with pytest.raises(SchemaContractBroken, match=r"x\.json.*'a' is given twice"):
        load_object("x.json", '{"b": {"a": 1, "a": 2}}')
