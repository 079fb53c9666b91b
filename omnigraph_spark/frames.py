"""DataFrames over a graph: scans as tasks of the session, and staging as jobs whose only result is what was staged.

Both go through ``mapInArrow``, in classic sessions and in Spark Connect alike. A typed error of a task is part of its answer
and raised in the caller's process as it is; were it raised in the task, Spark would repeat the task and keep the text only.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
from omnigraph_engine.errors import InvalidInput, OmnigraphError
from omnigraph_engine.write.jsonl import by_text, read_json_lines
from omnigraph_engine.write.load import Load, LoadMode
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from omnigraph_spark.calls import decoded, encode, is_connect
from omnigraph_spark.faults import clean_errors
from omnigraph_spark.options import PARTITION_ROWS
from omnigraph_spark.read import Scan
from omnigraph_spark.write import TableLoad

_STAGED = "table_key string, part string, error string"
_STAGED_ARROW = pa.schema([("table_key", pa.string()), ("part", pa.string()), ("error", pa.string())])


def scan_frame(spark: SparkSession, scan: Scan) -> DataFrame:
    """The rows of a scan, read by as many tasks as it has partitions."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with clean_errors():
            for batch in batches:
                for number in batch.column(0).to_numpy():
                    yield from scan.read(int(number))

    count = len(scan.partitions)
    return spark.range(0, count, 1, count).mapInArrow(read, scan.schema)


def default_partition_rows(spark: SparkSession, rows: int) -> int:
    """As many tasks as can run at a time: one more costs more than it brings. A Connect client does not know how many."""
    least = int(str(PARTITION_ROWS.default))
    return least if is_connect(spark) else max(least, -(-rows // spark.sparkContext.defaultParallelism))


def stage_frame(frame: DataFrame, table_load: TableLoad) -> list[str]:
    """Stages a DataFrame with one job; returns what its tasks staged."""
    table_load.check_columns(frame.schema)
    if table_load.mode is LoadMode.MERGE and not is_connect(frame.sparkSession):
        # Each task of a merge goes through the ids of the table once, so there are no more tasks than can run at a time.
        frame = frame.coalesce(frame.sparkSession.sparkContext.defaultParallelism)

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            part = table_load.stage(batches)
        except OmnigraphError as error:
            yield _answer(table_load.table_key, None, error)
        else:
            yield _answer(table_load.table_key, part, None)

    return [part for _, part in _collect(frame, stage)]


def stage_json_frame(lines: DataFrame, load: Load, mode: LoadMode) -> dict[str, list[str]]:
    """Stages JSON lines of many types, one line per row, with one job; returns what its tasks staged by table."""
    if len(lines.schema) != 1 or not isinstance(lines.schema[0].dataType, st.StringType):
        raise InvalidInput(
            f"The DataFrame has the columns ({', '.join(lines.columns)}).",
            hint="Give one column of text with a JSON object in each row, as spark.read.text makes.",
        )

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        texts = (text or "" for batch in batches for text in batch.column(0).to_pylist())
        try:
            for table_key, part in _stage_lines(texts, load, mode):
                yield _answer(table_key, part, None)
        except OmnigraphError as error:
            yield _answer("", None, error)

    staged: dict[str, list[str]] = {}
    for table_key, part in _collect(lines, stage):
        staged.setdefault(table_key, []).append(part)
    return staged


def _stage_lines(lines: Iterator[str], load: Load, mode: LoadMode) -> Iterator[tuple[str, str | None]]:
    """Types come mixed, and a table is staged in one go, so rows wait in a file for each type."""
    with ExitStack() as files:
        folder = files.enter_context(tempfile.TemporaryDirectory(prefix="omnigraph-"))
        writers: dict[str, pa.ipc.RecordBatchStreamWriter] = {}
        for table_key, batch in read_json_lines(lines, load.accepted, mark=by_text):
            if table_key not in writers:
                path = _path(folder, table_key)
                writers[table_key] = files.enter_context(pa.ipc.new_stream(path, batch.schema))
            writers[table_key].write_batch(batch)
        for table_key, writer in writers.items():
            writer.close()
            with pa.memory_map(_path(folder, table_key)) as file, pa.ipc.open_stream(file) as rows:
                yield table_key, load.stage_part(table_key, rows, mode)


def _path(folder: str, table_key: str) -> str:
    return os.path.join(folder, table_key.replace(":", "-"))


def _answer(table_key: str, part: str | None, error: OmnigraphError | None) -> pa.RecordBatch:
    row = {"table_key": table_key, "part": part, "error": None if error is None else encode(error)}
    return pa.RecordBatch.from_pylist([row], _STAGED_ARROW)


def _collect(frame: DataFrame, stage: object) -> Sequence[tuple[str, str]]:
    rows = frame.mapInArrow(stage, _STAGED).collect()  # type: ignore[arg-type]
    for row in rows:
        if row.error is not None:
            decoded(row.error)
    return [(row.table_key, row.part) for row in rows if row.part is not None]
