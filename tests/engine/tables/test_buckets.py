"""Bringing equal keys together: whatever the sizes, the pairs hold what a plain join would."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omnigraph_engine.tables import buckets
from omnigraph_engine.tables.buckets import pair_up

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("number", pa.int64())])

KEYS = st.lists(st.one_of(st.sampled_from(["", "a", "b", "aa", "\x00", "ä", "🜁"]), st.text(max_size=4)), max_size=30)


def batches(keys: list[str], size: int) -> Iterator[pa.RecordBatch]:
    rows = pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.string()), pa.array(range(len(keys)), pa.int64())], schema=SCHEMA
    )
    for start in range(0, len(keys), size):
        yield rows.slice(start, size)


def pairs(incoming: list[str], stored: list[str], size: int) -> list[tuple[list[str], list[str]]]:
    return [
        (given["key"].to_pylist(), [key for batch in kept for key in batch.column(0).to_pylist()])
        for given, kept in pair_up(batches(incoming, size), batches(stored, size), SCHEMA, SCHEMA)
    ]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(incoming=KEYS, stored=KEYS, rows=st.sampled_from([0, 1, 7, 1000]), size=st.integers(1, 9))
def test_the_pairs_hold_every_row_once_and_equal_keys_together(
    monkeypatch: pytest.MonkeyPatch, incoming: list[str], stored: list[str], rows: int, size: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(buckets, "HELD_ROWS", rows)
        patched.setattr(buckets, "BUCKETS", 8)
        found = pairs(incoming, stored, size)
    assert Counter(key for given, _ in found for key in given) == Counter(incoming)
    assert Counter(key for _, kept in found for key in kept) == Counter(stored)
    joined = Counter((a, b) for given, kept in found for a in given for b in kept if a == b)
    assert joined == Counter((a, b) for a in incoming for b in stored if a == b)
    for key in {*incoming, *stored}:
        assert sum(key in given or key in kept for given, kept in found) == 1


def test_few_rows_stay_in_memory_and_many_go_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(buckets, "HELD_ROWS", 10)
    keys = [f"k{number}" for number in range(11)]
    assert len(pairs(keys[:10], keys, 3)) == 1
    used = []
    for given_rows, _ in pair_up(batches(keys, 3), batches(keys, 3), SCHEMA, SCHEMA):
        used.append(given_rows.num_rows)
        assert any(name.startswith("omnigraph-") for name in os.listdir(tmp_path))
    assert sum(used) == 11
    assert max(used) < 11
    assert os.listdir(tmp_path) == []


def test_nothing_stays_on_disk_when_the_reader_stops_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(buckets, "HELD_ROWS", 1)
    found = pair_up(batches(["a", "b", "c"], 1), batches(["a"], 1), SCHEMA, SCHEMA)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert os.listdir(tmp_path) == []


def test_each_side_has_one_file_however_many_buckets_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(buckets, "HELD_ROWS", 100)
    keys = [f"k{number}" for number in range(1_000)]
    for _, kept in pair_up(batches(keys, 90), batches(keys, 90), SCHEMA, SCHEMA):
        list(kept)
        opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        assert sum(path.startswith(str(tmp_path)) for path in opened) == 2
