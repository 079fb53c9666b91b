from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omnigraph_engine.errors import ConstraintViolation, InvalidInput, TypeMismatch, UnknownProperty
from omnigraph_engine.schema.arrow import table_schema
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import accept_initial
from omnigraph_engine.write.conform import conform
from ulid import ULID

SCHEMA = """
node Thing {
    text: String?  flag: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?
    day: Date?  at: DateTime?  spot: Vector(2)?  times: [DateTime]?  words: [String]?  floats: [F32]?  data: Blob?
}
node Person { name: String @key  age: I32 }
node Place { zip: I32  country: String  @key(zip, country) }
node Measure { value: F64 @key }
edge Knows: Person -> Person { since: Date? }
"""
ACCEPTED = accept_initial(parse_catalog(SCHEMA))
NODES = ACCEPTED.catalog.nodes
THING, PERSON, PLACE, MEASURE = (NODES[name] for name in ("Thing", "Person", "Place", "Measure"))
KNOWS = ACCEPTED.catalog.edges["Knows"]
NOON = 1_776_168_000_000  # 2026-04-14T12:00:00Z


def _thing(**columns: pa.Array) -> pa.RecordBatch:
    return conform(pa.RecordBatch.from_pydict(columns), ACCEPTED, THING)


def _stored(name: str, values: pa.Array) -> pa.Array:
    column = _thing(**{name: values}).column(name)
    expected = table_schema(ACCEPTED, THING).field(name).type
    assert column.type.equals(expected, check_metadata=True)
    column.validate()  # not in full: Arrow holds that a date64 has no time of day
    return column


def _milliseconds(values: pa.Array) -> list[int | None]:
    return values.cast(pa.int64()).to_pylist()


# -- shape --------------------------------------------------------------------------------------------------


def test_the_result_has_exactly_the_schema_of_the_table_whatever_the_order_of_the_input() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"age": pa.array([36], pa.int64()), "name": pa.array(["Ada"], pa.large_string())}
    )

    result = conform(batch, ACCEPTED, PERSON)

    assert result.schema.equals(table_schema(ACCEPTED, PERSON), check_metadata=True)
    assert result.to_pylist() == [{"id": "Ada", "age": 36, "name": "Ada"}]


def test_a_batch_that_fits_already_keeps_its_buffers() -> None:
    values = pa.array([1, 2], pa.int32())

    stored = _thing(i32=values).column("i32")

    assert stored.buffers()[1].address == values.buffers()[1].address


def test_a_nullable_column_that_is_absent_is_null() -> None:
    assert _thing(i32=pa.array([1], pa.int32())).column("spot").to_pylist() == [None]


def test_a_required_column_that_is_absent_is_refused() -> None:
    with pytest.raises(ConstraintViolation, match=r"Person\.age is required") as caught:
        conform(pa.RecordBatch.from_pydict({"name": ["Ada"]}), ACCEPTED, PERSON)

    assert caught.value.details["rule"] == "required"


def test_an_unknown_column_is_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(UnknownProperty) as caught:
        conform(pa.RecordBatch.from_pydict({"nmae": ["Ada"], "age": [1]}), ACCEPTED, PERSON)

    assert caught.value.details == {"type": "Person", "property": "nmae"}
    assert caught.value.hint == "Did you mean 'name'?"


def test_a_column_given_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["i32", "i32"])

    with pytest.raises(InvalidInput, match="more than once"):
        conform(batch, ACCEPTED, THING)


@pytest.mark.parametrize("table", [THING, PERSON, PLACE, MEASURE, KNOWS], ids=lambda table: table.name)
def test_a_batch_without_rows_conforms(table: Any) -> None:
    schema = table_schema(ACCEPTED, table)
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], names=schema.names)

    result = conform(empty, ACCEPTED, table)

    assert result.num_rows == 0
    assert result.schema.equals(schema, check_metadata=True)


# -- ids ----------------------------------------------------------------------------------------------------


def test_a_composite_key_gives_its_id_in_identity_order_not_in_the_order_of_the_columns() -> None:
    batch = pa.RecordBatch.from_pydict({"zip": pa.array([75001], pa.int32()), "country": ["FR"]})

    assert conform(batch, ACCEPTED, PLACE).column("id").to_pylist() == ['["FR","75001"]']


def test_a_given_id_must_be_the_one_that_the_key_defines_where_it_is_given() -> None:
    columns = {"name": ["Ada", "Bob", "Cy"], "age": [1, 2, 3]}
    fitting = pa.RecordBatch.from_pydict({**columns, "id": ["Ada", None, "Cy"]})
    other = pa.RecordBatch.from_pydict({**columns, "id": ["Ada", "Rob", "Cy"]})

    assert conform(fitting, ACCEPTED, PERSON).column("id").to_pylist() == ["Ada", "Bob", "Cy"]
    with pytest.raises(ConstraintViolation, match="must be what the key") as caught:
        conform(other, ACCEPTED, PERSON)
    assert caught.value.details["values"] == ["Rob"]
    assert caught.value.details["ids"] == ["Bob"]


def test_a_null_in_a_key_is_refused_by_the_name_of_the_property() -> None:
    batch = pa.RecordBatch.from_pydict({"name": ["Ada", None], "age": [1, 2]})

    with pytest.raises(ConstraintViolation, match=r"Person\.name must not be null"):
        conform(batch, ACCEPTED, PERSON)


def test_a_key_that_is_not_a_number_is_refused_with_type_and_property() -> None:
    with pytest.raises(ConstraintViolation) as caught:
        conform(pa.RecordBatch.from_pydict({"value": [math.nan]}), ACCEPTED, MEASURE)

    assert (caught.value.details["type"], caught.value.details["property"]) == ("Measure", "value")


def test_without_a_key_given_ids_stay_and_missing_ones_are_new_ulids() -> None:
    ids = _thing(id=pa.array(["mine", None, None]), i32=pa.array([1, 2, 3])).column("id").to_pylist()

    assert ids[0] == "mine"
    assert len({str(ULID.from_str(text)) for text in ids[1:]}) == 2


def test_edges_take_new_ulids_and_need_both_endpoints() -> None:
    batch = pa.RecordBatch.from_pydict({"src": ["a", "a"], "dst": ["b", "c"]})

    ids = conform(batch, ACCEPTED, KNOWS).column("id").to_pylist()

    assert len({str(ULID.from_str(text)) for text in ids}) == 2
    with pytest.raises(ConstraintViolation, match=r"Knows\.dst is required"):
        conform(batch.select(["src"]), ACCEPTED, KNOWS)


# -- values that arrive unchanged ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_text_arrives_from_every_text_encoding(kind: pa.DataType) -> None:
    assert _stored("text", pa.array(["a", None, ""]).cast(kind)).to_pylist() == ["a", None, ""]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_a_blob_arrives_from_every_binary_encoding(kind: pa.DataType) -> None:
    assert _stored("data", pa.array([b"a", None, b""], pa.binary()).cast(kind)).to_pylist() == [b"a", None, b""]


@pytest.mark.parametrize("target", ["i32", "i64", "u32", "u64"])
@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()])
def test_integers_of_any_width_arrive_when_every_value_fits(target: str, kind: pa.DataType) -> None:
    assert _stored(target, pa.array([0, 100, None], kind)).to_pylist() == [0, 100, None]


@pytest.mark.parametrize(
    ("target", "values", "offending"),
    [
        ("i32", pa.array([1, 2**31], pa.int64()), [2**31]),
        ("i64", pa.array([1, 2**63], pa.uint64()), [2**63]),
        ("u32", pa.array([1, -1], pa.int64()), [-1]),
        ("u64", pa.array([1, -1], pa.int64()), [-1]),
        ("u64", pa.array([Decimal(1), Decimal(2**64)], pa.decimal128(20, 0)), [Decimal(2**64)]),
        ("u64", pa.array([Decimal(-1)], pa.decimal128(20, 0)), [Decimal(-1)]),
        ("u64", pa.array([Decimal("1.5"), None], pa.decimal128(38, 30)), [Decimal("1.5")]),
        ("f64", pa.array([2**53, 2**53 + 1]), [2**53 + 1]),
        ("f32", pa.array([1e300, 1.0, math.inf]), [1e300]),
    ],
)
def test_a_number_that_does_not_fit_is_refused_with_its_value(
    target: str, values: pa.Array, offending: list[Any]
) -> None:
    with pytest.raises(ConstraintViolation, match=f"must fit {target.upper()}") as caught:
        _stored(target, values)

    assert (caught.value.details["rule"], caught.value.details["values"]) == ("type", offending)


def test_whole_decimals_arrive_as_integers_up_to_the_largest() -> None:
    numbers = pa.array([Decimal(2**64 - 1), Decimal(0), None], pa.decimal128(20, 0))

    assert _stored("u64", numbers).to_pylist() == [2**64 - 1, 0, None]
    assert _stored("i32", pa.array([Decimal("-7.00")], pa.decimal128(10, 2))).to_pylist() == [-7]


def test_floats_arrive_from_other_widths_with_nan_and_infinities() -> None:
    assert _stored("f64", pa.array([1.5, None], pa.float32())).to_pylist() == [1.5, None]
    assert _stored("f32", pa.array([0.1])).to_pylist() == [float(np.float32(0.1))]
    assert _stored("f64", pa.array(np.array([1.5], np.float16))).to_pylist() == [1.5]
    stored = _stored("f32", pa.array([math.nan, -math.inf])).to_pylist()
    assert math.isnan(stored[0])
    assert stored[1] == -math.inf


def test_integers_arrive_as_floats_when_a_float_can_hold_them() -> None:
    assert _stored("f64", pa.array([2**53, -7])).to_pylist() == [2.0**53, -7.0]
    assert _stored("f32", pa.array([2**24], pa.uint64())).to_pylist() == [2.0**24]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris"])
def test_a_timestamp_of_any_unit_and_zone_arrives_as_the_same_instant(unit: str, zone: str | None) -> None:
    values = pa.array([NOON, None], pa.timestamp("ms", zone)).cast(pa.timestamp(unit, zone))

    assert _milliseconds(_stored("at", values)) == [NOON, None]


@given(st.lists(st.integers(-(2**53), 2**53) | st.none(), max_size=8))
def test_milliseconds_survive_the_way_through_microseconds(values: list[int | None]) -> None:
    microseconds = pa.array(values, pa.timestamp("ms")).cast(pa.timestamp("us"))

    assert _milliseconds(_stored("at", microseconds)) == values


def test_a_fraction_of_a_millisecond_is_refused_not_cut_off() -> None:
    with pytest.raises(ConstraintViolation, match="must fit DateTime") as caught:
        _stored("at", pa.array([NOON * 1000, NOON * 1000 + 1], pa.timestamp("us", "Europe/Paris")))

    assert caught.value.details["values"] == ["2026-04-14 12:00:00.000001"]


def test_seconds_beyond_what_milliseconds_can_hold_are_refused() -> None:
    with pytest.raises(ConstraintViolation, match="must fit DateTime"):
        _stored("at", pa.array([2**60], pa.timestamp("s")))


def test_dates_and_datetimes_arrive_from_each_other_when_nothing_is_lost() -> None:
    day = 86_400_000
    assert _milliseconds(_stored("at", pa.array([2], pa.int32()).cast(pa.date32()))) == [2 * day]
    assert _stored("day", pa.array([2 * day, None], pa.int64()).cast(pa.date64())).cast(pa.int32()).to_pylist() == [
        2,
        None,
    ]
    with pytest.raises(ConstraintViolation, match="must fit Date") as caught:
        _stored("day", pa.array([2 * day + 1], pa.int64()).cast(pa.date64()))
    assert caught.value.details["values"] == ["1970-01-03 00:00:00.001"]


LISTS = [pa.list_(pa.float64()), pa.large_list(pa.field("element", pa.float32())), pa.list_(pa.float32(), 2)]


@pytest.mark.parametrize("kind", LISTS, ids=str)
def test_a_vector_arrives_from_every_kind_of_list_also_sliced_and_with_nulls(kind: pa.DataType) -> None:
    values = pa.array([[9, 9], [1, 2], None, [3, 4]], kind)

    assert _stored("spot", values.slice(1)).to_pylist() == [[1.0, 2.0], None, [3.0, 4.0]]


@pytest.mark.parametrize("kind", LISTS, ids=str)
def test_a_list_arrives_from_every_kind_of_list_also_sliced_and_with_nulls(kind: pa.DataType) -> None:
    values = pa.array([[9, 9], [1, None], None, [3, 4]], kind)

    assert _stored("floats", values.slice(1)).to_pylist() == [[1.0, None], None, [3.0, 4.0]]


def test_elements_of_lists_follow_the_rules_of_their_type() -> None:
    times = pa.array([[NOON * 1000], None, []], pa.list_(pa.field("element", pa.timestamp("us", "UTC"))))
    words = pa.array([["a", None], [], None], pa.large_list(pa.large_string()))

    assert _milliseconds(_stored("times", times).flatten()) == [NOON]
    assert _stored("words", words).to_pylist() == [["a", None], [], None]
    with pytest.raises(ConstraintViolation, match=r"Thing\.floats must fit"):
        _stored("floats", pa.array([[1.0], [1e300]]))


def test_the_elements_of_a_list_are_renamed_to_item() -> None:
    words = pa.array([["a"]], pa.list_(pa.field("element", pa.string())))

    assert _stored("words", words).type.value_field.name == "item"


def test_values_under_nulls_and_outside_the_slice_are_not_judged() -> None:
    elements = pa.array([1e300, 1e300, 1.0, 2.0])
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), elements, mask=pa.array([True, False]))

    assert _stored("spot", hidden).to_pylist() == [None, [1.0, 2.0]]


def test_a_vector_of_the_wrong_length_is_refused_with_the_lengths_found() -> None:
    with pytest.raises(ConstraintViolation, match=r"Thing\.spot must have 2 elements") as caught:
        _stored("spot", pa.array([[1.0, 2.0], [1.0], None, [1.0, 2.0, 3.0]]))

    assert (caught.value.details["rule"], caught.value.details["values"]) == ("length", [1, 3])
    with pytest.raises(TypeMismatch, match=r"\[3\]"):
        _stored("spot", pa.array([], pa.list_(pa.float32(), 3)))


@pytest.mark.parametrize("name", [prop.name for prop in THING.properties])
def test_a_column_of_nothing_but_nulls_needs_no_type(name: str) -> None:
    assert _stored(name, pa.nulls(2)).to_pylist() == [None, None]


# -- values that do not -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("text", pa.int32()),
        ("text", pa.binary()),
        ("flag", pa.int8()),
        ("i32", pa.string()),
        ("i32", pa.float64()),
        ("i32", pa.bool_()),
        ("f64", pa.string()),
        ("f64", pa.decimal128(10, 2)),
        ("day", pa.string()),
        ("day", pa.int32()),
        ("day", pa.timestamp("us")),
        ("at", pa.string()),
        ("at", pa.int64()),
        ("at", pa.time64("us")),
        ("spot", pa.float32()),
        ("words", pa.string()),
        ("words", pa.list_(pa.int64())),
        ("data", pa.string()),
        ("data", pa.list_(pa.uint8())),
    ],
    ids=str,
)
def test_a_type_that_means_something_else_is_refused_even_without_rows(name: str, found: pa.DataType) -> None:
    with pytest.raises(TypeMismatch) as caught:
        _stored(name, pa.array([], found))

    assert (caught.value.details["type"], caught.value.details["property"]) == ("Thing", name)
    assert f"Thing.{name}" in caught.value.message


@pytest.mark.parametrize("name", ["id", "src", "dst"])
def test_ids_and_endpoints_are_text(name: str) -> None:
    columns = {"src": pa.array(["a"]), "dst": pa.array(["b"]), name: pa.array([1])}

    with pytest.raises(TypeMismatch, match=f"Knows.{name}"):
        conform(pa.RecordBatch.from_pydict(columns), ACCEPTED, KNOWS)


def test_a_refused_type_comes_with_the_cast_that_would_work_where_there_is_one() -> None:
    with pytest.raises(TypeMismatch) as caught:
        _stored("i32", pa.array(["5"]))

    assert (caught.value.details["found"], caught.value.details["expected"]) == ("string", "int32")
    assert 'column.cast("int32")' in (caught.value.hint or "")
    assert pa.array(["5"]).cast("int32").to_pylist() == [5]
    with pytest.raises(TypeMismatch) as caught:
        _stored("i32", pa.array([[5]]))
    assert caught.value.hint is None
