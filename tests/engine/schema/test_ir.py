"""The stored schema: written byte for byte as the format says, read without trusting any of it."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omnigraph_engine.errors import SchemaContractBroken
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import AcceptedSchema, accept_initial, evolve
from omnigraph_engine.schema.ir import ir_document, ir_hash, ir_text, parse_ir
from omnigraph_engine.schema.shape import shape_json
from schema_sources import DOMAIN, EVERYTHING, EXAMPLE, GOLDEN, INDUSTRY_INTEL, SchemaSketch, schemas

Path = tuple[str | int, ...]


def accept(source: str) -> AcceptedSchema:
    return accept_initial(parse_catalog(source), DOMAIN)


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


EVERYTHING_DOCUMENT: dict[str, Any] = json.loads(ir_text(accept(EVERYTHING)))


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def with_value(path: Path, value: object) -> str:
    """The stored text of EVERYTHING with one value put in the place of another."""
    document = copy.deepcopy(EVERYTHING_DOCUMENT)
    at(document, path[:-1])[path[-1]] = value
    return json.dumps(document)


def place(kind: str, owner: str, prop: str | None = None) -> Path:
    """Where a type or a property of EVERYTHING stands in its document."""
    types = [entry["name"] for entry in EVERYTHING_DOCUMENT[kind]]
    path: Path = (kind, types.index(owner))
    if prop is None:
        return path
    names = [entry["name"] for entry in at(EVERYTHING_DOCUMENT, path)["properties"]]
    return (*path, "properties", names.index(prop))


def constraint(kind: str, owner: str, rule: str) -> Path:
    path = place(kind, owner)
    kinds = [entry["kind"] for entry in at(EVERYTHING_DOCUMENT, path)["constraints"]]
    return (*path, "constraints", kinds.index(rule))


def identity(path: Path) -> int:
    found = at(EVERYTHING_DOCUMENT, path)
    assert isinstance(found, int)
    return found


DOCUMENT, AUTHOR, WROTE = place("nodes", "Document"), place("nodes", "Author"), place("edges", "Wrote")
NAMED, DATED = place("interfaces", "Named"), place("interfaces", "Dated")


# -- the golden files, checked without the code under test --------------------------------------------------


def test_the_golden_document_has_the_identities_of_the_worked_example() -> None:
    document = json.loads(golden("_schema.ir.json"))
    tables = [*document["nodes"], *document["edges"]]
    assert document["next_identity_id"] == 13
    assert [(table["name"], table["type_id"], table["table_incarnation_id"]) for table in tables] == [
        ("Company", 1, 9),
        ("Person", 2, 10),
        ("Knows", 3, 11),
        ("WorksAt", 4, 12),
    ]
    assert [(table["name"], prop["name"], prop["property_id"]) for table in tables for prop in table["properties"]] == [
        ("Company", "name", 5),
        ("Person", "age", 6),
        ("Person", "name", 7),
        ("Knows", "since", 8),
    ]
    assert [(edge["from_type"], edge["to_type"]) for edge in document["edges"]] == [
        ({"type_id": 2, "type_name": "Person"}, {"type_id": 2, "type_name": "Person"}),
        ({"type_id": 2, "type_name": "Person"}, {"type_id": 1, "type_name": "Company"}),
    ]


def test_the_golden_state_pins_the_compact_hashes_of_the_other_golden_files() -> None:
    compact_ir = json.dumps(json.loads(golden("_schema.ir.json")), separators=(",", ":"), ensure_ascii=False)
    state = {
        "format_version": 2,
        "schema_shape_hash": "sha256:" + hashlib.sha256(golden("shape.json").encode()).hexdigest(),
        "schema_ir_hash": "sha256:" + hashlib.sha256(compact_ir.encode()).hexdigest(),
        "schema_identity_version": 2,
        "schema_identity_domain": DOMAIN,
    }
    assert golden("__schema_state.json") == json.dumps(state, indent=2)


def test_the_golden_shape_is_compact_and_says_what_the_golden_document_says() -> None:
    shape, document = json.loads(golden("shape.json")), json.loads(golden("_schema.ir.json"))
    assert golden("shape.json") == json.dumps(shape, separators=(",", ":"), ensure_ascii=False)
    for kind in ("interfaces", "nodes", "edges"):
        assert [entry["name"] for entry in shape[kind]] == [entry["name"] for entry in document[kind]]
    for hashed, stored in zip(shape["nodes"] + shape["edges"], document["nodes"] + document["edges"], strict=True):
        for hashed_prop, stored_prop in zip(hashed["properties"], stored["properties"], strict=True):
            assert list(hashed_prop.items()) == [item for item in stored_prop.items() if item[0] != "property_id"]
    assert [node["constraints"] for node in shape["nodes"]] == [[{"Key": ["name"]}], [{"Key": ["name"]}]]


# -- writing ------------------------------------------------------------------------------------------------


def test_the_example_is_written_as_the_golden_file_byte_for_byte() -> None:
    assert ir_text(accept(EXAMPLE)) == golden("_schema.ir.json")


def test_the_file_is_pretty_printed_with_two_spaces_and_no_newline_at_the_end() -> None:
    accepted = accept(EVERYTHING)
    assert ir_text(accepted) == json.dumps(ir_document(accepted), indent=2, ensure_ascii=False)


def test_the_hash_is_that_of_the_compact_text_and_not_of_the_file() -> None:
    accepted = accept(EVERYTHING)
    compact = json.dumps(json.loads(ir_text(accepted)), separators=(",", ":"), ensure_ascii=False)
    assert ir_hash(accepted) == "sha256:" + hashlib.sha256(compact.encode()).hexdigest()


PROPERTY_REF = ["owner_type_id", "owner_type_name", "property_id", "property_name"]


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ((), ["ir_version", "schema_identity_domain", "next_identity_id", "interfaces", "nodes", "edges"]),
        (NAMED, ["name", "type_id", "properties"]),
        (
            DOCUMENT,
            ["name", "type_id", "table_incarnation_id", "annotations", "implements", "properties", "constraints"],
        ),
        (
            WROTE,
            [
                "name",
                "type_id",
                "table_incarnation_id",
                "from_type",
                "to_type",
                "cardinality",
                "annotations",
                "properties",
                "constraints",
            ],
        ),
        (
            place("nodes", "Document", "vector"),
            [
                "name",
                "property_id",
                "prop_type",
                "annotations",
                "property_constraints",
                "embed_source",
                "declared_directly",
                "satisfies_interface_properties",
            ],
        ),
        ((*place("nodes", "Document", "vector"), "prop_type"), ["scalar", "nullable", "list", "enum_values"]),
        ((*place("nodes", "Document", "vector"), "embed_source"), ["source", "model"]),
        ((*place("nodes", "Document", "vector"), "embed_source", "source"), PROPERTY_REF),
        ((*place("nodes", "Document", "name"), "satisfies_interface_properties", 0), PROPERTY_REF),
        ((*DOCUMENT, "implements", 0), ["type_id", "type_name"]),
        ((*DOCUMENT, "annotations", 0), ["name", "value"]),
        ((*DOCUMENT, "annotations", 1), ["name", "value", "kwargs"]),
        ((*WROTE, "from_type"), ["type_id", "type_name"]),
        ((*WROTE, "cardinality"), ["min", "max"]),
        (constraint("nodes", "Document", "key"), ["kind", "fields"]),
        ((*constraint("nodes", "Document", "key"), "fields", 0), ["kind", *PROPERTY_REF]),
        (constraint("nodes", "Document", "range"), ["kind", "field", "min", "max"]),
        (constraint("nodes", "Document", "check"), ["kind", "field", "pattern"]),
        (
            (*constraint("edges", "Wrote", "unique"), "fields", 0),
            ["kind", "stable_table_id", "table_type_name", "table_incarnation_id", "role"],
        ),
    ],
)
def test_keys_stand_in_the_order_of_the_format(path: Path, keys: list[str]) -> None:
    assert list(at(EVERYTHING_DOCUMENT, path)) == keys


def test_references_are_spelled_with_the_identities_they_mean() -> None:
    document, wrote = at(EVERYTHING_DOCUMENT, DOCUMENT), at(EVERYTHING_DOCUMENT, WROTE)
    properties = {prop["name"]: prop for prop in document["properties"]}
    body = {
        "owner_type_id": document["type_id"],
        "owner_type_name": "Document",
        "property_id": properties["body"]["property_id"],
        "property_name": "body",
    }
    key = at(EVERYTHING_DOCUMENT, constraint("nodes", "Document", "key"))
    assert properties["vector"]["embed_source"] == {"source": body, "model": "m1"}
    assert key["fields"][0] == {"kind": "property", **body}
    assert at(EVERYTHING_DOCUMENT, constraint("edges", "Wrote", "unique"))["fields"][1] == {
        "kind": "system",
        "stable_table_id": wrote["type_id"],
        "table_type_name": "Wrote",
        "table_incarnation_id": wrote["table_incarnation_id"],
        "role": "src",
    }
    assert wrote["from_type"] == {"type_id": identity((*AUTHOR, "type_id")), "type_name": "Author"}


def test_constraints_are_tagged_inside_with_typed_bounds() -> None:
    constraints = at(EVERYTHING_DOCUMENT, (*DOCUMENT, "constraints"))
    assert [rule["kind"] for rule in constraints] == ["check", "index", "key", "range", "range", "unique", "unique"]
    assert [(rule["min"], rule["max"]) for rule in constraints if rule["kind"] == "range"] == [
        ({"Integer": 1}, None),
        ({"Float": -0.5}, {"Integer": 2}),
    ]
    assert constraints[0]["pattern"] == '^[A-Z]"é\\d+'


def test_types_stand_by_name_and_references_to_interfaces_by_identity() -> None:
    first = accept("interface Z { name: String } node N implements Z {} node Y {}")
    grown = evolve(
        first,
        parse_catalog(
            "interface A { name: String } interface Z { name: String } node N implements A, Z {} node Y {} node B {}"
        ),
    )
    document = ir_document(grown)
    assert [interface["name"] for interface in document["interfaces"]] == ["A", "Z"]
    assert [node["name"] for node in document["nodes"]] == ["B", "N", "Y"]
    node = document["nodes"][1]
    assert [reference["type_name"] for reference in node["implements"]] == ["Z", "A"]
    assert [reference["owner_type_name"] for reference in node["properties"][0]["satisfies_interface_properties"]] == [
        "Z",
        "A",
    ]
    assert parse_ir(ir_text(grown)).catalog.nodes["N"].implements == ("A", "Z")


def test_rename_hints_are_not_stored() -> None:
    hinted = accept('node P @rename_from("Q") { a: String @rename_from("b") }')
    assert ir_text(hinted) == ir_text(accept("node P { a: String }"))


# -- reading ------------------------------------------------------------------------------------------------


def assert_reads_back(accepted: AcceptedSchema) -> None:
    text = ir_text(accepted)
    back = parse_ir(text)
    assert ir_text(back) == text
    assert shape_json(back.catalog) == shape_json(accepted.catalog)
    assert (back.domain, back.next_identity_id) == (accepted.domain, accepted.next_identity_id)
    assert back.type_ids == accepted.type_ids
    assert back.property_ids == accepted.property_ids
    assert back.incarnation_ids == accepted.incarnation_ids


@pytest.mark.parametrize(
    "source",
    ["", EXAMPLE, EVERYTHING, INDUSTRY_INTEL.read_text(encoding="utf-8")],
    ids=["empty", "example", "all", "real"],
)
def test_what_was_written_reads_back_equal(source: str) -> None:
    assert_reads_back(accept(source))


def test_a_schema_without_annotations_reads_back_as_the_same_value() -> None:
    accepted = accept(EXAMPLE.replace(" @key", ""))
    assert parse_ir(ir_text(accepted)) == accepted


@settings(max_examples=25)
@given(schemas(), schemas())
def test_every_schema_and_every_evolution_of_it_reads_back_equal(first: SchemaSketch, second: SchemaSketch) -> None:
    accepted = accept(first.source())
    assert_reads_back(accepted)
    assert_reads_back(evolve(accepted, parse_catalog(second.source())))
    assert_reads_back(evolve(accepted, parse_catalog(first.renamed_source())))


def test_the_layout_of_the_file_does_not_count() -> None:
    accepted = accept(EVERYTHING)
    assert parse_ir(json.dumps(EVERYTHING_DOCUMENT)) == parse_ir(ir_text(accepted))


@pytest.mark.parametrize("version", [None, 0, 1, 3, "2", 2.0, True])
def test_an_unknown_version_is_refused(version: object) -> None:
    with pytest.raises(SchemaContractBroken, match=r"_schema\.ir\.json.* ir_version "):
        parse_ir(with_value(("ir_version",), version))


def test_an_older_version_is_refused_with_the_way_out() -> None:
    with pytest.raises(SchemaContractBroken) as refused:
        parse_ir(with_value(("ir_version",), 1))
    assert refused.value.details == {"found": 1, "expected": 2}
    assert "export and load" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "NaN", '{"ir_version": 2, "ir_version": 2}', "[" * 100_000, "\ufeff{}"],
    ids=["empty", "cut off", "a list", "null", "no JSON number", "a member twice", "nested too deep", "a mark first"],
)
def test_what_is_not_one_json_object_is_refused(text: str) -> None:
    with pytest.raises(SchemaContractBroken, match=r"^OG3003 _schema\.ir\.json is not"):
        parse_ir(text)


def test_a_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(SchemaContractBroken, match=r"_schema\.ir\.json"):
        parse_ir(with_value((*DOCUMENT, "annotations", 0, "value"), "\ud800"))


@pytest.mark.parametrize("domain", ["", DOMAIN.lower(), DOMAIN[:-1], 7, None])
def test_a_domain_that_is_no_canonical_ulid_is_refused(domain: object) -> None:
    with pytest.raises(SchemaContractBroken, match="schema_identity_domain is"):
        parse_ir(with_value(("schema_identity_domain",), domain))


@pytest.mark.parametrize(
    "path",
    [
        ("interfaces",),
        ("nodes",),
        ("edges",),
        (*NAMED, "properties"),
        (*DOCUMENT, "properties"),
        (*DOCUMENT, "annotations"),
        (*DOCUMENT, "implements"),
        (*DOCUMENT, "constraints"),
        (*WROTE, "constraints"),
        (*constraint("nodes", "Document", "key"), "fields"),
        (*constraint("edges", "Wrote", "unique"), "fields"),
        (*place("nodes", "Document", "kind"), "prop_type", "enum_values"),
        (*place("nodes", "Document", "label"), "satisfies_interface_properties"),
        (*place("edges", "Cites", "weight"), "property_constraints"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_a_list_out_of_order_is_refused_and_so_is_one_with_an_entry_twice(path: Path) -> None:
    entries = at(EVERYTHING_DOCUMENT, path)
    assert len(entries) > 1
    for wrong in (entries[::-1], [*entries, entries[-1]]):
        with pytest.raises(SchemaContractBroken, match=r"^OG3003 _schema\.ir\.json"):
            parse_ir(with_value(path, wrong))


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ((*DOCUMENT, "type_id"), (*NAMED, "type_id")),
        ((*WROTE, "type_id"), (*DOCUMENT, "type_id")),
        ((*DOCUMENT, "table_incarnation_id"), (*DOCUMENT, "type_id")),
        ((*WROTE, "table_incarnation_id"), (*DOCUMENT, "table_incarnation_id")),
        ((*place("nodes", "Document", "pages"), "property_id"), (*DOCUMENT, "type_id")),
        ((*place("nodes", "Document", "pages"), "property_id"), (*DOCUMENT, "table_incarnation_id")),
        (
            (*place("nodes", "Document", "pages"), "property_id"),
            (*place("nodes", "Document", "body"), "property_id"),
        ),
        (
            (*place("nodes", "Document", "label"), "property_id"),
            (*place("interfaces", "Named", "label"), "property_id"),
        ),
    ],
)
def test_an_identity_held_twice_is_refused(path: Path, other: Path) -> None:
    with pytest.raises(SchemaContractBroken, match="has that identity"):
        parse_ir(with_value(path, identity(other)))


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, "1", None])
def test_an_identity_that_is_no_positive_whole_number_is_refused(wrong: object) -> None:
    with pytest.raises(SchemaContractBroken, match=r"type_id is .*, not a whole number"):
        parse_ir(with_value((*DATED, "type_id"), wrong))


def test_a_counter_that_is_not_ahead_of_every_identity_is_refused() -> None:
    counter = identity(("next_identity_id",))
    for wrong in (counter - 1, 1):
        with pytest.raises(SchemaContractBroken, match=f"next_identity_id is {wrong}, not greater than {counter - 1}"):
            parse_ir(with_value(("next_identity_id",), wrong))
    assert parse_ir(with_value(("next_identity_id",), counter + 5)).next_identity_id == counter + 5


def test_two_types_whose_names_differ_only_in_case_are_refused() -> None:
    with pytest.raises(SchemaContractBroken, match="another type has it"):
        parse_ir(with_value((*place("edges", "Wrote"), "name"), "DOCUMENT"))


@pytest.mark.parametrize(
    ("path", "wrong", "message"),
    [
        ((*WROTE, "from_type", "type_name"), "Nobody", "'Wrote' ends at 'Nobody', which is not a node type"),
        ((*WROTE, "to_type", "type_name"), "Named", "'Wrote' ends at 'Named', which is not a node type"),
        ((*WROTE, "from_type", "type_id"), 999, r"from_type\.type_id is 999"),
        ((*WROTE, "from_type", "type_id"), identity((*DOCUMENT, "type_id")), r"from_type\.type_id is"),
        ((*AUTHOR, "implements", 0, "type_name"), "Nothing", "'Author' implements 'Nothing'"),
        ((*AUTHOR, "implements", 0, "type_name"), "Document", "'Author' implements 'Document'"),
        ((*AUTHOR, "implements", 0, "type_id"), 999, r"implements\[0\]\.type_id is 999"),
        (
            (*place("nodes", "Document", "vector"), "embed_source", "source", "property_name"),
            "gone",
            "refers to .*'gone'",
        ),
        (
            (*place("nodes", "Document", "vector"), "embed_source", "source", "owner_type_name"),
            "Author",
            "owner_type_name is 'Author'",
        ),
        (
            (*place("nodes", "Document", "vector"), "embed_source", "source", "property_id"),
            999,
            "property_id is 999",
        ),
        (
            (*constraint("nodes", "Document", "key"), "fields", 0, "property_name"),
            "gone",
            "refers to .*'gone'",
        ),
        ((*constraint("nodes", "Document", "key"), "fields", 0, "property_id"), 999, "property_id is 999"),
        ((*constraint("nodes", "Document", "range"), "field", "owner_type_id"), 999, "owner_type_id is 999"),
        (
            (*constraint("edges", "Wrote", "unique"), "fields", 0, "table_incarnation_id"),
            999,
            "table_incarnation_id is 999",
        ),
        ((*constraint("edges", "Wrote", "unique"), "fields", 0, "stable_table_id"), 999, "stable_table_id is 999"),
        ((*constraint("edges", "Wrote", "unique"), "fields", 0, "role"), "middle", "role is 'middle'"),
        (
            (*constraint("nodes", "Document", "check"), "field"),
            at(EVERYTHING_DOCUMENT, (*constraint("edges", "Wrote", "unique"), "fields", 0)),
            "role is 'dst', not a system column",
        ),
    ],
)
def test_a_reference_to_nothing_is_refused(path: Path, wrong: object, message: str) -> None:
    with pytest.raises(SchemaContractBroken, match=message):
        parse_ir(with_value(path, wrong))


@pytest.mark.parametrize(
    ("path", "wrong", "message"),
    [
        (
            (*place("nodes", "Document", "name"), "satisfies_interface_properties"),
            [],
            r"'Document' has no property that satisfies 'Named\.name'",
        ),
        ((*AUTHOR, "properties"), [], r"'Author' has no property that satisfies 'Named\.label'"),
        (
            (*place("nodes", "Document", "name"), "prop_type", "nullable"),
            True,
            r"'Document\.name' cannot satisfy 'Named\.name'",
        ),
        (
            (*place("nodes", "Document", "name"), "satisfies_interface_properties", 0, "property_name"),
            "label",
            r"'Document\.name' cannot satisfy 'Named\.label'",
        ),
        (
            (*place("nodes", "Document", "body"), "satisfies_interface_properties"),
            at(EVERYTHING_DOCUMENT, (*place("nodes", "Document", "name"), "satisfies_interface_properties")),
            r"cannot satisfy 'Named\.name'",
        ),
        ((*AUTHOR, "implements"), [], "'Author.label' cannot satisfy"),
        (
            (*place("nodes", "Document", "body"), "declared_directly"),
            False,
            r"'Document\.body' is said to come from an interface",
        ),
        ((*place("interfaces", "Named", "name"), "declared_directly"), False, r"'Named\.name' stands for"),
        ((*place("edges", "Wrote", "share"), "declared_directly"), False, r"'Wrote\.share' stands for"),
        (
            (*place("edges", "Wrote", "share"), "satisfies_interface_properties"),
            at(EVERYTHING_DOCUMENT, (*place("nodes", "Document", "name"), "satisfies_interface_properties")),
            r"'Wrote\.share' stands for",
        ),
    ],
)
def test_an_interface_that_is_not_satisfied_is_refused(path: Path, wrong: object, message: str) -> None:
    with pytest.raises(SchemaContractBroken, match=message):
        parse_ir(with_value(path, wrong))


@pytest.mark.parametrize("name", ["rename_from", "embed", "key", "unique", "index"])
def test_an_annotation_that_has_a_place_of_its_own_is_refused_among_the_others(name: str) -> None:
    with pytest.raises(SchemaContractBroken, match="annotations has 2 entries where 1 belong"):
        parse_ir(with_value((*DOCUMENT, "annotations", 0, "name"), name))


def test_an_unknown_member_is_refused() -> None:
    with pytest.raises(SchemaContractBroken, match=r"nodes\[0\] has the keys .*'colour'"):
        parse_ir(with_value((*AUTHOR, "colour"), "red"))


def every_path(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from every_path(child, (*path, key))


EVERY_PATH = list(every_path(EVERYTHING_DOCUMENT))


def assert_refused_or_read_as_written(text: str) -> None:
    try:
        accepted = parse_ir(text)
    except SchemaContractBroken:
        return
    assert ir_document(accepted) == json.loads(text)


def test_whatever_is_taken_out_is_refused_or_was_not_needed() -> None:
    for path in EVERY_PATH[::2]:  # every second one of hundreds, for the time it takes
        document = copy.deepcopy(EVERYTHING_DOCUMENT)
        del at(document, path[:-1])[path[-1]]
        assert_refused_or_read_as_written(json.dumps(document))


@settings(max_examples=100)
@given(
    st.sampled_from(EVERY_PATH),
    st.sampled_from([None, True, False, 0, -1, 3, 1.5, 2**70, "", "Document", "name", [], [1], {}, {"Vector": 0}]),
)
def test_whatever_is_put_in_is_refused_or_read_as_it_is_written(path: Path, value: object) -> None:
    assert_refused_or_read_as_written(with_value(path, value))
