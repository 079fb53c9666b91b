"""Claims about two sides of any size, told by columns of numbers: do they hold wherever equal first numbers meet?

Up to ``HELD_ROWS`` rows of the one side are held in memory while the other side streams by. Beyond that both are dealt into
buckets on disk by their first number, and a few buckets are in memory at a time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import IO

import numpy as np
import numpy.typing as npt

Numbers = Sequence[npt.NDArray[np.uint64]]  # columns of equal length; the first one deals
Claim = Callable[[Numbers, Iterable[Numbers]], bool]

HELD_ROWS = 512 * 1024
GATHERED_ROWS = 256 * 1024
BUCKET_ROWS = 64 * 1024  # about as many incoming rows share a bucket, which then fits into the processor's cache
MOST_BITS = 8  # of a bucket's number, by which rows are sorted as single bytes
THREADS = min(8, os.cpu_count() or 1)


def holds(
    claim: Claim, incoming: Sequence[Iterable[Numbers]], stored: Sequence[Iterable[Numbers]], *, columns: int, rows: int
) -> bool:
    """Whether ``claim(incoming, stored)`` holds for every share of both sides; rows of one first number are in one share.

    Args:
        claim: Gets all incoming rows of a share, and its stored rows as a stream. It may be called by several threads.
        incoming: Streams that are read side by side.
        stored: Those of the other side.
        columns: How many numbers a row has.
        rows: How many rows the incoming streams have together.
    """
    if rows <= HELD_ROWS:
        given = _joined(list(chain.from_iterable(incoming)), columns)
        return claim(given, _gathered(chain.from_iterable(stored), columns))
    bits = min(MOST_BITS, max(1, (rows // BUCKET_ROWS).bit_length()))
    with ExitStack() as held:
        files = [held.enter_context(tempfile.TemporaryFile(prefix="omnigraph-")) for _ in (*incoming, *stored)]
        pool = held.enter_context(ThreadPoolExecutor(THREADS))
        dealt = list(pool.map(partial(_deal, columns=columns, bits=bits), files, [*incoming, *stored]))

        def share(sides: Sequence[_Dealt], bucket: int) -> Numbers:
            return _joined([side.read(bucket) for side in sides], columns)

        def holds_in(bucket: int) -> bool:
            return claim(share(dealt[: len(incoming)], bucket), [share(dealt[len(incoming) :], bucket)])

        return all(pool.map(holds_in, range(2**bits)))


class _Dealt:
    """Rows on disk, in chunks that are ordered by bucket."""

    def __init__(self, file: IO[bytes], columns: int, bits: int) -> None:
        self._file = file
        self._columns = columns
        self._bits = bits
        self._chunks: list[tuple[int, npt.NDArray[np.int64]]] = []  # where each begins, and the bounds of its buckets
        self._size = 0

    def deal(self, rows: Numbers) -> None:
        buckets = (rows[0] >> np.uint64(64 - self._bits)).astype(np.uint8)
        order = np.argsort(buckets, kind="stable")
        self._file.writelines(column[order].data for column in rows)
        self._file.flush()  # reading goes past this buffer
        counts = np.bincount(buckets, minlength=2**self._bits)
        self._chunks.append((self._size, np.concatenate([[0], np.cumsum(counts)])))
        self._size += 8 * self._columns * len(order)

    def read(self, bucket: int) -> Numbers:
        return _joined([self._part(start, bounds, bucket) for start, bounds in self._chunks], self._columns)

    def _part(self, start: int, bounds: npt.NDArray[np.int64], bucket: int) -> Numbers:
        first, last, rows = int(bounds[bucket]), int(bounds[bucket + 1]), int(bounds[-1])
        places = [start + 8 * (column * rows + first) for column in range(self._columns)]
        return [np.frombuffer(os.pread(self._file.fileno(), 8 * (last - first), place), np.uint64) for place in places]


def _deal(file: IO[bytes], stream: Iterable[Numbers], *, columns: int, bits: int) -> _Dealt:
    dealt = _Dealt(file, columns, bits)
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
