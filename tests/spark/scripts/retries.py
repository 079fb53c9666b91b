"""A driver whose tasks get four attempts: workers fail and die under it, and every write is right in the end.

Run by test_failures.py with the folder to work in; it ends with status 0 when all that it asserts holds.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

warnings.filterwarnings("ignore", message="lance is not fork-safe")

SCHEMA = "node Person { name: String @key }"
ROWS = 50_000
Batches = Iterator[pa.RecordBatch]


def fails_once(marker: Path) -> Callable[[Batches], Batches]:
    """Rows of which the first attempt to read them breaks off after some have been passed on."""

    def run(batches: Batches) -> Batches:
        for number, batch in enumerate(batches):
            if number == 2 and not marker.exists():
                marker.touch()
                raise RuntimeError("the first attempt fails")
            yield batch

    return run


def kills_the_writer_once(marker: Path) -> Callable[[Batches], Batches]:  # noqa: C901 - one closure, to travel
    """Rows in the middle of which the process that stages them is killed, once."""

    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])

    def staging_workers() -> list[int]:
        """The workers of this executor, other than this one, that have Lance loaded."""
        found = []
        for pid in (int(folder.name) for folder in Path("/proc").glob("[0-9]*")):
            try:
                ours = pid != os.getpid() and parent(parent(pid)) == parent(os.getppid())
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if ours else []
                if b"pyspark.worker" in command and "/lance/" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8"):
                    found.append(pid)
            except OSError:  # noqa: PERF203 - processes come and go
                continue
        return found

    def run(batches: Batches) -> Batches:
        for number, batch in enumerate(batches):
            if number == 2 and not marker.exists():
                while not (writers := staging_workers()):
                    time.sleep(0.01)
                marker.write_text(str(writers), encoding="utf-8")
                for pid in writers:
                    os.kill(pid, signal.SIGKILL)
            yield batch

    return run


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "5000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    from omnigraph_spark import Graph  # noqa: PLC0415 - Lance is loaded after the JVM was started

    def by_format(graph: Graph, rows: DataFrame) -> None:
        rows.write.format("omnigraph").option("node", "Person").mode("append").save(graph.uri)

    def by_transaction(graph: Graph, rows: DataFrame) -> None:
        with graph.transaction() as tx:
            tx.load("Person", rows)

    for disturb, write in ((kills_the_writer_once, by_format), (fails_once, by_transaction)):
        name = disturb.__name__
        marker = folder / f"{name}.marker"
        graph = Graph.create(spark, folder / f"{name}.omni", SCHEMA)
        rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id AS string) AS name")
        write(graph, rows.mapInArrow(disturb(marker), "name string"))
        assert marker.exists(), f"{name}: nothing was disturbed"
        assert len(graph.commits.list()) == 2, name
        assert graph.count("Person") == ROWS, name
        assert graph.read("Person").select("name").distinct().count() == ROWS, name
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
