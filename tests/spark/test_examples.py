"""The jobs in ``examples/`` do what their first lines say, called and as ``spark-submit`` runs them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from omnigraph_engine.errors import (
    BranchExists,
    DuplicateKey,
    GraphNotFound,
    InvalidArgument,
    MissingEndpoint,
    UnknownType,
)
from omnigraph_engine.graph import Graph
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def submit(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs an example with the environment's own spark-submit, as a user does who has activated it."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "conf")}
    command = [Path(sys.executable).parent / "spark-submit", ROOT / "examples" / f"{name}.py", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def rows(graph: Graph, name: str, *columns: str) -> set[tuple[object, ...]]:
    return {tuple(row[column] for column in columns) for row in graph.snapshot().table(name).to_arrow().to_pylist()}


def write_delivery(folder: Path) -> None:
    """One of each: a CSV file with its columns in another order than the schema's, a folder of parquet, JSON lines."""
    folder.mkdir()
    (folder / "Person.csv").write_text("age,name\n36,Ada\n,Bob\n", encoding="utf-8")
    lines = [
        {"type": "Company", "data": {"name": "Acme"}},
        {"edge": "WorksAt", "from": "Ada", "to": "Acme"},
        {"edge": "WorksAt", "from": "Bob", "to": "Acme"},
    ]
    (folder / "work.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (folder / "README.txt").write_text("not data", encoding="utf-8")


@pytest.fixture
def schema(tmp_path: Path, social: str) -> Path:
    path = tmp_path / "schema.pg"
    path.write_text(social, encoding="utf-8")
    return path


@pytest.mark.spark
def test_a_batch_load_puts_every_file_of_a_folder_into_one_commit(
    spark: SparkSession, tmp_path: Path, schema: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, uri = tmp_path / "a delivery", tmp_path / "g.omni"
    write_delivery(folder)
    knows = spark.createDataFrame([("Ada", "Bob")], "src string, dst string")
    knows.write.parquet(str(folder / "Knows.parquet"))
    main = example("batch_load").main

    main(spark, [str(uri), str(folder), "--schema", str(schema), "--actor", "jo", "--message", "first"])
    graph = Graph.open(uri)
    assert rows(graph, "Person", "name", "age") == {("Ada", 36), ("Bob", None)}
    assert rows(graph, "WorksAt", "src", "dst") == {("Ada", "Acme"), ("Bob", "Acme")}
    assert rows(graph, "Knows", "src", "dst") == {("Ada", "Bob")}
    newest, _created = graph.commits.list()
    assert (newest.actor, newest.extra["message"]) == ("jo", "first")
    said = capsys.readouterr().out.splitlines()
    assert "node:Person: 2 inserted, 0 updated, 0 deleted, 2 rows now" in said
    assert said[-1] == f"Commit {newest.id}"

    with pytest.raises(DuplicateKey):
        main(spark, [str(uri), str(folder)])
    assert len(graph.commits.list()) == 2


@pytest.mark.spark
def test_a_batch_load_that_fails_leaves_nothing_behind(spark: SparkSession, tmp_path: Path, schema: Path) -> None:
    folder, uri = tmp_path / "delivery", tmp_path / "g.omni"
    write_delivery(folder)
    (folder / "Knows.csv").write_text("src,dst\nAda,Nobody\n", encoding="utf-8")
    main = example("batch_load").main
    with pytest.raises(MissingEndpoint, match="Nobody"):
        main(spark, [str(uri), str(folder), "--schema", str(schema)])
    (folder / "Knows.csv").rename(folder / "Persn.csv")
    with pytest.raises(UnknownType, match="Did you mean 'Person'"):
        main(spark, [str(uri), str(folder)])
    graph = Graph.open(uri)
    assert len(graph.commits.list()) == 1
    assert {table.count() for table in graph.snapshot().tables.values()} == {0}


@pytest.mark.spark
def test_a_batch_load_says_when_the_graph_or_the_files_are_missing(
    spark: SparkSession, tmp_path: Path, schema: Path
) -> None:
    folder, uri = tmp_path / "empty", tmp_path / "g.omni"
    folder.mkdir()
    main = example("batch_load").main
    with pytest.raises(GraphNotFound):
        main(spark, [str(uri), str(folder)])
    with pytest.raises(InvalidArgument, match=r"no \.parquet, \.csv or \.jsonl"):
        main(spark, [str(uri), str(folder), "--schema", str(schema)])


@pytest.mark.spark
def test_an_upsert_job_applies_a_batch_once(
    spark: SparkSession, graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people, knows = str(tmp_path / "people"), str(tmp_path / "knows")
    main = example("upsert_job").main

    def batch(version: int, rows: list[tuple[str, int]], since: str) -> list[str]:
        spark.createDataFrame(rows, "name string, age int").write.parquet(people, mode="overwrite")
        edges = spark.createDataFrame([("k1", "Ada", "Bob", since)], "id string, src string, dst string, since string")
        edges.selectExpr("id", "src", "dst", "CAST(since AS DATE)").write.parquet(knows, mode="overwrite")
        return [graph.uri, f"Person={people}", f"Knows={knows}", "--app-id", "nightly", "--version", str(version)]

    main(spark, batch(1, [("Ada", 36), ("Bob", 41)], "1833-06-05"))
    assert "node:Person: 2 inserted, 0 updated, 2 rows now" in capsys.readouterr().out
    second = batch(2, [("Bob", 42), ("Cy", 7)], "1834-01-01")
    main(spark, second)
    said = capsys.readouterr().out
    assert "node:Person: 1 inserted, 1 updated, 3 rows now" in said
    assert "edge:Knows: 0 inserted, 1 updated, 1 rows now" in said
    newest = graph.commits.list()[0]
    assert f"Commit {newest.id}, version 2 of nightly." in said

    for repeated in (second, [*second[:-1], "1"]):
        main(spark, repeated)
        assert capsys.readouterr().out.startswith("Nothing to do: nightly is at version")
    assert graph.commits.list()[0] == newest
    assert rows(graph, "Person", "name", "age") == {("Ada", 36), ("Bob", 42), ("Cy", 7)}


@pytest.mark.spark
def test_an_upsert_job_refuses_edges_that_it_could_not_find_again(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    path = str(tmp_path / "knows")
    spark.createDataFrame([("Ada", "Bob")], "src string, dst string").write.parquet(path)
    with pytest.raises(InvalidArgument, match="no column id"):
        example("upsert_job").main(spark, [graph.uri, f"Knows={path}", "--app-id", "nightly", "--version", "1"])


@pytest.mark.spark
def test_a_reviewed_job_merges_what_passes_and_leaves_the_rest_on_its_branch(
    spark: SparkSession, graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "people")
    main = example("branch_and_review").main
    graph.load_jsonl([json.dumps({"type": "Person", "data": {"name": f"p{n}", "age": n}}) for n in range(4)])

    def night(branch: str, *changes: tuple[str, int], at_most: int = 25) -> int:
        spark.createDataFrame(changes, "name string, age int").write.parquet(path, mode="overwrite")
        options = ["--branch", branch, "--at-most", str(at_most), "--message", branch]
        code: int = main(spark, [graph.uri, f"Person={path}", *options])
        return code

    assert night("first", ("p0", 10), ("Eve", 1)) == 0
    said = capsys.readouterr().out
    assert "node:Person: 1 inserted, 1 updated" in said
    assert "{p0, 10, p0}" in said
    merged = graph.commits.list()[0]
    assert f"Merged as commit {merged.id}." in said
    assert merged.extra["message"] == "first"
    assert ("p0", 10) in rows(graph, "Person", "name", "age")

    assert night("second", ("p1", 11), ("p2", 12)) == 1
    assert (
        "Not merged: node:Person has 2 of 5 rows updated or deleted, more than 25 percent." in capsys.readouterr().out
    )
    assert [branch.name for branch in graph.branches.list()] == ["main", "second"]
    assert graph.commits.list()[0] == merged
    with pytest.raises(BranchExists):
        night("second", ("p1", 11))

    assert night("third", ("p0", 10)) == 0
    assert "Nothing is different" in capsys.readouterr().out
    spark.createDataFrame([("Eve", "Nobody")], "src string, dst string").write.parquet(str(tmp_path / "knows"))
    with pytest.raises(MissingEndpoint, match="Nobody"):
        main(spark, [graph.uri, f"Knows={tmp_path / 'knows'}", "--branch", "fourth"])
    assert [branch.name for branch in graph.branches.list()] == ["main", "second"]
    assert graph.commits.list()[0] == merged


@pytest.mark.spark
def test_spark_submit_runs_the_jobs(spark: SparkSession, tmp_path: Path, schema: Path) -> None:
    """The real thing, with its own JVM: a load, and a load that fails with one line and an exit code."""
    folder, uri = tmp_path / "delivery", tmp_path / "g.omni"
    write_delivery(folder)
    done = submit("batch_load", uri, folder, "--schema", schema)
    assert done.returncode == 0, done.stderr
    assert "edge:WorksAt: 2 inserted" in done.stdout

    changes = tmp_path / "changes"
    spark.createDataFrame([("Ada", 37)], "name string, age int").write.parquet(str(changes))
    done = submit("branch_and_review", uri, f"Person={changes}", "--branch", "nightly", "--at-most", "50")
    assert done.returncode == 0, done.stderr
    assert "node:Person: 1 updated" in done.stdout
    assert "Merged as commit" in done.stdout

    done = submit("upsert_job", uri, f"Person={changes}", "--app-id", "nightly", "--version", "1")
    assert done.returncode == 0, done.stderr
    assert "node:Person: 0 inserted, 1 updated, 2 rows now" in done.stdout

    done = submit("batch_load", uri, folder)
    assert done.returncode == 1
    said = done.stdout + done.stderr  # spark-submit puts both of the script's streams into its own output
    (line,) = [line for line in said.splitlines() if "OG4004" in line]
    assert line.startswith("DuplicateKey: OG4004 ")
    assert "Traceback" not in said
