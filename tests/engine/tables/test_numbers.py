"""A claim holds of the whole exactly when it holds of every share, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omnigraph_engine.tables import numbers
from omnigraph_engine.tables.numbers import Numbers, holds

ANY = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))
STREAM = st.lists(st.lists(st.tuples(ANY, ANY), max_size=6), max_size=4)
Stream = list[list[tuple[int, int]]]


def columns(stream: Stream) -> Iterable[Numbers]:
    return [[np.array(column, np.uint64) for column in ([a for a, _ in part], [b for _, b in part])] for part in stream]


def pairs(rows: Numbers) -> list[tuple[int, int]]:
    return list(zip(rows[0].tolist(), rows[1].tolist(), strict=True))


@pytest.mark.parametrize("held", [10**6, 0], ids=["in memory", "on disk"])
@given(first=STREAM, second=STREAM, stored=STREAM)
def test_every_row_is_in_one_share_and_meets_all_rows_of_its_first_number(
    held: int, first: Stream, second: Stream, stored: Stream
) -> None:
    shares: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]] = []

    def note(mine: Numbers, others: Iterable[Numbers]) -> bool:
        shares.append((pairs(mine), [pair for part in others for pair in pairs(part)]))
        return True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(numbers, "HELD_ROWS", held)
        patched.setattr(numbers, "BUCKET_ROWS", 1)
        patched.setattr(numbers, "GATHERED_ROWS", 3)
        rows = 1 + sum(map(len, [*first, *second]))
        assert holds(note, [columns(first), columns(second)], [columns(stored)], columns=2, rows=rows)

    assert sorted(pair for mine, _ in shares for pair in mine) == sorted(
        pair for part in first + second for pair in part
    )
    assert sorted(pair for _, others in shares for pair in others) == sorted(pair for part in stored for pair in part)
    firsts = [{first for first, _ in [*mine, *others]} for mine, others in shares]
    assert sum(map(len, firsts)) == len(set().union(*firsts))


@pytest.mark.parametrize("held", [10**6, 0], ids=["in memory", "on disk"])
def test_a_claim_that_fails_in_one_share_fails(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "HELD_ROWS", held)
    rows = [[(number << 56, number) for number in range(256)]]
    assert holds(lambda mine, _: 7 not in mine[1], [columns(rows)], [], columns=2, rows=256) is False
    assert holds(lambda mine, _: 300 not in mine[1], [columns(rows)], [], columns=2, rows=256) is True


def test_what_a_stream_raises_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "HELD_ROWS", 0)

    def broken() -> Iterable[Numbers]:
        yield from columns([[(1, 1)]])
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        holds(lambda _, __: True, [broken()], [], columns=2, rows=1)
