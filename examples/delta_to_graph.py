"""Loads Delta tables into a graph as one commit, and writes a snapshot of the graph back as Delta tables.

    make delta-jars   # once
    python examples/delta_to_graph.py GRAPH Person=lake/person Knows=lake/knows --schema schema.pg --export lake/graph
    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 examples/delta_to_graph.py ...

Each TYPE=PATH is a Delta table, read at the version it has when the job starts; the commit's message names these versions.
The export shows one commit of the graph in all of its tables. Delta commits one table at a time, so whoever reads them
together compares the commit that each names in its history (``userMetadata``).
"""

from __future__ import annotations

import argparse
import glob
import os
import sys
import warnings
from collections.abc import Sequence

from delta.tables import DeltaTable
from omnigraph_engine.errors import GraphNotFound, OmnigraphError
from pyspark.sql import SparkSession

from omnigraph_spark import Graph

JARS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ".delta-jars", "*.jar")


def main(spark: SparkSession, arguments: Sequence[str]) -> None:
    given = parser().parse_args(arguments)
    graph = open_or_create(spark, given.graph, given.schema)
    load(spark, graph, given.tables, given.mode)
    if given.export:
        export(graph, given.export)


def load(spark: SparkSession, graph: Graph, tables: Sequence[tuple[str, str]], mode: str) -> None:
    """The rows of all Delta tables become visible in the graph as one commit, or none does."""
    versions = {path: DeltaTable.forPath(spark, path).history(1).first()["version"] for _, path in tables}
    message = ", ".join(f"{name} from {path}@v{versions[path]}" for name, path in tables)
    with graph.transaction(message=message) as tx:
        for name, path in tables:
            tx.load(name, spark.read.format("delta").option("versionAsOf", versions[path]).load(path), mode)
    for key, table in sorted(tx.receipt.tables.items()):
        print(
            f"{key}: {table.inserted} inserted, {table.updated} updated, {table.deleted} deleted, {table.rows} rows now"
        )
    print(f"Commit {tx.commit.id}: {message}" if tx.commit else "There was nothing to do.")


def export(graph: Graph, folder: str) -> None:
    """Every type of the graph is a Delta table in the folder afterwards, all of them as of one commit."""
    snapshot = graph.snapshot()
    for key in snapshot.tables:
        path = f"{folder.rstrip('/')}/{key.split(':', 1)[1]}"
        writer = snapshot.read(key).write.format("delta").mode("overwrite")
        # The graph's schema is the one that counts: a table of an older one is replaced with its columns.
        writer.option("overwriteSchema", "true").option("userMetadata", snapshot.commit.id).save(path)
        print(f"{key}: {snapshot.count(key)} rows to {path}")


def open_or_create(spark: SparkSession, uri: str, schema: str | None) -> Graph:
    try:
        return Graph.open(spark, uri)
    except GraphNotFound:
        if schema is None:
            raise
    with open(schema, encoding="utf-8") as file:
        return Graph.create(spark, uri, file.read())


def table(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not TYPE=PATH")
    return name, path


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        description="Loads Delta tables into a graph, and a snapshot back into Delta tables."
    )
    found.add_argument("graph", help="folder or URL of the graph")
    found.add_argument("tables", nargs="+", type=table, metavar="TYPE=PATH", help="a Delta table with rows of one type")
    found.add_argument("--schema", help="a .pg file, to create the graph when there is none")
    found.add_argument("--mode", choices=("append", "merge", "overwrite"), default="append")
    found.add_argument("--export", help="folder or URL for a Delta table of every type")
    return found


def start_spark() -> SparkSession:
    # Starting the JVM forks this process, which Lance warns of; the child becomes another program at once.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    builder = (
        SparkSession.builder.appName("omnigraph from Delta")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit, which is given its interpreter and its JARs
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config("spark.jars", ",".join(sorted(glob.glob(JARS))))
    return builder.getOrCreate()


if __name__ == "__main__":
    try:
        main(start_spark(), sys.argv[1:])
    except OmnigraphError as error:
        sys.exit(f"{type(error).__name__}: {error}")
