"""Claims about two sides of any size, told by columns of numbers: do they hold wherever equal first numbers meet?

Up to ``HELD_ROWS`` rows of the one side are held in memory while the other side streams by. Beyond that both are dealt into
buckets on disk by their first number, and a few buckets are in memory at a time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

Numbers = Sequence[npt.NDArray[np.uint64]]  # columns of equal length; the first one deals
Claim = Callable[[Numbers, Iterable[Numbers]], bool]

HELD_ROWS = 512 * 1024
GATHERED_ROWS = 256 * 1024
BUCKET_BITS = 8  # at the most: the numbers of buckets are sorted as single bytes
THREADS = 4


def holds(
    claim: Claim, incoming: Sequence[Iterable[Numbers]], stored: Iterable[Numbers], *, columns: int, rows: int
) -> bool:
    """Whether ``claim(incoming, stored)`` holds for every share of both sides; rows of one first number are in one share.

    Args:
        claim: Gets all incoming rows of a share, and its stored rows as a stream. It may be called by several threads.
        incoming: Streams that are read side by side.
        stored: The other side.
        columns: How many numbers a row has.
        rows: How many rows the incoming streams have together.
    """
    if rows <= HELD_ROWS:
        given = _joined([part for stream in incoming for part in stream], columns)
        return claim(given, _gathered(stored, columns))
    with tempfile.TemporaryDirectory(prefix="omnigraph-") as folder, ThreadPoolExecutor(THREADS) as pool:
        paths = [os.path.join(folder, str(number)) for number in range(len(incoming) + 1)]
        *mine, others = list(pool.map(partial(_deal, columns=columns), paths, [*incoming, stored]))

        def holds_in(bucket: int) -> bool:
            return claim(_joined([side.read(bucket) for side in mine], columns), [others.read(bucket)])

        return all(pool.map(holds_in, range(2**BUCKET_BITS)))


class _Dealt:
    """Rows on disk, in chunks that are ordered by bucket."""

    def __init__(self, path: str, columns: int) -> None:
        self._path = path
        self._columns = columns
        self._chunks: list[tuple[int, npt.NDArray[np.int64]]] = []  # where each begins, and the bounds of its buckets

    def deal(self, rows: Numbers) -> None:
        buckets = (rows[0] >> np.uint64(64 - BUCKET_BITS)).astype(np.uint8)
        order = np.argsort(buckets, kind="stable")
        with open(self._path, "ab") as file:
            start = file.tell()
            file.writelines(column[order].data for column in rows)
        counts = np.bincount(buckets, minlength=2**BUCKET_BITS)
        self._chunks.append((start, np.concatenate([[0], np.cumsum(counts)])))

    def read(self, bucket: int) -> Numbers:
        columns: list[list[npt.NDArray[np.uint64]]] = [[] for _ in range(self._columns)]
        for start, bounds in self._chunks:
            first, count, rows = int(bounds[bucket]), int(bounds[bucket + 1] - bounds[bucket]), int(bounds[-1])
            for place, found in enumerate(columns):
                found.append(np.fromfile(self._path, np.uint64, count, offset=start + 8 * (place * rows + first)))
        return _joined(list(zip(*columns, strict=True)), self._columns)


def _deal(path: str, stream: Iterable[Numbers], *, columns: int) -> _Dealt:
    dealt = _Dealt(path, columns)
    for rows in _gathered(stream, columns):
        dealt.deal(rows)
    return dealt


def _gathered(stream: Iterable[Numbers], columns: int) -> Iterator[Numbers]:
    """The same rows in fewer pieces."""
    held: list[Numbers] = []
    count = 0
    for part in stream:
        held.append(part)
        count += len(part[0])
        if count >= GATHERED_ROWS:
            yield _joined(held, columns)
            held, count = [], 0
    if held:
        yield _joined(held, columns)


def _joined(parts: Sequence[Numbers], columns: int) -> Numbers:
    return [np.concatenate([np.empty(0, np.uint64), *(part[place] for part in parts)]) for place in range(columns)]
