"""A client of Spark Connect that cannot reach the graph: every touch of a store or of Lance in this process fails.

Run by test_connect.py with the server's port and the graph's address; it ends with status 0 when all that it asserts holds.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, NoReturn

import lance
import omnigraph_engine.storage as engine_storage
import pytest
from omnigraph_engine.errors import (
    BranchExists,
    DuplicateKey,
    GraphExists,
    InvalidArgument,
    MergeConflict,
    MissingEndpoint,
    UnknownType,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import omnigraph_spark.merge as spark_merge
from omnigraph_spark import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
"""


def out_of_reach(*_args: Any, **_options: Any) -> NoReturn:
    raise AssertionError("this process reached for the storage")


def poison() -> None:
    for name in ("get", "put", "put_if_absent", "delete", "list", "size", "objects", "modified"):
        assert hasattr(engine_storage.Storage, name), name
        setattr(engine_storage.Storage, name, out_of_reach)
    lance.dataset = out_of_reach
    lance.LanceDataset.__init__ = out_of_reach  # type: ignore[method-assign]


def main(port: str, uri: str) -> None:
    poison()
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    graph = Graph.create(spark, uri, SCHEMA)
    with pytest.raises(GraphExists):
        Graph.create(spark, uri, SCHEMA)

    people = spark.createDataFrame([("Ada", 36), ("Bob", 40)], "name string, age int")
    knows = spark.createDataFrame([("Ada", "Bob", 1840)], "src string, dst string, since int")
    with graph.transaction(actor="ada", message="the first") as tx:
        tx.load("Person", people)
        tx.load("Knows", knows)
    assert tx.commit is not None
    assert tx.commit.actor == "ada"
    assert tx.metrics.tables["node:Person"].rows == 2
    assert tx.receipt.tables["edge:Knows"].inserted == 1

    with pytest.raises(DuplicateKey) as taken, graph.transaction() as tx:
        tx.load("Person", people)
    assert taken.value.details["count"] == 2
    with pytest.raises(MissingEndpoint, match="Zoe"), graph.transaction() as tx:
        tx.load("Knows", spark.createDataFrame([("Ada", "Zoe", 1)], knows.schema))
    with pytest.raises(UnknownType, match="Did you mean 'Person'"):
        graph.read("Persom")
    assert len(graph.commits.list()) == 2

    with graph.transaction() as tx:
        tx.load("Person", spark.createDataFrame([("Ada", 37), ("Cy", 5)], "name string, age int"), "merge")
    assert (tx.receipt.tables["node:Person"].updated, tx.receipt.tables["node:Person"].inserted) == (1, 1)
    assert graph.count("Person") == 3
    assert graph.count("Person", "age > 36") == 2
    assert graph.read("Person", columns=["name"], filter="age < 10").collect()[0].name == "Cy"
    first = graph.commits.list()[-2]
    assert {row.name: row.age for row in graph.read("Person", commit=first.id).collect()} == {"Ada": 36, "Bob": 40}
    assert [branch.name for branch in graph.branches.list()] == ["main"]
    assert graph.maintenance.recoveries() == []
    clean_up(graph)
    graph.create_views(prefix="g_")
    assert spark.sql("SELECT p.age FROM g_Knows k JOIN g_Person p ON k.dst = p.id").collect()[0].age == 40

    more = spark.createDataFrame([("Dot", 7)], "name string, age int")
    more.write.format("omnigraph").option("node", "Person").mode("append").save(uri)
    assert spark.read.format("omnigraph").option("node", "Person").load(uri).count() == 4
    assert spark.read.format("omnigraph").option("table", "commits").load(uri).count() == 4
    with pytest.raises(PySparkException, match="OG4004") as short:
        more.write.format("omnigraph").option("node", "Person").mode("append").save(uri)
    assert "at org.apache.spark" not in str(short.value)  # the server is told not to send its stack
    assert len(str(short.value).splitlines()) < 10
    with pytest.raises(InvalidArgument, match="is not committed"):
        graph.transaction().receipt  # noqa: B018
    branch_and_merge(spark, graph)
    opened = Graph.open(spark, uri, "ro")
    assert opened.schema.catalog.nodes.keys() == {"Person"}
    spark.stop()


def clean_up(graph: Graph) -> None:
    left = graph.maintenance.cleanup(older_than=timedelta(0))  # of the loads that were refused
    assert left.total.files > 0
    assert graph.maintenance.cleanup(older_than=timedelta(0), confirm=True).total == left.total
    assert graph.maintenance.cleanup(older_than=timedelta(0)).total.files == 0


def branch_and_merge(spark: SparkSession, graph: Graph) -> None:
    spark_merge.JOB_ROWS = 0  # by jobs, which the client starts
    graph.branches.create("dev")
    with pytest.raises(BranchExists):
        graph.branches.create("dev")
    spark.conf.set("omnigraph.branch", "dev")
    dev = Graph.open(spark, graph.uri)
    spark.conf.unset("omnigraph.branch")
    with dev.transaction() as tx:
        tx.load("Person", spark.createDataFrame([("Ada", 38), ("Eve", 9)], "name string, age int"), "merge")
    assert (dev.count("Person"), graph.count("Person")) == (5, 4)
    changed = graph.diff("main", "dev").table("Person").orderBy("id").collect()
    assert [(row.change, row.id, row.after.age) for row in changed] == [("updated", "Ada", 38), ("inserted", "Eve", 9)]

    with graph.transaction() as tx:
        tx.load("Person", spark.createDataFrame([("Ada", 40)], "name string, age int"), "merge")
    with pytest.raises(MergeConflict) as refused:
        graph.merge("dev")
    assert refused.value.conflicts["id"].to_pylist() == ["Ada"]
    assert [row.id for row in graph.merge("dev", dry_run=True).conflicts.collect()] == ["Ada"]
    none = graph.merge("dev", on_conflict="theirs", dry_run=True)
    assert (none.conflicts.count(), none.resolved.count(), none.conflicts.columns) == (0, 1, none.resolved.columns)
    merged = graph.merge("dev", on_conflict="theirs", delete_branch=True)
    assert [row.resolution for row in merged.resolved.collect()] == ["theirs"]
    assert merged.commit is not None
    assert graph.commits.list(limit=1)[0] == merged.commit
    assert graph.read("Person", filter="id = 'Ada'").collect()[0].age == 38
    assert [branch.name for branch in graph.branches.list()] == ["main"]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
