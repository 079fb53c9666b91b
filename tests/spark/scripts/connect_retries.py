"""A client of a Connect server whose workers die after each effect and before its answer: Spark asks again, and it is done once.

Run by test_connect.py with the server's port and the graph's address; the server's workers have OMNIGRAPH_FAILPOINTS set.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from omnigraph_spark import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
node Note { text: String }
edge Knows: Person -> Person
"""


def main(port: str, uri: str) -> None:
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    graph = Graph.create(spark, uri, SCHEMA)
    people = spark.createDataFrame([("Ada", 36), ("Bob", 40)], "name string, age int")
    knows = spark.createDataFrame([("Ada", "Bob"), ("Bob", "Ada")], "src string, dst string")
    notes = spark.createDataFrame([("a",), ("b",)], "text string")

    with graph.transaction(message="all") as tx:
        tx.load("Person", people)
        tx.load("Knows", knows)
        tx.load("Note", notes)
    assert tx.commit == graph.commits.list(limit=1)[0]
    assert {key: table.inserted for key, table in tx.receipt.tables.items()} == dict.fromkeys(tx.receipt.tables, 2)
    assert {key: graph.count(key) for key in tx.receipt.tables} == dict.fromkeys(tx.receipt.tables, 2)
    assert graph.read("Knows").select("id").distinct().count() == 2

    info = graph.branches.create("dev")
    assert graph.branches.get("dev") == info
    with graph.transaction("dev") as tx:
        tx.load("Note", notes, "overwrite")
    assert (tx.receipt.tables["node:Note"].rows, tx.receipt.tables["node:Note"].deleted) == (2, 2)
    graph.branches.delete("dev")
    assert [branch.name for branch in graph.branches.list()] == ["main"]
    assert len(graph.commits.list()) == 2
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
