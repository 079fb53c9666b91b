from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omnigraph_engine.errors import (
    ConstraintViolation,
    InvalidInput,
    OmnigraphError,
    TypeMismatch,
    UnknownProperty,
    UnknownType,
)
from omnigraph_engine.schema.arrow import arrow_type
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import accept_initial
from omnigraph_engine.write.checks import check_rows
from omnigraph_engine.write.conform import conform
from omnigraph_engine.write.jsonl import by_text, read_json_lines

SCHEMA = """
node Thing {
    text: String?  flag: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?
    day: Date?  at: DateTime?  spot: Vector(2)?  words: [String]?  days: [Date]?  data: Blob?
}
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""
ACCEPTED = accept_initial(parse_catalog(SCHEMA))
THING = ACCEPTED.catalog.nodes["Thing"]
REAL_WORLD = Path(__file__).parents[2] / "data" / "industry-intel"
GOOD = '{"type": "Person", "data": {"name": "Ada"}}'


def _read(*lines: bytes | str, batch_rows: int = 10_000) -> list[tuple[str, pa.RecordBatch]]:
    return list(read_json_lines(lines, ACCEPTED, batch_rows=batch_rows))


def _things(name: str, *values: Any) -> pa.Array:
    lines = [json.dumps({"type": "Thing", "data": {name: value}}) for value in values]
    ((table_key, batch),) = _read(*lines)
    assert table_key == "node:Thing"
    return batch.column(name)


def _refused(error: type[OmnigraphError], line: bytes | str) -> OmnigraphError:
    """The error for a line that stands third, after a good one and a blank one."""
    with pytest.raises(error) as caught:
        _read(GOOD, "  ", line, GOOD)
    assert type(caught.value) is error
    assert caught.value.details["line"] == 3
    assert caught.value.message.startswith("Line 3: ")
    return caught.value


def _refused_thing(error: type[OmnigraphError], name: str, value: str) -> OmnigraphError:
    caught = _refused(error, f'{{"type": "Thing", "data": {{"{name}": {value}}}}}')
    assert (caught.details["type"], caught.details["property"]) == ("Thing", name)
    return caught


# -- what is accepted ---------------------------------------------------------------------------------------


def test_a_node_and_an_edge_become_batches_of_their_tables() -> None:
    batches = dict(
        _read(
            '{"type": "Person", "data": {"name": "Ada", "age": 36, "id": "Ada"}}',
            b'{"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"since": "2026-04-14"}}\n',
            '{"edge": "Knows", "from": "Bob", "to": "Ada"}',
        )
    )

    assert batches["node:Person"].to_pylist() == [{"id": "Ada", "age": 36, "name": "Ada"}]
    assert batches["edge:Knows"].select(["id", "src", "dst"]).to_pylist() == [
        {"id": None, "src": "Ada", "dst": "Bob"},
        {"id": None, "src": "Bob", "dst": "Ada"},
    ]
    assert batches["edge:Knows"].column("since").cast(pa.int32()).to_pylist() == [20557, None]


def test_every_property_comes_in_its_logical_arrow_type_also_when_no_row_has_it() -> None:
    ((_, batch),) = _read('{"type": "Thing"}')

    assert batch.schema.names == ["id", *(prop.name for prop in THING.properties)]
    for prop in THING.properties:
        assert batch.column(prop.name).type.equals(arrow_type(prop.type), check_metadata=True)
        assert batch.column(prop.name).to_pylist() == [None]


def test_blank_lines_are_skipped_and_counted() -> None:
    assert _read("", b"\n", " \t\r\n") == []
    with pytest.raises(InvalidInput, match="Line 4"):
        _read("", b"\n", GOOD, "x")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("text", ["", 'é😀"\\\n', None]),
        ("flag", [True, False, None]),
        ("i32", [-(2**31), 2**31 - 1, None]),
        ("i64", [-(2**63), 2**63 - 1, None]),
        ("u32", [0, 2**32 - 1, None]),
        ("u64", [0, 2**64 - 1, None]),
        ("f32", [0, 1.5, -(2**24), None]),
        ("f64", [0, 0.1, 1e308, -5e-324, None]),
        ("spot", [[0, 1.5], None, [-1, 2]]),
        ("words", [["a", None], [], None]),
    ],
)
def test_values_arrive_as_written(name: str, values: list[Any]) -> None:
    assert _things(name, *values).to_pylist() == values


def test_a_date_is_iso_text_or_days() -> None:
    assert _things("day", "1970-01-03", 2, None, -1, "0001-01-01").cast(pa.int32()).to_pylist() == [
        2,
        2,
        None,
        -1,
        -719162,
    ]
    assert _things("days", ["1970-01-03", 4, None]).flatten().cast(pa.int32()).to_pylist() == [2, 4, None]


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("1970-01-02T00:00:00Z", 86_400_000),
        ("1970-01-02T00:00:00", 86_400_000),
        ("1970-01-02 00:00:00", 86_400_000),
        ("1970-01-02T02:00:00+02:00", 86_400_000),
        ("1970-01-01T22:00:00-0200", 86_400_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-02T00:00", 86_400_000),
        ("1970-01-02T00:00:00.5", 86_400_500),
        ("1970-01-02T00:00:00.123Z", 86_400_123),
        ("1970-01-02T00:00:00.123000+00:00", 86_400_123),
        ("1600-01-01T00:00:00.999Z", -11_676_095_999_001),
        (86_400_001, 86_400_001),
        (-1, -1),
        (None, None),
    ],
)
def test_a_datetime_is_iso_text_in_utc_unless_it_says_otherwise_or_milliseconds(
    value: Any, milliseconds: int | None
) -> None:
    assert _things("at", "2026-04-14T12:00:00Z", value).cast(pa.int64()).to_pylist() == [
        1_776_168_000_000,
        milliseconds,
    ]


@given(st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=5))
def test_a_blob_is_base64_text_and_empty_is_not_null(blobs: list[bytes | None]) -> None:
    texts = [None if blob is None else "base64:" + base64.b64encode(blob).decode() for blob in blobs]

    assert _things("data", *texts).to_pylist() == blobs


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70), min_size=1, max_size=6)
)
def test_numbers_become_the_nearest_float(numbers: list[float]) -> None:
    assert _things("f64", *numbers).to_pylist() == [float(number) for number in numbers]
    small = [number for number in numbers if abs(number) < 1e38]
    if small:
        assert _things("f32", *small).to_pylist() == [float(np.float32(number)) for number in small]


def test_surrogate_pairs_in_escapes_are_characters() -> None:
    assert _things("text", "😀").to_pylist() == ["😀"]
    assert r"\ud83d\ude00" in json.dumps("😀")


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ('{"type": "Person"} x', "not JSON"),
        ("[1]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        (b'{"type": "Pers\xff"}', "not UTF-8"),
        ('{"type": "Person", "data": {"name": "\ud800"}}', "not UTF-8"),
        (r'{"type": "Person", "data": {"name": "\ud800"}}', "surrogate"),
        ("[" * 100_000, "not JSON"),
        ("{}", "either 'type'"),
        ('{"type": "Person", "edge": "Knows"}', "either 'type'"),
        ('{"type": "Person", "dtaa": {}}', "unknown member 'dtaa'"),
        ('{"type": "Person", "from": "a", "data": {"name": "b"}}', "unknown member 'from'"),
        ('{"type": "Person", "data": []}', "'data' must be an object"),
        ('{"type": "Person", "data": null}', "'data' must be an object"),
        ('{"type": "Person", "data": {"name": "a", "name": "a"}}', "'name' is given twice"),
        ('{"type": "Person", "type": "Person"}', "'type' is given twice"),
        ('{"type": "Thing", "data": {"words": [{"a": 1, "a": 1}]}}', "'a' is given twice"),
        ('{"type": "Thing", "data": {"f64": NaN}}', "NaN is not a number"),
        ('{"type": "Thing", "data": {"f64": -Infinity}}', "-Infinity is not a number"),
        ('{"type": "Thing", "data": {"i64": 1' + "0" * 5_000 + "}}", "not JSON"),
    ],
)
def test_a_line_that_is_not_of_the_form_is_refused_with_the_reason(line: bytes | str, reason: str) -> None:
    assert reason in _refused(InvalidInput, line).message


def test_a_misspelled_envelope_member_comes_with_the_right_one() -> None:
    assert _refused(InvalidInput, '{"type": "Person", "dtaa": {}}').hint == "Did you mean 'data'?"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ('{"type": "Persn"}', "Did you mean 'Person'?"),
        ('{"edge": "Know", "from": "a", "to": "b"}', "Did you mean 'Knows'?"),
        ('{"type": "Knows"}', 'There is one to be named with "edge".'),
        ('{"edge": "Person"}', 'There is one to be named with "type".'),
    ],
)
def test_an_unknown_type_is_refused_with_what_was_meant(line: str, hint: str) -> None:
    assert _refused(UnknownType, line).hint == hint


@pytest.mark.parametrize("kind", ["type", "edge"])
def test_a_type_is_named_by_a_string(kind: str) -> None:
    _refused(TypeMismatch, f'{{"{kind}": ["Person"]}}')


def test_an_unknown_property_is_refused_with_what_was_meant() -> None:
    error = _refused(UnknownProperty, '{"type": "Person", "data": {"name": "a", "agee": 1}}')

    assert error.details == {"line": 3, "type": "Person", "property": "agee"}
    assert error.hint == "Did you mean 'age'?"


def test_endpoints_inside_data_are_refused_with_their_place() -> None:
    error = _refused(UnknownProperty, '{"edge": "Knows", "from": "a", "to": "b", "data": {"src": "a"}}')

    assert "'from' and 'to'" in (error.hint or "")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('{"type": "Person", "data": {"age": 1}}', "name"),
        ('{"type": "Person", "data": {"name": null}}', "name"),
        ('{"type": "Person"}', "name"),
        ('{"edge": "Knows", "to": "b"}', "from"),
        ('{"edge": "Knows", "from": "a", "to": null}', "to"),
    ],
)
def test_a_missing_required_value_is_refused(line: str, name: str) -> None:
    assert _refused(ConstraintViolation, line).details["property"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("text", value) for value in ("1", "true", "[]", "{}")),
        *(("flag", value) for value in ("0", '"true"', "[]")),
        *((name, value) for name in ("i32", "i64", "u32", "u64") for value in ('"5"', "1.0", "1e3", "true", "[1]")),
        *((name, value) for name in ("f32", "f64") for value in ('"1.5"', "true", "[]")),
        *((name, value) for name in ("day", "at") for value in ("1.5", "true", "[]", "{}")),
        *(("spot", value) for value in ("1", '"[1, 2]"', '["1", 2]', "[true, 1]", "[null, 1]", "[[1, 2], 1]")),
        *(("words", value) for value in ('"a"', "[1]", '[["a"]]', "{}")),
        *(("data", value) for value in ("1", '["base64:"]')),
        ("id", "1"),
    ],
)
def test_a_value_of_another_json_type_is_refused_not_converted(name: str, value: str) -> None:
    _refused_thing(TypeMismatch, name, value)


def test_endpoints_are_strings_and_numbers_are_not_turned_into_them() -> None:
    error = _refused(TypeMismatch, '{"edge": "Knows", "from": 1, "to": "b"}')

    assert error.details == {"line": 3, "type": "Knows", "property": "from"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("i32", str(2**31)),
        ("i32", str(-(2**31) - 1)),
        ("i64", str(2**63)),
        ("u32", "-1"),
        ("u32", str(2**32)),
        ("u64", "-1"),
        ("u64", str(2**64)),
        ("f32", "1e39"),
        ("f64", "1e999"),
        ("f64", "1" + "0" * 400),
        ("spot", "[1, 1e39]"),
        ("day", str(2**31)),
        ("at", str(2**63)),
    ],
)
def test_a_number_out_of_range_is_refused(name: str, value: str) -> None:
    _refused_thing(InvalidInput, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("day", value) for value in ("", "2026-4-14", "2026-02-30", "14.04.2026", "2026-04-14T00:00:00Z", "today")),
        *(
            ("at", value)
            for value in ("", "2026-02-30T00:00:00Z", "2026-04-14T25:00:00Z", "2026-04-14T00:00:00.0001Z", "now")
        ),
        *(("days", [value]) for value in ("2026-4-14",)),
    ],
)
def test_text_that_is_not_a_date_is_refused(name: str, value: Any) -> None:
    _refused_thing(InvalidInput, name, json.dumps(value))


def test_a_date_that_is_wrong_beside_right_ones_is_found() -> None:
    good, bad = '{"type": "Thing", "data": {"at": 5}}', '{"type": "Thing", "data": {"at": "nonsense"}}'

    with pytest.raises(InvalidInput, match=r"Line 3: .*'nonsense'"):
        _read(good, '{"type": "Thing", "data": {"at": "2026-04-14"}}', bad, good)


@pytest.mark.parametrize("value", ["[1]", "[1, 2, 3]", "[]"])
def test_a_vector_of_the_wrong_length_is_refused_with_both_lengths(value: str) -> None:
    error = _refused_thing(ConstraintViolation, "spot", value)

    assert f"must have 2 elements, not {len(json.loads(value))}" in error.message


def test_a_bad_element_of_a_list_is_found_on_its_own_line() -> None:
    lines = [json.dumps({"type": "Thing", "data": {"words": words}}) for words in (["a", "b"], [], None, [1, "c"])]

    with pytest.raises(TypeMismatch, match="Line 4"):
        _read(*lines)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("base64:a", "base64"),
        ("base64:é", "base64"),
        ("base64:Y*Q==", "base64"),
        ("s3://bucket/key", "not supported yet"),
        ("", "not supported yet"),
    ],
)
def test_a_blob_that_is_not_base64_or_is_an_external_uri_is_refused(value: str, reason: str) -> None:
    assert reason in _refused_thing(InvalidInput, "data", json.dumps(value)).message


# -- streaming ----------------------------------------------------------------------------------------------


def test_rows_are_held_only_until_a_batch_of_their_type_is_full() -> None:
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for taken in range(1, 101):
            yield json.dumps({"type": "Thing", "data": {"i32": taken}})

    batches = read_json_lines(lines(), ACCEPTED, batch_rows=10)

    assert next(batches)[1].num_rows == 10
    assert taken == 10
    assert [batch.num_rows for _, batch in batches] == [10] * 9


@given(st.lists(st.sampled_from(["Thing", "Person"]), max_size=30), st.integers(1, 7))
def test_every_row_arrives_once_and_in_order_within_its_type(types: list[str], batch_rows: int) -> None:
    key = {"Thing": "text", "Person": "name"}
    lines = [json.dumps({"type": name, "data": {key[name]: str(at)}}) for at, name in enumerate(types)]
    found: dict[str, list[str]] = {"Thing": [], "Person": []}

    for table_key, batch in _read(*lines, batch_rows=batch_rows):
        name = table_key.removeprefix("node:")
        assert 0 < batch.num_rows <= batch_rows
        found[name] += batch.column(key[name]).to_pylist()

    assert found == {name: [str(at) for at, other in enumerate(types) if other == name] for name in key}


def test_lines_of_later_batches_are_named_right() -> None:
    lines = [GOOD] * 25 + ['{"type": "Person", "data": {"name": 1}}']

    with pytest.raises(TypeMismatch, match="Line 26"):
        list(read_json_lines(lines, ACCEPTED, batch_rows=10))


def test_every_line_of_a_real_graph_loads_conforms_and_keeps_the_rules() -> None:
    accepted = accept_initial(parse_catalog((REAL_WORLD / "schema.pg").read_text()))
    tables = {table.table_key: table for table in accepted.catalog.table_types()}
    rows: dict[str, int] = {}
    times: list[int] = []

    with (REAL_WORLD / "seed.jsonl").open("rb") as lines:
        for table_key, batch in read_json_lines(lines, accepted, batch_rows=8):
            conformed = conform(batch, accepted, tables[table_key])
            check_rows(conformed, tables[table_key])
            rows[table_key] = rows.get(table_key, 0) + conformed.num_rows
            if table_key == "node:Pattern":
                assert conformed.column("id").equals(conformed.column("slug"))
                times += conformed.column("createdAt").cast(pa.int64()).to_pylist()

    text = (REAL_WORLD / "seed.jsonl").read_text()
    assert sum(rows.values()) == len(text.splitlines())
    assert rows["node:Pattern"] == text.count('{"type":"Pattern"')
    assert times[0] == 1_776_124_800_000


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        '{"type": "Persom", "data": {}}',
        '{"type": "Person", "data": {"agee": 1}}',
        '{"type": "Person", "data": {"name": "Ada", "age": "old"}}',
        '{"type": 5}',
    ],
)
def test_lines_without_numbers_are_told_by_their_text(line: str) -> None:
    with pytest.raises(OmnigraphError) as caught:
        list(read_json_lines([GOOD, line], ACCEPTED, mark=by_text))
    assert caught.value.message.startswith(f"The line '{line}': ")
    assert caught.value.details["text"] == line
    assert "line" not in caught.value.details


def test_the_text_of_a_line_is_shortened() -> None:
    with pytest.raises(InvalidInput) as caught:
        list(read_json_lines([b"x" * 10_000], ACCEPTED, mark=by_text))
    assert len(caught.value.message) < 200
    assert caught.value.details["text"] == "x" * 120 + "..."
