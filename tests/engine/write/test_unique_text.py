"""One text per row that is equal exactly when the row's values are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omnigraph_engine.tables.unique_text import unique_text

HOUR = 3_600_000


def texts(*columns: pa.Array[Any]) -> list[str]:
    found: list[str] = unique_text(columns).to_pylist()
    return found


@pytest.mark.parametrize(
    "distinct",
    [
        pa.array(["", "a", "A", "a ", "ä", "null", "None"]),
        pa.array([True, False]),
        pa.array([-1, 0, 1, 2**31 - 1], pa.int32()),
        pa.array([2**63, 2**63 + 1, 2**64 - 1], pa.uint64()),
        pa.array([0.1, 0.1 + 2**-55, 1e300, -1e300, 0.0], pa.float64()),
        pa.array([0.1, 0.25, 16777216.0, 16777218.0], pa.float32()),
        pa.array([0, 1, -1], pa.date32()),
        pa.array([0, HOUR, 24 * HOUR], pa.int64()).view(pa.date64()),
        pa.array([["a"], ["a", ""], [], ["a, b"], ["a", "b"], ["'a', 'b'"], [None], ["None"]], pa.list_(pa.string())),
        pa.array([[1, 2], [12], [1], [2, 1]], pa.list_(pa.int64())),
        pa.array([[True], [False], [True, True]], pa.list_(pa.bool_())),
        pa.array([[0.5, 0.25], [0.25, 0.5]], pa.list_(pa.float32(), 2)),
    ],
    ids=lambda values: str(values.type),
)
def test_different_values_have_different_texts(distinct: pa.Array[Any]) -> None:
    assert len(set(texts(distinct))) == len(distinct)
    assert texts(distinct) == texts(distinct)
    assert texts(distinct.slice(1)) == texts(distinct)[1:]


def test_times_of_one_day_in_a_list_are_different_values() -> None:
    moments = pa.array([0, HOUR, 0, 2 * HOUR], pa.int64()).view(pa.date64())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), moments)
    assert len(set(texts(lists))) == 2


def test_both_zeros_are_one_value_also_in_lists() -> None:
    assert len(set(texts(pa.array([0.0, -0.0])))) == 1
    assert len(set(texts(pa.array([[0.0], [-0.0]])))) == 1


@settings(max_examples=200)
@given(st.lists(st.tuples(st.text(alphabet="a,:1é", max_size=3), st.text(alphabet="a,:1é", max_size=3)), min_size=1))
def test_no_pair_of_values_can_pretend_to_be_another(pairs: list[tuple[str, str]]) -> None:
    found = texts(*(pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1)))
    assert len(set(found)) == len(set(pairs))
    assert len(set(zip(found, pairs, strict=True))) == len(set(pairs))
