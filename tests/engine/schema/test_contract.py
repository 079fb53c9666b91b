"""The three schema files: whole together, or refused with the name of the one that is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from omnigraph_engine.errors import SchemaContractBroken
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.contract import IR_FILE, SOURCE_FILE, STATE_FILE, SchemaContract, read_contract
from omnigraph_engine.schema.identity import accept_initial, evolve
from schema_sources import DOMAIN, EVERYTHING, EXAMPLE, GOLDEN, INDUSTRY_INTEL, SchemaSketch, schemas


def contract_of(source: str) -> SchemaContract:
    return SchemaContract(source, accept_initial(parse_catalog(source), DOMAIN))


def read(files: dict[str, str]) -> SchemaContract:
    return read_contract(files[SOURCE_FILE], files[IR_FILE], files[STATE_FILE])


def edited(name: str, text: str) -> dict[str, str]:
    """The files of the example, one of them with another text."""
    return {**contract_of(EXAMPLE).files(), name: text}


def edited_member(name: str, *path: str | int, value: object) -> dict[str, str]:
    document: Any = json.loads(contract_of(EXAMPLE).files()[name])
    place = document
    for step in path[:-1]:
        place = place[step]
    assert place[path[-1]] != value
    place[path[-1]] = value
    return edited(name, json.dumps(document, indent=2))


def test_the_example_is_written_as_the_golden_files_byte_for_byte() -> None:
    assert contract_of(EXAMPLE).files() == {
        name: (GOLDEN / name).read_bytes().decode() for name in ("_schema.pg", "_schema.ir.json", "__schema_state.json")
    }


@pytest.mark.parametrize(
    "source",
    ["", EXAMPLE, EVERYTHING, INDUSTRY_INTEL.read_text(encoding="utf-8")],
    ids=["empty", "example", "all", "real"],
)
def test_what_was_written_is_read_back_as_the_same_contract(source: str) -> None:
    contract = contract_of(source)
    assert read(contract.files()) == contract


@settings(max_examples=15)
@given(schemas(), schemas())
def test_every_evolution_is_read_back_as_the_same_contract(first: SchemaSketch, second: SchemaSketch) -> None:
    contract = contract_of(first.source())
    for source in (second.source(), first.renamed_source()):
        changed = SchemaContract(source, evolve(contract.accepted, parse_catalog(source)))
        assert read(changed.files()) == changed


# -- edits of the text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "/* ours */\n" + EXAMPLE + "\n// the end",
        " ".join(line for line in EXAMPLE.splitlines() if not line.startswith("//")),
        EXAMPLE.replace("\n", "\r\n"),
        "edge WorksAt: Person -> Company\n" + EXAMPLE.replace("edge WorksAt: Person -> Company", ""),
        EXAMPLE.replace("name: String @key\n    age: I32?", "age: I32?\n    name: String @key"),
        EXAMPLE.replace("node Person {", 'node Person @rename_from("Human") {'),
        EXAMPLE.replace("age: I32?", 'age: I32? @rename_from("years")'),
    ],
    ids=["comments", "whitespace", "line ends", "types moved", "properties moved", "type hint", "property hint"],
)
def test_an_edit_that_keeps_the_meaning_is_accepted_and_the_text_kept_as_it_is(text: str) -> None:
    original = contract_of(EXAMPLE)
    assert text != EXAMPLE
    contract = read(edited(SOURCE_FILE, text))
    assert contract.source == text
    assert contract.accepted.catalog == parse_catalog(text)
    assert contract.accepted.type_ids == original.accepted.type_ids
    assert contract.accepted.property_ids == original.accepted.property_ids
    assert contract.accepted.incarnation_ids == original.accepted.incarnation_ids


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("age: I32?", "age: I64?"),
        ("age: I32?", "age: I32"),
        ("age: I32?", "age: I32? @index"),
        ("age: I32?", 'age: I32? @description("in years")'),
        ("age: I32?", ""),
        ("name: String @key\n    age", "name: String\n    age"),
        ("since", "until"),
        ("edge WorksAt: Person -> Company", "edge WorksAt: Person -> Company @card(0..1)"),
        ("edge WorksAt: Person -> Company", ""),
        ("node Company", "node Firm {} node Company"),
    ],
)
def test_an_edit_that_changes_the_meaning_is_refused_and_the_text_is_named(before: str, after: str) -> None:
    text = EXAMPLE.replace(before, after)
    assert text != EXAMPLE
    with pytest.raises(SchemaContractBroken, match=r"^OG3003 _schema\.pg was edited by hand") as refused:
        read(edited(SOURCE_FILE, text))
    assert refused.value.details["expected"] != refused.value.details["found"]
    assert "schema change" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [(EXAMPLE + "node", "line"), (EXAMPLE + "node PERSON {}", "taken"), (EXAMPLE + "edge E: X -> Y", "X")],
)
def test_a_text_that_is_no_schema_any_more_is_refused_with_its_fault(text: str, reason: str) -> None:
    with pytest.raises(SchemaContractBroken, match=rf"^OG3003 _schema\.pg was edited by hand: .*{reason}"):
        read(edited(SOURCE_FILE, text))


# -- edits of the other two ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [IR_FILE, STATE_FILE])
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '"text"', '{"format_version": 2, "format_version": 2}'])
def test_a_file_that_is_not_the_json_it_should_be_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(SchemaContractBroken) as refused:
        read(edited(name, text))
    assert refused.value.message.startswith(name)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("next_identity_id",), 14),
        (("schema_identity_domain",), DOMAIN[:-1] + "W"),
        (("nodes", 0, "table_incarnation_id"), 13),
        (("nodes", 1, "properties", 0, "prop_type", "scalar"), "I64"),
        (("nodes", 1, "properties", 0, "annotations"), [{"name": "description", "value": "in years"}]),
        (("edges", 0, "cardinality", "max"), 3),
        (("edges", 0, "from_type", "type_id"), 1),
        (("nodes", 0, "constraints"), []),
        (("edges",), []),
    ],
)
def test_an_edited_schema_document_is_refused_by_name(path: tuple[str | int, ...], value: object) -> None:
    with pytest.raises(SchemaContractBroken) as refused:
        read(edited_member(IR_FILE, *path, value=value))
    assert IR_FILE in refused.value.message
    assert not refused.value.message.startswith(SOURCE_FILE)


def test_an_edit_of_identities_alone_is_refused() -> None:
    files = edited_member(IR_FILE, "next_identity_id", value=14)
    with pytest.raises(SchemaContractBroken) as refused:
        read(files)
    assert refused.value.details["member"] == "schema_ir_hash"


def test_the_layout_of_the_schema_document_does_not_count() -> None:
    contract = contract_of(EXAMPLE)
    compact = json.dumps(json.loads(contract.files()[IR_FILE]))
    assert read(edited(IR_FILE, compact)) == contract


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("schema_shape_hash", "sha256:" + "0" * 64),
        ("schema_shape_hash", None),
        ("schema_ir_hash", "sha256:" + "0" * 64),
        ("schema_ir_hash", 7),
        ("schema_identity_domain", DOMAIN[:-1] + "W"),
        ("schema_identity_domain", None),
        ("format_version", 1),
        ("format_version", 3),
        ("format_version", "2"),
        ("schema_identity_version", 1),
        ("schema_identity_version", None),
    ],
)
def test_an_edited_state_is_refused_by_name(member: str, value: object) -> None:
    with pytest.raises(SchemaContractBroken, match=member) as refused:
        read(edited_member(STATE_FILE, member, value=value))
    assert refused.value.message.startswith(STATE_FILE)


@pytest.mark.parametrize("member", json.loads((GOLDEN / STATE_FILE).read_text(encoding="utf-8")))
def test_a_state_without_one_of_its_members_is_refused(member: str) -> None:
    state = json.loads(contract_of(EXAMPLE).files()[STATE_FILE])
    del state[member]
    with pytest.raises(SchemaContractBroken, match=rf"^OG3003 {STATE_FILE} has (no )?{member}"):
        read(edited(STATE_FILE, json.dumps(state)))


def test_an_older_state_is_refused_with_the_way_out() -> None:
    with pytest.raises(SchemaContractBroken) as refused:
        read(edited_member(STATE_FILE, "format_version", value=1))
    assert "export and load" in (refused.value.hint or "")


@pytest.mark.parametrize("name", [SOURCE_FILE, IR_FILE, STATE_FILE])
def test_a_file_of_another_graph_is_refused(name: str) -> None:
    other = contract_of(EXAMPLE.replace("age: I32?", "age: I64?")).files()
    with pytest.raises(SchemaContractBroken, match=name):
        read(edited(name, other[name]))


def test_files_of_the_same_schema_in_another_graph_do_not_belong_together() -> None:
    other = SchemaContract(EXAMPLE, accept_initial(parse_catalog(EXAMPLE))).files()
    for name in (IR_FILE, STATE_FILE):
        with pytest.raises(SchemaContractBroken, match=f"{STATE_FILE} does not belong to {IR_FILE}"):
            read(edited(name, other[name]))
