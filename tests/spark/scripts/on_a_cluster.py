"""Executors in processes of their own, with their own directories: writes, reads and a transaction.

Run by test_connect.py with the folder to work in; it ends with status 0 when all that it asserts holds.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from pyspark.sql import SparkSession

warnings.filterwarnings("ignore", message="lance is not fork-safe")


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    from omnigraph_spark import Graph  # noqa: PLC0415 - Lance is loaded after the JVM was started

    graph = Graph.create(
        spark, folder / "graph.omni", "node Person { name: String @key }\nedge Knows: Person -> Person"
    )
    names = spark.range(0, 1000, 1, 4).selectExpr("cast(id AS string) AS name")
    names.write.format("omnigraph").option("node", "Person").mode("append").save(graph.uri)
    with graph.transaction() as tx:
        tx.load("Person", names.where("name < '2'").repartition(3), "merge")
        tx.load("Knows", names.selectExpr("name AS src", "name AS dst"))
    assert tx.receipt.tables["node:Person"].inserted == 0
    assert tx.receipt.tables["edge:Knows"].inserted == 1000
    assert graph.read("Person").distinct().count() == 1000
    assert spark.read.format("omnigraph").option("edge", "Knows").load(graph.uri).count() == 1000
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
