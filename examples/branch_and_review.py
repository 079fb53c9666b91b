"""A nightly job whose changes are looked at before anybody sees them: it writes on a branch, and merges what passes review.

    python examples/branch_and_review.py GRAPH Person=changes/person Knows=changes/knows --branch nightly-2026-01-01
    spark-submit examples/branch_and_review.py GRAPH Person=delivery/person --mode overwrite --at-most 5 --branch june

Each TYPE=PATH is parquet. The job makes the branch, loads all of it as one commit there, prints what is different from main,
and checks that: of no type may more than ``--at-most`` percent of the rows be updated or deleted. What passes is merged into
main as one commit, and the branch is deleted. What does not pass stays on the branch for somebody to look at; main is as it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Mapping, Sequence

from omnigraph_engine.errors import OmnigraphError
from pyspark.sql import SparkSession

from omnigraph_spark import Graph

Counts = Mapping[str, Mapping[str, int]]  # by table, then by inserted, updated and deleted


def main(spark: SparkSession, arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    graph = Graph.open(spark, given.graph)
    write_on_branch(spark, graph, given)
    counts = show_difference(graph, given.branch)
    objections = review(graph, counts, given.at_most)
    if objections:
        for objection in objections:
            print(f"Not merged: {objection}.")
        print(f"Look at it with: omnigraph diff {graph.uri} main {given.branch}")
        return 1
    if not counts:
        graph.branches.delete(given.branch)
        print("Nothing is different, so nothing is merged.")
        return 0
    # Others may have written to main meanwhile: their changes stay, and a contradiction raises and merges nothing.
    merged = graph.merge(given.branch, message=given.message, delete_branch=True)
    print(f"Merged as commit {merged.commit.id}." if merged.commit else "It was merged before.")
    return 0


def write_on_branch(spark: SparkSession, graph: Graph, given: argparse.Namespace) -> None:
    """The branch holds main and all changes, as one commit; or there is no branch, when they break a rule of the schema."""
    graph.branches.create(given.branch)
    try:
        with graph.transaction(given.branch, message=given.message) as tx:
            for name, path in given.changes:
                tx.load(name, spark.read.parquet(path), given.mode)
    except OmnigraphError:
        graph.branches.delete(given.branch)
        raise


def show_difference(graph: Graph, branch: str) -> Counts:
    """Prints what a reviewer wants to see first: how many rows of each type differ, and some of them."""
    diff = graph.diff("main", branch)
    counts: dict[str, dict[str, int]] = {}
    for key in diff.tables:
        changes = diff.table(key)
        counted = {row["change"]: row["count"] for row in changes.groupBy("change").count().collect()}
        if counted:
            counts[key] = counted
            print(f"{key}: {', '.join(f'{counted[change]} {change}' for change in sorted(counted))}")
            changes.orderBy("id").show(10, truncate=60)
    return counts


def review(graph: Graph, counts: Counts, at_most: float) -> list[str]:
    """What stands against the changes. Put your own checks here: they are questions to DataFrames of the branch."""
    objections = []
    for key, counted in counts.items():
        touched, rows = counted.get("updated", 0) + counted.get("deleted", 0), graph.count(key)
        if touched * 100 > rows * at_most:
            objections.append(f"{key} has {touched} of {rows} rows updated or deleted, more than {at_most:g} percent")
    return objections


def change(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not TYPE=PATH")
    return name, path


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description="Writes changes on a branch, and merges what passes review.")
    found.add_argument("graph", help="folder or URL of the graph")
    found.add_argument("changes", nargs="+", type=change, metavar="TYPE=PATH", help="parquet with rows of one type")
    found.add_argument("--branch", required=True, help="the branch to make; it must not exist")
    found.add_argument("--mode", choices=("append", "merge", "overwrite"), default="merge")
    found.add_argument("--at-most", type=float, default=10, metavar="PERCENT", help="rows of a type updated or deleted")
    found.add_argument("--message", help="what the commits are for")
    return found


def start_spark() -> SparkSession:
    # Starting the JVM forks this process, which Lance warns of; the child becomes another program at once.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit, which knows the interpreter of its workers
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName("omnigraph branch and review").getOrCreate()


if __name__ == "__main__":
    try:
        sys.exit(main(start_spark(), sys.argv[1:]))
    except OmnigraphError as error:
        sys.exit(f"{type(error).__name__}: {error}")
