"""Bringing equal keys together in bounded memory.

Rules between rows (existing endpoints, unique values) compare keys of tables of any size. Up to ``HELD_ROWS`` rows and
``HELD_BYTES`` of them are compared in memory. Beyond that both sides are dealt into buckets on disk by a fingerprint of the
key, so that equal keys meet in one bucket, and one pair of buckets is in memory at a time. That is not for memory alone: a
bucket fits into the processor's cache, and comparing with millions of keys at once takes several times as long. Fingerprints
only deal: keys are always compared as they are.

Rows that many workers compare are dealt in the same way (``dealt``); what brings their buckets together is not this module's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.tables.fingerprints import fingerprints

HELD_ROWS = 256 * 1024
HELD_BYTES = 64 * 1024 * 1024
BUCKETS = 256


def pair_up(
    incoming: Iterable[pa.RecordBatch], stored: Iterable[pa.RecordBatch], schema: pa.Schema, stored_schema: pa.Schema
) -> Iterator[tuple[pa.Table, Iterable[pa.RecordBatch]]]:
    """Pairs of incoming rows (a table) and stored rows (a stream) in which all rows of one key are together.

    The key is the first column, text without nulls, on either side. A stream must be used up before the next pair is asked
    for. ``stored`` is read once; ``incoming`` is read to its end before anything is yielded.
    """
    with ExitStack() as files:
        held = _Held()
        spill: _Spill | None = None
        for batch in incoming:
            held.add(batch)
            if held.full:
                if spill is None:
                    folder = files.enter_context(tempfile.TemporaryDirectory(prefix="omnigraph-"))
                    spill = files.enter_context(closing(_Spill(os.path.join(folder, "incoming"), schema)))
                spill.deal(held.take())
        if spill is None:
            yield pa.Table.from_batches(held.take(), schema), stored
            return
        spill.deal(held.take())
        other = files.enter_context(closing(_Spill(os.path.join(folder, "stored"), stored_schema)))
        for batch in stored:
            held.add(batch)
            if held.full:
                other.deal(held.take())
        other.deal(held.take())
        for number in range(BUCKETS):
            yield pa.Table.from_batches(spill.read(number), schema), other.read(number)


def dealt(batches: Iterable[pa.RecordBatch], schema: pa.Schema, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """All rows, by the number of the bucket of their key, which is the first column; as many at a time as may be held."""
    held = _Held()
    for batch in batches:
        held.add(batch)
        if held.full:
            yield from _deal(held.take(), schema, buckets)
    yield from _deal(held.take(), schema, buckets)


class _Held:
    """Batches in memory, up to as many as may be there."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self._rows > HELD_ROWS or self._bytes > HELD_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def take(self) -> list[pa.RecordBatch]:
        taken = self._batches
        self._batches, self._rows, self._bytes = [], 0, 0
        return taken


class _Spill:
    """Rows dealt into buckets, all in one file, however many buckets there are."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._file = pa.OSFile(path, "wb")
        self._writer = pa.ipc.new_file(self._file, schema)
        self._batches_of: list[list[int]] = [[] for _ in range(BUCKETS)]
        self._written = 0
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def deal(self, batches: list[pa.RecordBatch]) -> None:
        for number, part in _deal(batches, self._schema, BUCKETS):
            self._writer.write_batch(part)
            self._batches_of[number].append(self._written)
            self._written += 1

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        if self._reader is None:
            self.close()
            # Not mapped into memory, where pages that were read would count as ours.
            self._file = pa.OSFile(self._path, "rb")
            self._reader = pa.ipc.open_file(self._file)
        for place in self._batches_of[number]:
            yield self._reader.get_batch(place)

    def close(self) -> None:
        if self._reader is None:
            self._writer.close()
        self._file.close()


def _deal(batches: list[pa.RecordBatch], schema: pa.Schema, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    if not batches:
        return
    numbers = np.concatenate([_bucket_numbers(batch, buckets) for batch in batches])
    order = np.argsort(numbers, kind="stable")
    in_order = pa.Table.from_batches(batches, schema).combine_chunks().take(order)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=buckets))])
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        start, end = int(bounds[number]), int(bounds[number + 1])
        for part in in_order.slice(start, end - start).to_batches():
            yield number, part


def _bucket_numbers(batch: pa.RecordBatch, buckets: int) -> npt.NDArray[np.uint8 | np.uint16]:
    numbers: npt.NDArray[np.uint64] = fingerprints(batch.column(0)) % np.uint64(buckets)
    # Numbers of one or two bytes are sorted by counting.
    return numbers.astype(np.uint8 if buckets <= 256 else np.uint16)
