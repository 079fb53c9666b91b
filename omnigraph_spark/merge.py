"""Merging branches: in the process that commits, or, where many rows have to be read, by jobs.

A job deals the rows of one table's merge by their ids, so that all rows of an entity meet in one task. Rows travel in
batches as Arrow writes them: what a task stages is bit for bit what the source has, whatever its type. Spark's sort brings a
task one bucket after the other, so that it holds one bucket in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
from omnigraph_engine.branches.merge import MergeOptions, MergeResult
from omnigraph_engine.branches.table_merge import EntityMerge, MergePart, Origin, TableWork
from omnigraph_engine.errors import OmnigraphError
from omnigraph_engine.tables.buckets import dealt
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from omnigraph_spark import verbs
from omnigraph_spark.calls import Host, decoded, encode

JOB_ROWS = 500_000  # rows of a table that have to be read: for about so many a job costs less than reading them here
ROWS_PER_PART = 100_000  # about as many rows are read for each task that stages
MOST_PARTS = 256
BUCKETS_PER_PART = 16  # of which a task holds one at a time

_FAILED = -1  # stands where the origin of rows does

_CELLS = "bucket int, origin int, cell binary"
_CELLS_ARROW = pa.schema([("bucket", pa.int32()), ("origin", pa.int32())]).append(pa.field("cell", pa.binary()))
_PART = "part string, error string"
_PART_ARROW = pa.schema([("part", pa.string()), ("error", pa.string())])

_Cell = tuple[int, int, bytes]  # bucket, origin, rows


def merge(spark: SparkSession, host: Host, source: str, into: str, options: MergeOptions) -> MergeResult:
    """As the engine's ``Graph.merge``. When the target moves meanwhile, what the jobs staged is void and they run again."""
    step = host.call(verbs.begin_merge, source, into, options, JOB_ROWS)
    while not isinstance(step, MergeResult):
        under_way, works = step
        parts = {key: run_job(spark, work) for key, work in works.items()}
        step = host.call(verbs.go_on_with_merge, under_way, parts, JOB_ROWS)
    return step


def run_job(spark: SparkSession, work: TableWork) -> list[MergePart]:
    """Merges one table by entity. A task that dies leaves garbage, and another does its part anew."""
    shares, entities = work.shares, work.entities
    parts = max(1, min(MOST_PARTS, work.rows // ROWS_PER_PART))
    buckets = parts * BUCKETS_PER_PART

    def deal(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy():
                share = shares[int(number)]
                try:
                    for bucket, rows in dealt(work.read(share), entities.schema, buckets):
                        yield _cell(bucket, share.origin, rows.serialize().to_pybytes())
                except OmnigraphError as error:
                    yield _cell(0, _FAILED, encode(error).encode())

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, failure = None, None
        try:
            part = entities.stage_apart(_pairs(entities, batches)).to_json()
        except OmnigraphError as error:
            failure = encode(error)
        yield pa.RecordBatch.from_pylist([{"part": part, "error": failure}], _PART_ARROW)

    count = len(shares)
    cells = spark.range(0, count, 1, max(count, 1)).mapInArrow(deal, _CELLS)
    met = cells.repartitionById(parts, f.expr(f"bucket % {parts}")).sortWithinPartitions("bucket", "origin")
    rows = met.mapInArrow(stage, _PART).collect()
    for row in rows:
        if row.error is not None:
            decoded(row.error)
    return [MergePart.from_json(row.part) for row in rows]


def _cell(bucket: int, origin: int, cell: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"bucket": bucket, "origin": int(origin), "cell": cell}], _CELLS_ARROW)


def _pairs(
    entities: EntityMerge, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.Table, Iterator[pa.RecordBatch]]]:
    """The rows of the source and of the target, bucket after bucket; what the target alone has touched is passed over."""
    for _, of_bucket in groupby(_cells(batches), itemgetter(0)):
        given: pa.Table | None = None
        for origin, of_origin in groupby(of_bucket, itemgetter(1)):
            rows = _rows(of_origin, entities.schema)
            if origin != Origin.TARGET:
                given = pa.Table.from_batches(rows, entities.schema)
            elif given is not None:
                yield given, rows
                given = None
        if given is not None:
            yield given, iter(())


def _rows(cells: Iterator[_Cell], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for _, origin, cell in cells:
        if origin == _FAILED:
            decoded(cell.decode())
        yield pa.ipc.read_record_batch(pa.py_buffer(cell), schema)


def _cells(batches: Iterator[pa.RecordBatch]) -> Iterator[_Cell]:
    for batch in batches:
        for bucket, origin, cell in zip(*batch.columns, strict=True):
            yield bucket.as_py(), origin.as_py(), cell.as_py()
