"""Applies a batch of changes to a graph, exactly once: however often it is run, the batch is one commit.

    python examples/upsert_job.py GRAPH Person=changes/person Knows=changes/knows --app-id nightly --version 20260101
    spark-submit examples/upsert_job.py ...

Each TYPE=PATH is parquet. A row whose id exists replaces that row, any other is added. Versions of one application rise: when
one is in the graph, it and every smaller one do nothing. So a scheduler may repeat a run that it is not sure of.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from omnigraph_engine.errors import InvalidArgument, OmnigraphError
from omnigraph_engine.schema.model import EdgeType
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark import Graph


def main(spark: SparkSession, arguments: Sequence[str]) -> None:
    given = parser().parse_args(arguments)
    graph = Graph.open(spark, given.graph)
    with graph.transaction(txn_app_id=given.app_id, txn_version=given.version, message=given.message) as tx:
        for name, path in given.changes:
            changes = spark.read.parquet(path)
            refuse_edges_without_id(graph, name, changes)
            tx.load(name, changes, "merge")
    commit = tx.commit.id if tx.commit else None
    if tx.receipt.replayed:
        print(f"Nothing to do: {given.app_id} is at version {given.version} or later, since commit {commit}.")
        return
    for key, table in sorted(tx.receipt.tables.items()):
        print(f"{key}: {table.inserted} inserted, {table.updated} updated, {table.rows} rows now")
    print(f"Commit {commit}, version {given.version} of {given.app_id}.")


def refuse_edges_without_id(graph: Graph, name: str, changes: DataFrame) -> None:
    """A node has the id of its key, but an edge has no key: without an id each row would be one more edge."""
    if isinstance(graph.schema.table_type(name), EdgeType) and "id" not in changes.columns:
        raise InvalidArgument(
            f"The changes of {name} have no column id.", hint="Give edges an id of your own to be able to change them."
        )


def change(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not TYPE=PATH")
    return name, path


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description="Applies a batch of changes to a graph, exactly once.")
    found.add_argument("graph", help="folder or URL of the graph")
    found.add_argument("changes", nargs="+", type=change, metavar="TYPE=PATH", help="parquet with changes of one type")
    found.add_argument("--app-id", required=True, help="the application that numbers its batches")
    found.add_argument("--version", required=True, type=int, help="the number of this batch")
    found.add_argument("--message", help="what the commit is for")
    return found


def start_spark() -> SparkSession:
    # Starting the JVM forks this process, which Lance warns of; the child becomes another program at once.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit, which knows the interpreter of its workers
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName("omnigraph upsert").getOrCreate()


if __name__ == "__main__":
    try:
        main(start_spark(), sys.argv[1:])
    except OmnigraphError as error:
        sys.exit(f"{type(error).__name__}: {error}")
