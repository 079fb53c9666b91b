from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omnigraph_engine.errors import ConstraintViolation
from omnigraph_engine.schema.keys import key_ids

DAY = 86_400_000


def _f32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def _ints(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
FLOATS32 = st.floats(allow_nan=False, allow_infinity=False, width=32)
# From 1e10 on Arrow writes exponents, and up to 2^53 digits may follow the point.
POINT_INSIDE = st.floats(min_value=1e9, max_value=1e16)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=8) | st.text('"\\,[]\x00\x1f\x7f\n\té😀01', max_size=6),
    pa.bool_(): st.booleans(),
    pa.int32(): _ints(-(2**31), 2**31 - 1),
    pa.int64(): _ints(-(2**63), 2**63 - 1),
    pa.uint32(): _ints(0, 2**32 - 1),
    pa.uint64(): _ints(0, 2**64 - 1),
    pa.float32(): FLOATS32,
    pa.float64(): FLOATS | POINT_INSIDE | POINT_INSIDE.map(lambda number: -number),
    pa.date32(): _ints(-(2**31), 2**31 - 1),
    pa.date64(): _ints(-(2**63), 2**63 - 1),
}


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_date64(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, kind)


def _reference_text(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        shortest = repr(value) if pa.types.is_float64(kind) else str(np.float32(value))
        text = format(Decimal(shortest), "f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if value == 0 else text
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _reference_id(row: tuple[Any, ...], kinds: list[pa.DataType]) -> str:
    texts = [_reference_text(value, kind) for value, kind in zip(row, kinds, strict=True)]
    return texts[0] if len(texts) == 1 else json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


@st.composite
def keys(draw: st.DrawFn) -> tuple[list[pa.DataType], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(KINDS[kind] for kind in kinds)), max_size=12))
    return kinds, rows


def _ids(kinds: list[pa.DataType], rows: list[tuple[Any, ...]]) -> list[str | None]:
    columns = [_array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    return key_ids(columns).to_pylist()


@given(keys())
def test_ids_are_what_the_slow_and_obvious_spelling_gives(
    case: tuple[list[pa.DataType], list[tuple[Any, ...]]],
) -> None:
    kinds, rows = case

    assert _ids(kinds, rows) == [_reference_id(row, kinds) for row in rows]


@given(keys())
def test_different_keys_have_different_ids_and_equal_keys_equal_ids(
    case: tuple[list[pa.DataType], list[tuple[Any, ...]]],
) -> None:
    kinds, rows = case
    ids = _ids(kinds, rows)

    assert len(set(ids)) == len(set(rows))  # to Python, as to the format, both zeros are one number


@given(keys(), st.data())
def test_an_id_does_not_depend_on_the_other_rows_of_its_batch(
    case: tuple[list[pa.DataType], list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    kinds, rows = case
    start = data.draw(st.integers(0, len(rows)))
    columns = [_array([row[at] for row in rows], kind).slice(start) for at, kind in enumerate(kinds)]

    assert key_ids(columns).to_pylist() == [_ids(kinds, [row])[0] for row in rows[start:]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e-7, "0.0000001"),
        (-1.5e-7, "-0.00000015"),
        (1e21, "1000000000000000000000"),
        (12345678901.5, "12345678901.5"),
        (5e-324, "0." + "0" * 323 + "5"),
        (1.7976931348623157e308, "17976931348623157" + "0" * 292),
    ],
)
def test_a_float_is_written_with_its_shortest_digits_and_never_with_an_exponent(value: float, text: str) -> None:
    assert key_ids([pa.array([value])]).to_pylist() == [text]


def test_a_32_bit_float_is_shortest_at_its_own_width() -> None:
    assert key_ids([pa.array([0.1, 16777216.0, 3.4028235e38], pa.float32())]).to_pylist() == [
        "0.1",
        "16777216",
        "340282350000000000000000000000000000000",
    ]
    assert key_ids([pa.array([_f32(0.1)])]).to_pylist() == ["0.10000000149011612"]


def test_a_date_is_its_days_and_a_datetime_its_milliseconds_with_the_time_of_day() -> None:
    assert key_ids([_array([20_000], pa.date32())]).to_pylist() == ["20000"]
    assert key_ids([_array([DAY + 1], pa.date64())]).to_pylist() == ["86400001"]


def test_a_composite_key_is_a_compact_json_array_of_strings_in_the_given_order() -> None:
    ids = key_ids([pa.array([7], pa.int32()), pa.array(["a"]), pa.array([True])])

    assert ids.to_pylist() == ['["7","a","true"]']


def test_only_quote_backslash_and_control_characters_are_escaped_in_a_composite_key() -> None:
    ids = key_ids([pa.array(['"\\/\b\f\n\r\t\x00\x1f\x7fé😀']), pa.array([1])])

    assert ids.to_pylist() == [r'["\"\\/\b\f\n\r\t\u0000\u001f' + '\x7fé😀","1"]']


def test_a_single_string_key_is_its_id_unchanged() -> None:
    assert key_ids([pa.array(['["a"]\n', ""])]).to_pylist() == ['["a"]\n', ""]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_have_no_id(value: float) -> None:
    with pytest.raises(ConstraintViolation) as caught:
        key_ids([pa.array([1.0, value])])

    assert caught.value.details["count"] == 1
    assert repr(caught.value.details["values"]) == repr([value])


def test_a_key_with_a_null_member_has_no_id() -> None:
    assert key_ids([pa.array([None, "a"])]).to_pylist() == [None, "a"]
    assert key_ids([pa.array([None, 1e300]), pa.array(["a", "b"])]).to_pylist()[0] is None


def test_no_rows_give_no_ids() -> None:
    assert key_ids([pa.array([], pa.float64()), pa.array([], pa.string())]).to_pylist() == []
