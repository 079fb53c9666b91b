"""Several DataFrames, one commit."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import TracebackType

from omnigraph_engine.errors import InvalidArgument
from omnigraph_engine.graph import GraphSchema
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.schema.model import EdgeType
from omnigraph_engine.write.endpoints import Endpoint, Endpoints
from omnigraph_engine.write.graph_transaction import Block, load_mode, refuse_mixed_modes
from omnigraph_engine.write.load import CommitReceipt, Load, LoadMode
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark import verbs
from omnigraph_spark.calls import Host, is_connect
from omnigraph_spark.frames import stage_frame, stage_json_frame
from omnigraph_spark.write import TableLoad

JOBS_AT_A_TIME = 4  # small tables are staged side by side; a large one keeps the cluster busy by itself


@dataclass(frozen=True)
class TableMetrics:
    """What was staged of one table, and what it took."""

    rows: int
    files: int
    bytes: int
    skipped: int = 0  # of the rows: edges that were left out because a node they name does not exist
    # "stage": its jobs (for JSON lines the one that all types share); "gather": joining what their tasks staged;
    # "commit": the commits of the table. Checks go across tables and are told in all only.
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Metrics:
    """What a transaction cost: for each table, and for all of it the seconds of each phase.

    ``seconds["stage"]`` is the time from the first load to the end of the last job; several may run at a time.
    """

    tables: dict[str, TableMetrics] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Staged:
    """What one job staged of one table."""

    table_load: TableLoad
    parts: Sequence[str]
    seconds: float


class Transaction:
    """Everything that is loaded inside the ``with`` block becomes visible at its end, as one commit.

    Each ``load`` starts a job that stages the DataFrame; the end of the block waits for all of them and raises the first
    error. An exception inside the block stops the jobs and leaves nothing visible.
    """

    def __init__(self, spark: SparkSession, host: Host, schema: GraphSchema, load: Load) -> None:
        self._spark = spark
        self._host = host
        self._schema = schema
        self._load = load
        self._jobs: list[Future[list[Staged]]] = []
        self._began: float | None = None
        self._modes: list[tuple[str, LoadMode]] = []
        self._pool = ThreadPoolExecutor(JOBS_AT_A_TIME, thread_name_prefix="omnigraph")
        self._tag = f"omnigraph-{uuid.uuid4()}"
        self._receipt: CommitReceipt | None = None
        self._block = Block()
        self.metrics = Metrics()

    def __enter__(self) -> Transaction:
        self._block.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._block.leave()
        if kind is not None:
            self._stop()
            return
        try:
            staged = [part for job in self._jobs for part in job.result()]
            refuse_mixed_modes([(part.table_load.table_key, part.table_load.mode) for part in staged])
        except BaseException:
            self._stop()
            raise
        self._pool.shutdown()
        staging = 0.0 if self._began is None else time.perf_counter() - self._began
        loads = [(part.table_load, part.parts) for part in staged]
        self._receipt = self._host.call(verbs.finish_load, self._load, loads)
        self.metrics = _metrics(staged, staging, self._receipt)

    @property
    def receipt(self) -> CommitReceipt:
        """What the commit did, once the block has ended."""
        if self._receipt is None:
            raise InvalidArgument(
                "The transaction is not committed.", hint="Its receipt is there after the with block."
            )
        return self._receipt

    @property
    def commit(self) -> GraphCommit | None:
        """The commit, once the block has ended; None when there was nothing to do."""
        return self.receipt.commit

    def load(
        self,
        type_name: str,
        frame: DataFrame,
        mode: LoadMode | str = LoadMode.APPEND,
        *,
        src: str = "src",
        dst: str = "dst",
        src_key: Sequence[str] | None = None,
        dst_key: Sequence[str] | None = None,
    ) -> None:
        """Stages a DataFrame of one type. Only ``append`` may be repeated for a type within one transaction.

        Args:
            type_name: The node or edge type, or its table key.
            frame: Its columns are properties of the type; ``id`` may be given, for edges ``src`` and ``dst`` must be.
            mode: append (an existing id is an error), merge (an existing row is replaced) or overwrite (all of the type).
                Edges have no key, so merging edges without an ``id`` column adds them.
            src: For edges: the column with the ids of the nodes they come from.
            dst: For edges: the column with the ids of the nodes they go to.
            src_key: Instead of ``src``: the columns with the key of that node, in the order of its declaration.
            dst_key: Instead of ``dst``: the same.
        """
        self._block.check_inside()
        table = self._schema.table_type(type_name)
        chosen = load_mode(mode)
        self._modes.append((table.table_key, chosen))
        refuse_mixed_modes(self._modes)
        endpoints = None
        if isinstance(table, EdgeType):
            endpoints = Endpoints(_endpoint(src, src_key), _endpoint(dst, dst_key))
        table_load = TableLoad(self._load, table.table_key, chosen, endpoints)
        table_load.check_columns(frame.schema)
        self._start(lambda: [(table_load, stage_frame(frame, table_load))])

    def load_json(self, lines: DataFrame, mode: LoadMode | str = LoadMode.APPEND) -> None:
        """Stages JSON lines of many types, one object per row of the one text column; the lines say which type they are of."""
        self._block.check_inside()
        chosen = load_mode(mode)

        def stage() -> list[tuple[TableLoad, Sequence[str]]]:
            parts = stage_json_frame(lines, self._load, chosen)
            return [(TableLoad(self._load, key, chosen, None), parts[key]) for key in sorted(parts)]

        self._start(stage)

    def _start(self, stage: Callable[[], Sequence[tuple[TableLoad, Sequence[str]]]]) -> None:
        def run() -> list[Staged]:
            started = time.perf_counter()
            _tag_jobs_of_this_thread(self._spark, self._tag)
            results = stage()
            staged = [Staged(table_load, parts, time.perf_counter() - started) for table_load, parts in results]
            if sys.stderr.isatty():
                _show(staged)
            return staged

        if self._began is None:
            self._began = time.perf_counter()
        if self._load.replayed is None:
            self._jobs.append(self._pool.submit(run))

    def _stop(self) -> None:
        """Ends the jobs of this transaction; what they have staged is garbage that nobody can see."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        _stop_jobs(self._spark, self._tag)
        self._pool.shutdown()


# In a classic session interruptTag knows only the tags that its own thread has added; the context knows them all.


def _tag_jobs_of_this_thread(spark: SparkSession, tag: str) -> None:
    if is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def _stop_jobs(spark: SparkSession, tag: str) -> None:
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def _by_table(staged: Sequence[Staged]) -> dict[str, TableMetrics]:
    tables: dict[str, TableMetrics] = {}
    for part in staged:
        fragments = [json.loads(text) for whole in part.parts for text in json.loads(whole)["new_fragments"]]
        files = [file for fragment in fragments for file in fragment["files"]]
        before = tables.get(part.table_load.table_key, TableMetrics(0, 0, 0))
        tables[part.table_load.table_key] = TableMetrics(
            rows=before.rows + sum(int(fragment["physical_rows"]) for fragment in fragments),
            files=before.files + len(files),
            bytes=before.bytes + sum(int(file["file_size_bytes"] or 0) for file in files),
            seconds={"stage": before.seconds.get("stage", 0.0) + part.seconds},
        )
    return tables


def _metrics(staged: Sequence[Staged], staging: float, receipt: CommitReceipt) -> Metrics:
    tables = {
        key: replace(
            table,
            skipped=receipt.tables[key].skipped if key in receipt.tables else 0,
            seconds=_added(table.seconds, receipt.table_seconds.get(key, {})),
        )
        for key, table in _by_table(staged).items()
    }
    return Metrics(tables, _added({"stage": staging}, receipt.seconds))


def _added(some: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    return {name: some.get(name, 0.0) + more.get(name, 0.0) for name in {**some, **more}}


def _show(staged: Sequence[Staged]) -> None:
    for key, table in _by_table(staged).items():
        print(  # noqa: T201 - progress, on a terminal only
            f"{key}: staged {table.rows:,} rows in {table.files} files, {table.bytes / 1e6:,.1f} MB, "
            f"{table.seconds['stage']:.1f} s",
            file=sys.stderr,
        )


def _endpoint(by_id: str, by_key: Sequence[str] | None) -> Endpoint:
    return Endpoint((by_id,)) if by_key is None else Endpoint(tuple(by_key), by_key=True)
