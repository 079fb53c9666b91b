"""What is different between two snapshots, as DataFrames: Spark reads the rows in question and joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from omnigraph_engine.branches.diff import TableDiff
from omnigraph_engine.tables.changes import RowChanges
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as st

from omnigraph_spark.faults import clean_errors
from omnigraph_spark.types import arrow_schema, conform_to_spark, spark_schema


@dataclass(frozen=True)
class TableChanges:
    """The rows of one type that may differ, and the columns to compare. Plain data."""

    rows: RowChanges
    columns: Sequence[str]
    schema: st.StructType

    @classmethod
    def of(cls, diff: TableDiff) -> TableChanges:
        changes = diff.row_changes()
        stored = changes.after.schema
        return cls(changes, diff.columns, spark_schema(pa.schema([stored.field(name) for name in diff.columns])))


def diff_frame(spark: SparkSession, changes: TableChanges) -> DataFrame:
    """``change`` (inserted, updated, deleted), ``id`` and the entity ``before`` and ``after``, where there was one."""
    before, after = _side(spark, changes, "lost"), _side(spark, changes, "came")
    both = before.select(f.col("id"), f.struct("*").alias("before")).join(
        after.select(f.col("id"), f.struct("*").alias("after")), "id", "full_outer"
    )
    change = f.when(f.col("before").isNull(), "inserted").when(f.col("after").isNull(), "deleted").otherwise("updated")
    differing = both.where(~f.col("before").eqNullSafe(f.col("after")))
    return differing.select(change.alias("change"), "id", "before", "after")


def _side(spark: SparkSession, changes: TableChanges, side: Literal["lost", "came"]) -> DataFrame:
    rows, columns, schema = changes.rows, list(changes.columns), arrow_schema(changes.schema)
    count = len(rows.lost_shares if side == "lost" else rows.came_shares)
    read: Callable[[list[str], int], Iterator[pa.RecordBatch]] = rows.lost if side == "lost" else rows.came

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with clean_errors():
            for batch in batches:
                for number in batch.column(0).to_numpy():
                    for found in read(columns, int(number)):
                        yield conform_to_spark(found, schema)

    return spark.range(0, count, 1, max(count, 1)).mapInArrow(scan, changes.schema)
