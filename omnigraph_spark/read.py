"""Reading: pin a version of a table, share its fragments out, stream them as Spark wants them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from omnigraph_engine.arguments import whole_number
from omnigraph_engine.errors import InvalidArgument, TypeMismatch, UnknownProperty, did_you_mean
from omnigraph_engine.graph import Graph
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.table import FragmentInfo, Table, TableRef
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnigraph_spark.calls import ANSWER, answer_call
from omnigraph_spark.faults import clean_errors
from omnigraph_spark.metadata import metadata_table
from omnigraph_spark.options import COLUMNS, FILTER, LIMIT, ReadOptions, TypeName, read_options
from omnigraph_spark.types import arrow_schema, conform_to_spark, spark_schema


@dataclass(frozen=True)
class PinnedTable:
    """One version of one table: plain data that travels between Spark's processes, and never moves on."""

    storage: Storage
    ref: TableRef

    def open(self) -> Table:
        return Table(self.storage, self.ref)

    def spark_schema(self, columns: Sequence[str] | None) -> StructType:
        """The columns asked for, in the order asked for; all of them in stored order by default."""
        whole = spark_schema(self.open().schema)
        if columns is None:
            return whole
        self._refuse_unknown(columns, whole)
        if len(set(columns)) < len(columns):
            raise InvalidArgument(
                f"The columns ({', '.join(columns)}) are not distinct.", hint="Name each column once."
            )
        return StructType([whole[name] for name in columns])

    def check_requested(self, schema: StructType, columns: Sequence[str] | None) -> None:
        """Raises unless ``schema``, which the user may have given, is made of this table's columns."""
        whole = spark_schema(self.open().schema)
        self._refuse_unknown(schema.names, whole)
        if not schema.names or (columns is not None and list(columns) != schema.names):
            raise InvalidArgument(
                f"The schema has the columns ({', '.join(schema.names)})"
                + (f", the option columns says ({', '.join(columns)})." if columns is not None else "."),
                hint="Choose columns by .schema(...) or by the option columns, one of them.",
            )
        for field in schema:
            found, expected = field.dataType.simpleString(), whole[field.name].dataType.simpleString()
            if found != expected:
                raise TypeMismatch(
                    f"{self.ref.table_key}.{field.name} is {expected}; the given schema says {found}.",
                    details={"column": field.name, "found": found, "expected": expected},
                    hint="A given schema chooses columns and converts nothing: cast after load().",
                )

    def check_filter(self, text: str | None) -> None:
        """Raises unless ``text`` is a filter that works on this table: better here than in every task."""
        if text is not None:
            self.open().scan(["id"], text, limit=0).read_all()

    def _refuse_unknown(self, names: Sequence[str], whole: StructType) -> None:
        for name in names:
            if name not in whole.names:
                raise UnknownProperty(
                    f"{self.ref.table_key} has no column '{name}'.",
                    details={"table_key": self.ref.table_key, "column": name},
                    hint=did_you_mean(name, whole.names) or f"Columns: {', '.join(whole.names)}.",
                )


def pin(options: ReadOptions, target: TypeName) -> PinnedTable:
    """The version of the table that the options mean now; what is committed later does not change it."""
    graph, snapshot = open_snapshot(options)
    return PinnedTable(graph.storage, snapshot.tables[target.table_key(snapshot.tables)].ref)


def open_snapshot(options: ReadOptions) -> tuple[Graph, Snapshot]:
    graph = Graph.open(options.address.uri, "ro", storage_options=options.address.storage_options)
    snapshot = graph.snapshot(
        branch=options.branch, commit=options.commit, version=options.version, timestamp=options.timestamp
    )
    return graph, snapshot


def share_out(fragments: Sequence[FragmentInfo], rows_per_partition: int) -> list[tuple[int, ...]]:
    """Every fragment in exactly one partition, in stored order; one empty partition when there is no fragment."""
    partitions: list[list[int]] = [[]]
    rows = 0
    for fragment in fragments:
        if partitions[-1] and rows + fragment.rows > rows_per_partition:
            partitions.append([])
            rows = 0
        partitions[-1].append(fragment.fragment_id)
        rows += fragment.rows
    return [tuple(partition) for partition in partitions]


@dataclass(frozen=True)
class Scan:
    """What is read of a pinned table, and how it is shared out over tasks. Plain data."""

    pinned: PinnedTable
    schema: StructType
    filter: str | None
    limit: int | None
    partitions: tuple[tuple[int, ...], ...]  # of fragment numbers

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one partition as Spark takes them; memory is bounded by a few batches."""
        fragment_ids = self.partitions[number]
        if not fragment_ids:
            return
        target = arrow_schema(self.schema)
        for batch in self.pinned.open().scan(target.names, self.filter, self.limit, fragment_ids=fragment_ids):
            yield conform_to_spark(batch, target)


def plan_scan(
    pinned: PinnedTable,
    schema: StructType,
    filter: str | None,  # noqa: A002 - the word that pyarrow, Lance and Spark users know
    limit: int | None,
    partition_rows: int,
) -> Scan:
    """Which fragments each task reads. With a limit it is one task, which stops when it has enough."""
    pinned.check_filter(filter)
    if limit is not None:
        whole_number("limit", limit, least=0)
    whole_number("partition_rows", partition_rows, least=1)
    fragments = pinned.open().fragments()
    if limit is not None:
        partitions = [tuple(fragment.fragment_id for fragment in fragments)]
    else:
        partitions = share_out(fragments, partition_rows)
    return Scan(pinned, schema, filter, limit, tuple(partitions))


@dataclass(frozen=True)
class Loaded:
    """What one ``load()`` means: pinned by ``schema()``, and carried to the reader."""

    schema: StructType
    pinned: PinnedTable | None = None  # a type
    rows: pa.Table | None = None  # or a table about the graph, which is small


def pin_load(given: Mapping[str, str]) -> Loaded:
    options = read_options(given)
    if options.call is not None:
        return Loaded(ANSWER)
    if isinstance(options.target, TypeName):
        pinned = pin(options, options.target)
        return Loaded(pinned.spark_schema(options.columns), pinned)
    table = metadata_table(options.target)
    for option, value in ((COLUMNS, options.columns), (FILTER, options.filter), (LIMIT, options.limit)):
        if value is not None:
            raise InvalidArgument(
                f"The option {option.name} is for node and edge types, and '{options.target}' is about the graph.",
                hint="It is small: use select, where and limit.",
            )
    return Loaded(table.schema, rows=table.to_arrow(*open_snapshot(options)))


def open_reader(given: Mapping[str, str], loaded: Loaded | None, schema: StructType) -> DataSourceReader:
    """A reader of what was pinned; where the user gave the schema nothing was pinned yet, so it is now."""
    options = read_options(given)
    if options.call is not None:
        return AnswerReader(options.call)
    loaded = loaded or pin_load(given)
    if loaded.pinned is not None:
        loaded.pinned.check_requested(schema, options.columns)
        return ScanReader(plan_scan(loaded.pinned, schema, options.filter, options.limit, options.partition_rows))
    if schema != loaded.schema:
        raise InvalidArgument(
            f"The schema of the table '{options.target}' cannot be chosen.", hint="Use select after load()."
        )
    return RowsReader(loaded.rows)


class ScanReader(DataSourceReader):
    """Rows of a node or edge type."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(len(self._scan.partitions))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with clean_errors():
            yield from self._scan.read(partition.value)


class RowsReader(DataSourceReader):
    """Rows that are known already."""

    def __init__(self, rows: pa.Table | None) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, _partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._rows is not None:
            yield from self._rows.to_batches()


class AnswerReader(DataSourceReader):
    """The one row that answers a call."""

    def __init__(self, call: str) -> None:
        self._call = call

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, _partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield answer_call(self._call)
