"""What goes wrong around a write, with real Spark: tasks, workers, jobs, commits and drivers that do not get to their end."""

# ruff: noqa: PT012 - a transaction is a block, and what raises is its end
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from omnigraph_engine.errors import DuplicateKey, MissingEndpoint
from omnigraph_engine.failpoints import faults, installed
from omnigraph_engine.graph import Graph as EngineGraph
from omnigraph_engine.tables.files import FileKind
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from omnigraph_spark import Graph
from omnigraph_spark.write import OmnigraphWriter, open_writer

Write = Callable[..., None]

SCRIPTS = Path(__file__).parent / "scripts"


def run(script: str, argument: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A driver of its own."""
    return subprocess.run(
        [sys.executable, SCRIPTS / script, argument],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )


def names(graph: EngineGraph) -> list[str]:
    return sorted(graph.snapshot().table("Person").to_arrow(["name"])["name"].to_pylist())


def people(spark: SparkSession, *some: str) -> DataFrame:
    return spark.createDataFrame([(name,) for name in some], "name string")


# -- tasks and workers ----------------------------------------------------------------------------------------


@pytest.mark.spark
def test_tasks_that_fail_and_workers_that_are_killed_are_tried_again_and_every_row_comes_once(tmp_path: Path) -> None:
    done = run("retries.py", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list(tmp_path.glob("*.marker"))) == 2


# -- jobs that are cancelled ----------------------------------------------------------------------------------


@contextmanager
def cancelled_once_it_runs(spark: SparkSession, folder: Path) -> Iterator[Callable[[Any], Any]]:
    """The function to feed a write with: it passes one batch on, and then all jobs are cancelled from another thread."""
    begun, over = folder / "begun", folder / "over"

    def feed(batches: Any) -> Any:
        yield from batches
        begun.touch()
        while not over.exists():  # the end of this task's life is not its own to choose
            time.sleep(0.01)

    def cancel() -> None:
        while not begun.exists() and not over.exists():
            time.sleep(0.01)
        spark.sparkContext.cancelAllJobs()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        yield feed
    finally:
        over.touch()
        canceller.join()


def test_a_job_that_is_cancelled_leaves_nothing_visible_and_the_same_write_succeeds_later(
    spark: SparkSession, graph: EngineGraph, write: Write, tmp_path: Path
) -> None:
    rows = people(spark, "Ada", "Bob")
    with cancelled_once_it_runs(spark, tmp_path) as feed, pytest.raises(Exception, match=r"(?i)cancel"):
        write(rows.mapInArrow(feed, "name string"), node="Person")
    assert (names(graph), len(graph.commits.list())) == ([], 1)
    write(rows, node="Person")
    assert names(graph) == ["Ada", "Bob"]


def test_a_transaction_whose_job_is_cancelled_raises_and_leaves_nothing_visible(
    spark: SparkSession, graph: EngineGraph, tmp_path: Path
) -> None:
    over_spark = Graph.open(spark, graph.uri)
    rows = people(spark, "Ada", "Bob")
    with cancelled_once_it_runs(spark, tmp_path) as feed, pytest.raises(Exception, match=r"(?i)cancel"):  # noqa: SIM117
        with over_spark.transaction() as tx:
            tx.load("Company", people(spark, "Acme"))
            tx.load("Person", rows.mapInArrow(feed, "name string"))
    assert (names(graph), len(graph.commits.list())) == ([], 1)
    with over_spark.transaction() as tx:
        tx.load("Person", rows)
    assert names(graph) == ["Ada", "Bob"]


# -- commits that fail ----------------------------------------------------------------------------------------


def test_a_commit_that_fails_leaves_nothing_visible_and_the_corrected_write_succeeds(
    spark: SparkSession, graph: EngineGraph, write: Write
) -> None:
    write(people(spark, "Ada", "Bob"), node="Person")
    bad = spark.createDataFrame([("Ada", "Bob"), ("Ada", "Zoe")], "src string, dst string")
    with pytest.raises(AnalysisException, match="OG4005"):
        write(bad, edge="Knows")
    over_spark = Graph.open(spark, graph.uri)
    with pytest.raises(MissingEndpoint), over_spark.transaction() as tx:
        tx.load("Knows", bad)
    assert graph.snapshot().table("Knows").count() == 0
    assert len(graph.commits.list()) == 2
    write(bad.filter("dst = 'Bob'"), edge="Knows")
    assert graph.snapshot().table("Knows").count() == 1


def test_a_task_that_fails_in_the_users_own_code_is_sparks_error_and_ends_the_transaction(
    spark: SparkSession, graph: EngineGraph
) -> None:
    def break_down(batches: Any) -> Any:
        yield from batches
        raise RuntimeError("my own mistake")

    over_spark = Graph.open(spark, graph.uri)
    with pytest.raises(PySparkException, match="my own mistake"), over_spark.transaction() as tx:
        tx.load("Person", people(spark, "Ada").mapInArrow(break_down, "name string"))
    assert len(graph.commits.list()) == 1


def a_writer(graph: EngineGraph) -> OmnigraphWriter:
    writer = open_writer({"path": graph.uri, "node": "Person"}, StructType.fromDDL("name string"), overwrite=False)
    assert isinstance(writer, OmnigraphWriter)
    return writer


def rows_of(*some: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"name": list(some)})])


def test_an_abort_deletes_nothing_that_was_published_and_never_raises(graph: EngineGraph) -> None:
    """Spark calls it after a commit that failed, with all messages; the commit may have landed all the same."""
    writer = a_writer(graph)
    messages = [writer.write(rows_of("Ada")), writer.write(rows_of("Bob"))]
    writer.commit(messages)
    writer.abort(messages)
    writer.abort([None, messages[0], None])
    writer.abort([])
    assert names(graph) == ["Ada", "Bob"]


def test_a_commit_that_failed_before_it_landed_is_aborted_and_may_be_repeated(graph: EngineGraph) -> None:
    writer = a_writer(graph)
    messages = [writer.write(rows_of("Ada"))]
    with installed(faults("sidecar.arm:before=error")), pytest.raises(OSError, match=r"failpoint sidecar.arm"):
        writer.commit(messages)
    writer.abort(messages)
    assert names(graph) == []
    again = a_writer(graph)
    again.commit([again.write(rows_of("Ada"))])
    assert names(graph) == ["Ada"]


def test_a_commit_whose_answer_was_lost_is_a_commit(graph: EngineGraph) -> None:
    writer = a_writer(graph)
    messages = [writer.write(rows_of("Ada"))]
    with installed(faults("manifest.publish:after=error")):
        writer.commit(messages)
    assert names(graph) == ["Ada"]
    with pytest.raises(DuplicateKey):
        again = a_writer(graph)
        again.commit([again.write(rows_of("Ada"))])


# -- drivers that die -----------------------------------------------------------------------------------------


def test_a_driver_that_is_killed_before_its_commit_leaves_nothing_visible_and_blocks_nobody(
    spark: SparkSession, graph: EngineGraph, write: Write
) -> None:
    dead = run("dying_driver.py", graph.uri, OMNIGRAPH_FAILPOINTS="sidecar.arm:after=kill")
    assert dead.returncode == -signal.SIGKILL, dead.stderr[-3000:]
    assert len(EngineGraph.open(graph.uri, "ro").commits.list()) == 1
    over_spark = Graph.open(spark, graph.uri)  # settles what the dead one left behind
    assert {key: over_spark.count(key) for key in over_spark.snapshot().tables} == {
        "edge:Knows": 0, "edge:WorksAt": 0, "node:Company": 0, "node:Person": 0,
    }  # fmt: skip
    (record,) = over_spark.maintenance.recoveries()
    assert (record.kind.value, record.actor) == ("RolledBack", "doomed")
    assert (
        over_spark.maintenance.cleanup(confirm=True).total.files == 0
    )  # it may live, for all that is known of its files
    reclaimed = over_spark.maintenance.cleanup(older_than=timedelta(0), confirm=True)
    assert {key: list(table.files) for key, table in reclaimed.tables.items()} == {
        "node:Company": [FileKind.DATA], "node:Person": [FileKind.DATA],
    }  # fmt: skip
    write(people(spark, "Eve"), node="Person")
    with over_spark.transaction() as tx:
        tx.load("Company", people(spark, "Acme"))
    assert names(graph) == ["Eve"]


def test_a_driver_that_is_killed_after_its_effects_is_finished_by_the_next_writer(
    spark: SparkSession, graph: EngineGraph
) -> None:
    dead = run("dying_driver.py", graph.uri, OMNIGRAPH_FAILPOINTS="manifest.publish:before=kill")
    assert dead.returncode == -signal.SIGKILL, dead.stderr[-3000:]
    assert names(graph) == []
    over_spark = Graph.open(spark, graph.uri)
    (record,) = over_spark.maintenance.recoveries()
    assert (record.kind.value, record.actor) == ("RolledForward", "doomed")
    assert (over_spark.count("Person"), over_spark.count("Company")) == (1, 1)
    assert len(over_spark.commits.list()) == 2
