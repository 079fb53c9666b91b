"""Bringing equal keys together in bounded memory.

Rules between rows (existing endpoints, unique values) compare keys of tables of any size. Up to ``HELD_ROWS`` rows and
``HELD_BYTES`` of them are compared in memory. Beyond that both sides are dealt into buckets on disk by a fingerprint of the
key, so that equal keys meet in one bucket, and one pair of buckets is in memory at a time. Fingerprints only deal: keys are
always compared as they are.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing

import numpy as np
import pyarrow as pa

from omnigraph_engine.tables.fingerprints import fingerprints

HELD_ROWS = 12_000_000
HELD_BYTES = 256 * 1024 * 1024
BUCKETS = 64


def pair_up(
    incoming: Iterable[pa.RecordBatch], stored: Iterable[pa.RecordBatch], schema: pa.Schema, stored_schema: pa.Schema
) -> Iterator[tuple[pa.Table, Iterable[pa.RecordBatch]]]:
    """Pairs of incoming rows (a table) and stored rows (a stream) in which all rows of one key are together.

    The key is the first column, text without nulls, on either side. A stream must be used up before the next pair is asked
    for. ``stored`` is read once; ``incoming`` is read to its end before anything is yielded.
    """
    with ExitStack() as files:
        held: list[pa.RecordBatch] = []
        rows = size = 0
        spill: _Spill | None = None
        for batch in incoming:
            if spill is not None:
                spill.deal(batch)
                continue
            held.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows > HELD_ROWS or size > HELD_BYTES:
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
        target = fingerprints(batch.column(0)) % np.uint64(BUCKETS)
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
