"""Rows whose key other rows have, or have not, for tables of any size: streams in, streams out.

The key is the first column of either side, text without nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.tables.buckets import pair_up
from omnigraph_engine.tables.fingerprints import FingerprintSet, fingerprints

KEY = pa.schema([pa.field("key", pa.string())])


def keys_of(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """One column of each batch, as keys."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch[column]], schema=KEY)


def rows_with(
    rows: Iterable[pa.RecordBatch], keys: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows (of ``schema``) whose key is among ``keys``, which are streamed: cheap for few rows."""
    for given, stream in pair_up(rows, keys, schema, KEY):
        if given.num_rows:
            yield from given.filter(_among(given.column(0), stream)).to_batches()


def rows_without(
    rows: Iterable[pa.RecordBatch], keys: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows (of ``schema``) whose key is not among ``keys``, which are streamed: cheap for few rows."""
    for given, stream in pair_up(rows, keys, schema, KEY):
        if given.num_rows:
            yield from given.filter(pc.invert(_among(given.column(0), stream))).to_batches()


def rows_of(
    keys: Iterable[pa.RecordBatch], rows: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows (of ``schema``) whose key is among ``keys``. The rows are streamed: cheap for few keys."""
    for wanted, stream in pair_up(keys, rows, KEY, schema):
        if wanted.num_rows:
            value_set = wanted["key"].combine_chunks()
            for batch in candidates(wanted["key"], stream):
                yield batch.filter(pc.is_in(batch.column(0), value_set=value_set))


def _among(given: pa.ChunkedArray[Any], keys: Iterable[pa.RecordBatch]) -> Any:
    """Per given key whether it is among ``keys``, however often."""
    distinct = pc.unique(given)
    seen = np.zeros(len(distinct), np.bool_)
    for batch in candidates(pa.chunked_array([distinct]), keys):
        places = pc.index_in(batch.column(0), value_set=distinct).drop_null()
        seen[places.to_numpy(zero_copy_only=False)] = True
    return pc.is_in(given, value_set=distinct.filter(pa.array(seen)))


def candidates(keys: pa.ChunkedArray[Any], rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows whose key has the fingerprint of one of ``keys``: nearly always those that have one of the keys."""
    wanted = FingerprintSet(np.sort(fingerprints(keys.combine_chunks())))
    for batch in rows:
        found = wanted.contains(fingerprints(batch.column(0)))
        if found.any():
            yield batch.filter(pa.array(found))
