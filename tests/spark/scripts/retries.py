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
from typing import Any

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
    merge_with_tasks_that_fail(spark, folder)
    spark.stop()


def merge_with_tasks_that_fail(spark: SparkSession, folder: Path) -> None:
    from omnigraph_engine.branches.table_merge import EntityMerge, MergePart, Share, TableWork  # noqa: PLC0415
    from omnigraph_engine.graph import Graph as EngineGraph  # noqa: PLC0415

    import omnigraph_spark.merge as spark_merge  # noqa: PLC0415 - as above
    from omnigraph_spark import Graph  # noqa: PLC0415

    marker = folder / "merge"

    class StagesTwice(EntityMerge):
        """The first attempt at a part dies when all is staged."""

        def stage_apart(self, pairs: Any) -> MergePart:
            part = super().stage_apart(pairs)
            once(Path(f"{marker}.staged"))
            return part

    class ReadsTwice(TableWork):
        """The first attempt to read rows dies after some have been passed on."""

        def read(self, share: Share) -> Batches:
            yield from super().read(share)
            once(Path(f"{marker}.read"))

    def disturbed(spark: SparkSession, work: TableWork) -> list[MergePart]:
        entities = StagesTwice(**vars(work.entities))
        return run_job(spark, ReadsTwice(**{**vars(work), "entities": entities}))

    run_job, spark_merge.run_job = spark_merge.run_job, disturbed
    spark_merge.JOB_ROWS, spark_merge.ROWS_PER_PART = 0, 300
    graph = EngineGraph.create(folder / "merge.omni", "node Person { name: String @key  age: I32? }")

    def put(branch: str, first: int, last: int, age: int) -> None:
        names = [str(number) for number in range(first, last)]
        rows = pa.table({"name": names, "age": pa.array([age] * len(names), pa.int32())})
        graph.load({"Person": rows}, mode="merge", branch=branch)

    put("main", 0, 1000, 0)
    graph.branches.create("dev")
    put("dev", 0, 400, 1)
    put("dev", 1000, 1100, 1)
    put("main", 900, 1000, 2)
    merged = Graph.open(spark, graph.uri).merge("dev")
    assert Path(f"{marker}.staged").exists()
    assert Path(f"{marker}.read").exists()
    person = merged.tables["node:Person"]
    assert (person.rows, person.inserted, person.updated, person.deleted) == (1100, 100, 400, 0)
    ages = [0 if number < 900 else 2 for number in range(1000)]
    ages = [1] * 400 + ages[400:] + [1] * 100
    shown = graph.snapshot().table("Person").to_arrow().to_pylist()
    assert sorted((int(row["id"]), row["age"]) for row in shown) == list(enumerate(ages))


def once(marker: Path) -> None:
    if not marker.exists():
        marker.touch()
        raise RuntimeError("the first attempt fails")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
