"""Streams of batches: their rows by place, and in larger pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PLACED = pa.schema([pa.field("key", pa.string())]).append(pa.field("place", pa.int64()))

LARGER_ROWS = 64 * 1024
LARGER_BYTES = 16 * 1024 * 1024


def in_larger_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: encoding ten thousand rows at a time takes up to twice as long as many more."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= LARGER_ROWS or size >= LARGER_BYTES:
            yield _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def placed_keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first column of each batch, and the place of each of its values in the stream."""
    place = 0
    for batch in batches:
        places = pa.array(np.arange(place, place + batch.num_rows), pa.int64())
        place += batch.num_rows
        yield pa.RecordBatch.from_arrays([batch.column(0), places], schema=PLACED)


def rows_where(batches: Iterable[pa.RecordBatch], chosen: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    """The rows for whose place in the stream ``chosen`` says so, in their order."""
    place = 0
    for batch in batches:
        mask = chosen[place : place + batch.num_rows]
        place += batch.num_rows
        if mask.all():
            yield batch
        elif mask.any():
            yield batch.filter(pa.array(mask))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    joined: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]
    return joined
