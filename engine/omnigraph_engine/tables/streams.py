"""Rows of a stream of batches, by their place in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PLACED = pa.schema([pa.field("key", pa.string())]).append(pa.field("place", pa.int64()))


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
