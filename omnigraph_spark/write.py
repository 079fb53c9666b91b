"""Writing one type: capture the state on the driver, stage on the executors, check and commit on the driver.

What travels: the ``Load`` that was captured once, to every task and to the commit; and from each task one message, whose
size follows its fragments, never its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from omnigraph_engine.errors import InvalidArgument
from omnigraph_engine.graph import Graph
from omnigraph_engine.schema.model import EdgeType
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.write.conform import conform
from omnigraph_engine.write.endpoints import Endpoints, with_endpoints
from omnigraph_engine.write.load import Load, LoadMode
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph_spark.faults import clean_errors
from omnigraph_spark.options import write_options
from omnigraph_spark.types import arrow_schema


@dataclass
class StagedPartition(WriterCommitMessage):
    """What one task staged, as text, or None when it had no rows."""

    staged: str | None


@dataclass(frozen=True)
class TableLoad:
    """How rows of one type are loaded: all that a task needs to stage its share. Plain data, to travel."""

    load: Load
    table_key: str
    mode: LoadMode
    endpoints: Endpoints | None  # for edges

    def check_columns(self, schema: StructType) -> None:
        """Raises when a DataFrame of this schema cannot be loaded, before any task runs."""
        accepted, table = self.load.accepted, self.load.table_type(self.table_key)
        conform(self._with_endpoints(pa.RecordBatch.from_pylist([], arrow_schema(schema))), accepted, table)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> str | None:
        """Streams one task's rows into files that nobody can see. A task that dies leaves garbage, for cleanup to collect."""
        first = next(batches, None)
        if first is None:
            return None
        return self.load.stage_part(self.table_key, map(self._with_endpoints, chain([first], batches)), self.mode)

    def gather(self, parts: Iterable[str | None]) -> StagedWrite | None:
        return self.load.gather(self.table_key, [part for part in parts if part is not None], self.mode)

    def _with_endpoints(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        table = self.load.table_type(self.table_key)
        if self.endpoints is None or not isinstance(table, EdgeType):
            return batch
        return with_endpoints(batch, self.load.accepted, table, self.endpoints)


def open_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """A writer bound to the graph as it is now. A DataFrame whose columns do not fit is refused before any task runs."""
    options = write_options(given)
    if overwrite and options.load is LoadMode.MERGE:
        raise InvalidArgument(
            "mode overwrite replaces the whole type, and the option load is merge.",
            hint='Use mode("append") to merge rows into those that exist.',
        )
    graph = Graph.open(options.address.uri, storage_options=options.address.storage_options)
    types = {table.table_key: table for table in graph.schema.catalog.table_types()}
    load = graph.begin_load(
        options.branch,
        actor=options.actor,
        message=options.message,
        txn_app_id=options.txn_app_id,
        txn_version=options.txn_version,
        max_rows_per_file=options.max_rows_per_file,
        skip_dangling=options.skip_dangling,
    )
    mode = LoadMode.OVERWRITE if overwrite else options.load
    table_load = TableLoad(load, options.target.table_key(types), mode, options.endpoints)
    table_load.check_columns(schema)
    return OmnigraphWriter(table_load)


class OmnigraphWriter(DataSourceArrowWriter):
    def __init__(self, table_load: TableLoad) -> None:
        self._table_load = table_load

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        with clean_errors():
            return StagedPartition(self._table_load.stage(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with clean_errors():
            parts = [message.staged for message in messages if isinstance(message, StagedPartition)]
            staged = self._table_load.gather(parts)
            self._table_load.load.commit([] if staged is None else [staged])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Deletes nothing: Spark calls this after a failed commit too, whose files may have been published."""
