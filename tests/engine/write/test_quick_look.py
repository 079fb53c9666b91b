"""The quick look proves, or leaves the question open; it never proves what is false."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omnigraph_engine.tables import fingerprints, numbers
from omnigraph_engine.write.quick_look import all_known, all_new

KEYS = st.lists(st.text("ab\0é", max_size=3), max_size=12)


@pytest.fixture(params=[10**6, 0], ids=["in memory", "on disk"], autouse=True)
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "HELD_ROWS", request.param)
    monkeypatch.setattr(numbers, "BUCKET_ROWS", 1)


def keys(texts: list[str]) -> list[pa.RecordBatch]:
    half = len(texts) // 2
    return [pa.RecordBatch.from_pydict({"key": pa.array(part, pa.string())}) for part in (texts[:half], texts[half:])]


@given(incoming=KEYS, stored=KEYS)
def test_keys_are_proven_new_exactly_when_they_are(incoming: list[str], stored: list[str]) -> None:
    new = len(set(incoming)) == len(incoming) and not set(incoming) & set(stored)
    assert all_new([keys(incoming)], [keys(stored)], rows=len(incoming) + 1) is new


@given(incoming=KEYS, others=KEYS, stored=KEYS)
def test_keys_are_proven_known_exactly_when_they_are(incoming: list[str], others: list[str], stored: list[str]) -> None:
    known = {*incoming, *others} <= set(stored)
    assert all_known([keys(incoming), keys(others)], [keys(stored)], rows=len(incoming + others) + 1) is known


def test_keys_with_one_fingerprint_prove_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "_fingerprints", lambda texts: np.full(len(texts.lengths), 7, np.uint64))
    assert fingerprints.Digester()(pa.array(["a", "b"])).fingerprints.tolist() == [7, 7]
    assert not all_new([keys(["a"])], [keys(["b"])], rows=1)
    assert not all_known([keys(["a"])], [keys(["b"])], rows=1)
    assert not all_known([keys(["a", "b"])], [keys(["a"])], rows=2)
    assert all_known([keys(["a", "a"])], [keys(["b", "a"])], rows=2)
