"""Larger batches hold the same rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omnigraph_engine.tables import streams
from omnigraph_engine.tables.streams import in_larger_batches


@given(st.lists(st.integers(0, 7), max_size=12))
def test_larger_batches_hold_the_same_rows_in_the_same_order(sizes: list[int]) -> None:
    values = list(range(sum(sizes)))
    given_batches, start = [], 0
    for size in sizes:
        given_batches.append(pa.RecordBatch.from_pydict({"v": pa.array(values[start : start + size], pa.int64())}))
        start += size
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streams, "LARGER_ROWS", 5)
        found = list(in_larger_batches(given_batches))
    assert [value for batch in found for value in batch.column(0).to_pylist()] == values
    assert all(batch.num_rows >= 5 for batch in found[:-1])


def test_wide_rows_are_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LARGER_BYTES", 1_000)
    wide = pa.RecordBatch.from_pydict({"v": ["x" * 600]})
    assert [batch.num_rows for batch in in_larger_batches([wide] * 5)] == [2, 2, 1]
