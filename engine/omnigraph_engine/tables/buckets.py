"""Bringing equal keys together in bounded memory.

Rules between rows (distinct ids, existing endpoints) compare keys of tables of any size. Up to ``BUCKET_ROWS`` rows they are
compared in memory. Beyond that both sides are dealt into buckets on disk by a hash of the key, so that equal keys meet in one
bucket, and one pair of buckets is in memory at a time. The hash only deals: keys are always compared as they are.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BUCKET_ROWS = 1_000_000
BUCKETS = 64

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def pair_up(
    incoming: Iterable[pa.RecordBatch], stored: Iterable[pa.RecordBatch], schema: pa.Schema, stored_schema: pa.Schema
) -> Iterator[tuple[pa.Table, Iterable[pa.RecordBatch]]]:
    """Pairs of incoming rows (a table) and stored rows (a stream) in which all rows of one key are together.

    The key is the first column, text without nulls, on either side. A stream must be used up before the next pair is asked
    for. ``stored`` is read once; ``incoming`` is read to its end before anything is yielded.
    """
    with ExitStack() as files:
        held: list[pa.RecordBatch] = []
        rows = 0
        spill: _Spill | None = None
        for batch in incoming:
            if spill is not None:
                spill.deal(batch)
                continue
            held.append(batch)
            rows += batch.num_rows
            if rows > BUCKET_ROWS:
                folder = files.enter_context(tempfile.TemporaryDirectory(prefix="omnigraph-"))
                spill = files.enter_context(closing(_Spill(folder, "incoming", schema)))
                while held:
                    spill.deal(held.pop())
        if spill is None:
            yield pa.Table.from_batches(held, schema), stored
            return
        spill.close()
        other = files.enter_context(closing(_Spill(folder, "stored", stored_schema)))
        for batch in stored:
            other.deal(batch)
        other.close()
        for number in range(BUCKETS):
            yield pa.Table.from_batches(spill.read(number), schema), other.read(number)


class _Spill:
    """Batches dealt into one file per bucket."""

    def __init__(self, folder: str, name: str, schema: pa.Schema) -> None:
        self._paths = [os.path.join(folder, f"{name}-{number}.arrow") for number in range(BUCKETS)]
        self._writers = [pa.ipc.new_stream(path, schema) for path in self._paths]

    def deal(self, batch: pa.RecordBatch) -> None:
        target = _bucket_numbers(batch.column(0))
        order = np.argsort(target, kind="stable")
        sorted_batch = batch.take(order)
        bounds = np.searchsorted(target[order], np.arange(BUCKETS + 1))
        for number in range(BUCKETS):
            start, end = int(bounds[number]), int(bounds[number + 1])
            if end > start:
                self._writers[number].write_batch(sorted_batch.slice(start, end - start))

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self._paths[number], "rb") as file, pa.ipc.open_stream(file) as reader:
            yield from reader


def _bucket_numbers(keys: pa.Array[Any]) -> npt.NDArray[np.uint64]:
    """Which bucket each key belongs to: a polynomial of its bytes, taken for all keys at once from running sums."""
    text = keys.cast(pa.large_string())
    buffers: list[Any] = text.buffers()
    _, offsets_buffer, data_buffer = buffers
    offsets = np.frombuffer(offsets_buffer, np.int64, len(text) + 1 + text.offset)[text.offset :]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer, np.uint8, last)[first:] if last > first else np.empty(0, np.uint8)
    powers = np.multiply.accumulate(np.full(len(data) + 1, _MULTIPLIER, np.uint64))
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(data.astype(np.uint64) * powers[:-1], out=sums[1:])
    starts, ends = offsets[:-1] - first, offsets[1:] - first
    # Dividing by the power at the start makes equal texts equal wherever they stand; the multiplier is odd, so it divides.
    inverse = np.multiply.accumulate(np.full(len(data) + 1, pow(int(_MULTIPLIER), -1, 2**64), np.uint64))
    mixed = (sums[ends] - sums[starts]) * inverse[starts]
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MULTIPLIER
    numbers: npt.NDArray[np.uint64] = (mixed >> np.uint64(32)) % np.uint64(BUCKETS)
    return numbers
