"""The same rows through Spark into a graph and into parquet, side by side: load, read, count, upsert; time and memory."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lance
from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
node Item {
    number: I64 @key
    bucket: I32
    name: String
    score: F64
    at: DateTime
    flag: Bool
}
edge Follows: Item -> Item { weight: I32 }
"""
ROWS = (2_000_000, 10_000_000)
TASKS = 4
ROUNDS = 2  # the better one counts

Say = Callable[[str, str, str], None]


def measure(folder: Path, say: Say) -> None:
    spark = _session()
    for rows in ROWS:
        _measure(spark, folder / str(rows), rows, say)
    spark.stop()


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parents[1] / "conf"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        spark = SparkSession.builder.config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1000).mapInArrow(lambda batches: batches, "id long").count()  # workers are started and warm
    return spark


def _measure(spark: SparkSession, folder: Path, rows: int, say: Say) -> None:
    from omnigraph_spark import Graph  # noqa: PLC0415 - Lance is not to be there when the session starts

    size = f"{rows // 1_000_000}M"
    items, edges = _items(spark, rows), _edges(spark, rows)
    parquet, edge_parquet = str(folder / "items.parquet"), str(folder / "edges.parquet")
    items.write.format("noop").mode("overwrite").save()

    def create(name: str) -> Graph:
        return Graph.create(spark, folder / name, SCHEMA)

    graphs = [create(f"graph{number}.omni") for number in range(ROUNDS)]

    def load(graph: Graph) -> None:
        with graph.transaction() as tx:
            tx.load("Item", items)

    def load_edges(graph: Graph) -> None:
        with graph.transaction() as tx:
            tx.load("Follows", edges)

    with _peaks() as node_peaks:
        ours = [_timed(lambda graph=graph: load(graph)) for graph in graphs]  # type: ignore[misc]
    theirs = [_timed(lambda: items.write.mode("overwrite").parquet(parquet)) for _ in range(ROUNDS)]
    _ratio(say, f"{size} keyed nodes, all checks / parquet write", ours, theirs, "at most 1.0x")
    say(f"{size} node load, peak of the driver's Python", f"{node_peaks.driver / 1e6:.0f} MB", "flat")
    say(f"{size} node load, peak of one worker", f"{node_peaks.worker / 1e6:.0f} MB", "flat")

    with _peaks() as edge_peaks:
        ours = [_timed(lambda graph=graph: load_edges(graph)) for graph in graphs]  # type: ignore[misc]
    theirs = [_timed(lambda: edges.write.mode("overwrite").parquet(edge_parquet)) for _ in range(ROUNDS)]
    _ratio(say, f"{size} edges, endpoint checks / parquet write", ours, theirs, "at most 1.5x")
    say(f"{size} edge load, peak of the driver's Python", f"{edge_peaks.driver / 1e6:.0f} MB", "flat")

    graph = graphs[0]
    columns = ["number", "bucket", "name", "score", "at", "flag"]
    every = "sum(number), sum(bucket), max(name), sum(score), max(at), count_if(flag)"

    def read(frame: DataFrame, *aggregates: str) -> float:
        return _timed(lambda: frame.selectExpr(*aggregates).collect())

    ours = [read(graph.read("Item", columns=columns), *every.split(", ")) for _ in range(ROUNDS + 1)]
    theirs = [read(spark.read.parquet(parquet), *every.split(", ")) for _ in range(ROUNDS + 1)]
    _ratio(say, f"{size} full-width read / parquet read", ours, theirs, "at most 1.25x")
    ours = [read(graph.read("Item", columns=["score"]), "sum(score)") for _ in range(ROUNDS + 1)]
    theirs = [read(spark.read.parquet(parquet), "sum(score)") for _ in range(ROUNDS + 1)]
    _ratio(say, f"{size} one column / parquet", ours, theirs, "at most 1.5x")
    ours = [_timed(lambda: graph.count("Item")) for _ in range(ROUNDS + 1)]
    theirs = [_timed(lambda: spark.read.parquet(parquet).count()) for _ in range(ROUNDS + 1)]
    _ratio(say, f"{size} count / parquet count", ours, theirs, "at most 0.2x")
    snapshot = graph.snapshot()
    address = f"{graph.uri}/{snapshot._snapshot.table('Item').published.location}"  # noqa: SLF001
    raw = _timed(lambda: sum(batch.num_rows for batch in lance.dataset(address).to_batches(columns=columns)))
    say(f"{size} full-width scan by raw Lance, no Spark", f"{raw:.2f} s", "for comparison")

    changed = items.where(f"number % 100 = {rows % 97}").selectExpr(
        "number", "bucket", "name", "score + 1 AS score", "at", "flag"
    )

    def upsert(graph: Graph) -> None:
        with graph.transaction() as tx:
            tx.load("Item", changed, mode="merge")

    ours = [_timed(lambda graph=graph: upsert(graph)) for graph in graphs]  # type: ignore[misc]
    theirs = [_timed(lambda: items.write.mode("overwrite").parquet(parquet + ".again"))]
    _ratio(say, f"{size} upsert of 1% / rewriting as parquet", ours, theirs, "at most 0.25x")


def _items(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, TASKS).selectExpr(
        "id AS number",
        "CAST(id % 1000 AS INT) AS bucket",
        "CONCAT('item-', CAST(id * 2654435761 % 4294967296 AS STRING)) AS name",
        "id / 7.0D AS score",
        "TIMESTAMP_MILLIS(1700000000000 + id) AS at",
        "id % 3 = 0 AS flag",
    )


def _edges(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, TASKS).selectExpr(
        "CAST(id AS STRING) AS src",
        f"CAST(id * 7919 % {rows} AS STRING) AS dst",
        "CAST(id % 100 AS INT) AS weight",
    )


def _ratio(say: Say, what: str, ours: list[float], theirs: list[float], target: str) -> None:
    mine, other = min(ours), min(theirs)
    say(what, f"{mine / other:.2f}x", f"{mine:.2f} s against {other:.2f} s; target {target}")


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class _Peaks:
    """The most resident memory seen of this process, and of any one of Spark's Python workers, in bytes."""

    def __init__(self) -> None:
        self.driver = 0
        self.worker = 0

    def look(self) -> None:
        self.driver = max(self.driver, _resident(os.getpid()))
        for entry in os.listdir("/proc"):
            if entry.isdigit() and "pyspark.daemon" in _command(int(entry)):
                self.worker = max(self.worker, _resident(int(entry)))


@contextmanager
def _peaks() -> Iterator[_Peaks]:
    peaks, done = _Peaks(), threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            peaks.look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        done.set()
        watcher.join()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
