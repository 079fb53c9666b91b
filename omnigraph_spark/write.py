"""Writing one type: capture the state on the driver, stage on the executors, check and commit on the driver.

What travels: the ``Load`` that was captured once, to every task and to the commit; and from each task one message, whose
size follows its fragments, never its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.write.conform import conform
from omnigraph_engine.write.load import CommitReceipt, Load, LoadMode
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph_spark.faults import clean_errors
from omnigraph_spark.options import write_options
from omnigraph_spark.types import arrow_schema


@dataclass
class StagedPartition(WriterCommitMessage):
    """What one task staged: a ``StagedWrite`` as JSON text, or None when it had no rows."""

    staged: str | None


def open_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """A writer bound to the graph as it is now. A DataFrame whose columns do not fit is refused before any task runs."""
    options = write_options(given)
    graph = Graph.open(options.address.uri, storage_options=options.address.storage_options)
    types = {table.table_key: table for table in graph.schema.catalog.table_types()}
    table_key = options.address.table_key(types)
    conform(pa.RecordBatch.from_pylist([], arrow_schema(schema)), graph.schema.accepted, types[table_key])
    mode = LoadMode.OVERWRITE if overwrite else LoadMode.APPEND
    load = graph.begin_load(
        options.branch,
        actor=options.actor,
        message=options.message,
        txn_app_id=options.txn_app_id,
        txn_version=options.txn_version,
        max_rows_per_file=options.max_rows_per_file,
    )
    return OmnigraphWriter(load, table_key, mode)


def stage_partition(load: Load, table_key: str, mode: LoadMode, batches: Iterator[pa.RecordBatch]) -> str | None:
    """Streams one task's rows into files that nobody can see. A task that dies leaves garbage, for cleanup to collect."""
    first = next(batches, None)
    if first is None:
        return None
    staged = load.stage(table_key, chain([first], batches), mode)
    return None if staged is None else staged.to_json()


def commit_partitions(load: Load, table_key: str, mode: LoadMode, messages: Sequence[str | None]) -> CommitReceipt:
    """All tasks' rows are visible as one commit, or none is. Overwriting with no rows empties the type."""
    parts = [StagedWrite.from_json(text) for text in messages if text is not None]
    if not parts and (nothing := load.stage(table_key, (), mode)) is not None:
        parts.append(nothing)
    return load.commit(parts)


class OmnigraphWriter(DataSourceArrowWriter):
    def __init__(self, load: Load, table_key: str, mode: LoadMode) -> None:
        self._load = load
        self._table_key = table_key
        self._mode = mode

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        with clean_errors():
            return StagedPartition(stage_partition(self._load, self._table_key, self._mode, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with clean_errors():
            staged = [message.staged for message in messages if isinstance(message, StagedPartition)]
            commit_partitions(self._load, self._table_key, self._mode, staged)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Deletes nothing: Spark calls this after a failed commit too, whose files may have been published."""
