"""Reading one type: pin a version of its table, share its fragments out, stream them as Spark wants them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from omnigraph_engine.errors import InvalidArgument, TypeMismatch, UnknownProperty, did_you_mean
from omnigraph_engine.graph import Graph
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.table import FragmentInfo, Table, TableRef
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnigraph_spark.faults import clean_errors
from omnigraph_spark.options import ReadOptions, read_options
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


def pin(options: ReadOptions) -> PinnedTable:
    """The version of the table that the options mean now; what is committed later does not change it."""
    graph = Graph.open(options.address.uri, "ro", storage_options=options.address.storage_options)
    snapshot = graph.snapshot(
        branch=options.branch, commit=options.commit, version=options.version, timestamp=options.timestamp
    )
    table = snapshot.tables[options.address.table_key(snapshot.tables)].published
    return PinnedTable(graph.storage, TableRef(table.table_key, table.location, table.branch, table.version))


def pin_schema(given: Mapping[str, str]) -> tuple[PinnedTable, StructType]:
    """The pinned table of one ``load``, and the columns that it shows."""
    options = read_options(given)
    pinned = pin(options)
    return pinned, pinned.spark_schema(options.columns)


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


def plan_partitions(pinned: PinnedTable, options: ReadOptions) -> list[tuple[int, ...]]:
    """Which fragments each task reads. With a limit it is one task, which stops when it has enough."""
    fragments = pinned.open().fragments()
    if options.limit is not None:
        return [tuple(fragment.fragment_id for fragment in fragments)]
    return share_out(fragments, options.partition_rows)


def read_fragments(
    pinned: PinnedTable, options: ReadOptions, schema: StructType, fragment_ids: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The rows of these fragments as Spark takes them; memory is bounded by a few batches."""
    if not fragment_ids:
        return
    target = arrow_schema(schema)
    rows = pinned.open().scan(target.names, options.filter, options.limit, fragment_ids=fragment_ids)
    for batch in rows:
        yield conform_to_spark(batch, target)


def open_reader(given: Mapping[str, str], pinned: PinnedTable | None, schema: StructType) -> DataSourceReader:
    """A reader of the pinned table; where the user gave the schema nothing was pinned yet, so it is now."""
    options = read_options(given)
    pinned = pinned or pin(options)
    pinned.check_requested(schema, options.columns)
    pinned.check_filter(options.filter)
    return OmnigraphReader(pinned, options, schema)


class OmnigraphReader(DataSourceReader):
    def __init__(self, pinned: PinnedTable, options: ReadOptions, schema: StructType) -> None:
        self._pinned = pinned
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with clean_errors():
            return [InputPartition(fragment_ids) for fragment_ids in plan_partitions(self._pinned, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with clean_errors():
            yield from read_fragments(self._pinned, self._options, self._schema, partition.value)
