"""A tour of a graph in Spark: create it, load it in one transaction, read it, look back, branch and merge it, fail safely.

Run it with ``make quickstart``, or ``python examples/quickstart.py [FOLDER]``; without a folder it uses a temporary one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable

from omnigraph_engine.errors import OmnigraphError
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark import Graph

SCHEMA = """
node Person {
    name: String @key
    born: I32?
}
node Machine {
    name: String @key
    kind: enum(mechanical, electronic)
}
edge Knows: Person -> Person { since: I32? }
edge WorkedOn: Person -> Machine
"""


def start_spark() -> SparkSession:
    # Spark starts its workers with this, else with the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault(
        "SPARK_CONF_DIR", os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "conf")
    )
    # Starting the JVM forks this process, which Lance warns of; the child becomes another program at once.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    return SparkSession.builder.getOrCreate()


def main(folder: str) -> None:
    spark = start_spark()
    uri = os.path.join(os.path.abspath(folder), "pioneers.omni")

    def frame(columns: str, *rows: tuple[object, ...]) -> DataFrame:
        return spark.createDataFrame(rows, columns)

    heading("1. Create a graph")
    graph = Graph.create(spark, uri, SCHEMA)
    print(f"{uri}\n\n{graph.schema.diagram()}")

    heading("2. Load two node types and their edges in one transaction")
    with graph.transaction(message="the first pioneers") as tx:
        tx.load("Person", frame("name string, born int", ("Ada", 1816), ("Charles", 1791)))
        tx.load("Machine", frame("name string, kind string", ("Analytical Engine", "mechanical")))
        tx.load("Knows", frame("src string, dst string, since int", ("Ada", "Charles", 1833)))
        tx.load(
            "WorkedOn",
            frame("src string, dst string", ("Ada", "Analytical Engine"), ("Charles", "Analytical Engine")),
        )
    first = tx.receipt.commit
    print(f"One commit, {first.id if first else None}, with all of it:")
    for key, table in sorted(tx.metrics.tables.items()):
        print(f"  {key:<14} {table.rows} rows")

    heading("3. Read it back: filters and columns are applied at the source, the rest is Spark")
    graph.read("Person", columns=["name", "born"], filter="born < 1800").show()
    graph.create_views()
    spark.sql(
        "SELECT k.src AS who, k.dst AS knows, w.dst AS who_worked_on FROM Knows k JOIN WorkedOn w ON w.src = k.dst"
    ).show()

    heading("4. Merge: a person who exists is replaced, a new one is added")
    with graph.transaction(message="a birth year put right") as tx:
        tx.load("Person", frame("name string, born int", ("Ada", 1815), ("Mary", 1781)), "merge")
    graph.read("Person", columns=["name", "born"]).orderBy("name").show()

    heading("5. Look back: the same people at the first commit")
    if first is not None:
        graph.read("Person", commit=first.id, columns=["name", "born"]).orderBy("name").show()

    heading("6. A load that fails leaves nothing behind")
    before = state(graph)
    try:
        with graph.transaction(message="never seen") as tx:
            tx.load("Person", frame("name string, born int", ("Luigi", 1809)))
            tx.load("Knows", frame("src string, dst string, since int", ("Luigi", "Nobody", None)))
    except OmnigraphError as error:
        print(f"{type(error).__name__}: {error}")
    commits, rows = state(graph)
    print(
        f"Luigi is not there either: {commits} commits, {rows} rows, {'as' if (commits, rows) == before else 'NOT as'} before"
    )

    heading("7. Branch: write beside main, see what is different, merge it")
    branch_and_merge(graph, frame)

    heading("8. Every table of the graph, in one snapshot")
    tables = spark.read.format("omnigraph").option("table", "snapshot").load(uri)
    tables.select("table", "version", "rows").orderBy("table").show()
    for commit in graph.commits.list():
        print(f"  {commit.id}  {commit.extra.get('message') or 'the graph was created'}")

    print(f"\nNext, try: omnigraph commit list {uri}")


def branch_and_merge(graph: Graph, frame: Callable[..., DataFrame]) -> None:
    graph.branches.create("review")
    with graph.transaction("review", message="Luigi, to be looked at") as tx:
        tx.load("Person", frame("name string, born int", ("Mary", 1780), ("Luigi", 1809)), "merge")
        tx.load("Knows", frame("src string, dst string, since int", ("Charles", "Luigi", 1840)))
    graph.diff("main", "review").table("Person").orderBy("id").show(truncate=False)
    with graph.transaction(message="meanwhile, on main") as tx:
        tx.load("Person", frame("name string, born int", ("Grace", 1906)))
    merged = graph.merge("review", message="Luigi, as reviewed", delete_branch=True)
    print(f"Both had moved: {merged.outcome.value} in one commit, {merged.commit.id if merged.commit else None}")
    graph.read("Person", columns=["name", "born"]).orderBy("name").show()


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def state(graph: Graph) -> tuple[int, int]:
    """How many commits the graph has, and how many rows in all of its tables; its manifest knows, so no job runs."""
    snapshot = graph.snapshot()
    return len(graph.commits.list()), sum(snapshot.count(key) for key in snapshot.tables)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="omnigraph-"))
