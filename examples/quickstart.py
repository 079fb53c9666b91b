"""Creates a small graph, writes it with Spark and reads it back.

Run it with ``make quickstart``, or ``python examples/quickstart.py [FOLDER]``; without a folder it uses a temporary one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings

from omnigraph_engine import Graph
from pyspark.sql import DataFrame, SparkSession

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
    graph = Graph.create(uri, SCHEMA)

    def append(kind: str, name: str, columns: str, rows: list[tuple[object, ...]]) -> None:
        frame = spark.createDataFrame(rows, columns)
        frame.write.format("omnigraph").option(kind, name).mode("append").save(uri)

    def read(kind: str, name: str) -> DataFrame:
        return spark.read.format("omnigraph").option(kind, name).load(uri)

    append("node", "Person", "name string, born int", [("Ada", 1815), ("Charles", 1791), ("Mary", 1780)])
    append("node", "Machine", "name string, kind string", [("Analytical Engine", "mechanical")])
    append("edge", "Knows", "src string, dst string, since int", [("Ada", "Charles", 1833), ("Ada", "Mary", None)])
    append(
        "edge", "WorkedOn", "src string, dst string", [("Ada", "Analytical Engine"), ("Charles", "Analytical Engine")]
    )

    print(f"\nThe graph at {uri}\n\n{graph.schema.diagram()}\n")

    snapshot = graph.snapshot()
    print(f"Snapshot {snapshot.id}, after {len(graph.commits.list())} commits")
    for key, table in snapshot.tables.items():
        print(f"  {key:<14} version {table.published.version}, rows: {table.count()}")

    print("\nIts people, read by Spark")
    read("node", "Person").orderBy("born").show()
    print("Who knows somebody who worked on a machine")
    knows, worked = read("edge", "Knows").alias("knows"), read("edge", "WorkedOn").alias("worked")
    knows.join(worked, knows.dst == worked.src).selectExpr(
        "knows.src", "knows.dst", "since", "worked.dst AS machine"
    ).show()

    print(f"Next, try: omnigraph commit list {uri}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="omnigraph-"))
