"""Delta tables into a graph and back, with the real Delta. ``make delta-jars`` fetches it; without it nothing here runs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omnigraph_engine.graph import Graph

ROOT = Path(__file__).parents[2]
MISSING = [
    what
    for what, found in (
        ("the Python package delta-spark", importlib.util.find_spec("delta") is not None),
        ("Delta's JARs in .delta-jars", any((ROOT / ".delta-jars").glob("io.delta_delta-spark_*.jar"))),
    )
    if not found
]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}: run make delta-jars"),
]

# Delta is in a session's JVM from its start, so this has a process of its own and not the session of the other tests.
JOB = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("delta_to_graph", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
lake, uri, schema = sys.argv[2:]
spark = example.start_spark()

def write(name, columns, rows, mode="errorifexists"):
    spark.createDataFrame(rows, columns).write.format("delta").mode(mode).save(f"{lake}/{name}")

def read(name):
    frame = spark.read.format("delta").load(f"{lake}/export/{name}")
    return sorted(map(list, frame.drop("id").collect()), key=str)

tables = [f"Person={lake}/person", f"Company={lake}/company", f"WorksAt={lake}/works_at"]
write("person", "name string, age int", [("Ada", 36), ("Bob", None)])
write("company", "name string", [("Acme",)])
write("works_at", "src string, dst string", [("Ada", "Acme"), ("Bob", "Acme")])
example.main(spark, [uri, *tables, "--schema", schema, "--export", f"{lake}/export"])
first = {name: read(name) for name in ("Person", "Company", "WorksAt", "Knows")}

write("person", "name string, age int", [("Bob", 42), ("Cy", 7)], "overwrite")
example.main(spark, [uri, tables[0], "--mode", "merge", "--export", f"{lake}/export"])
history = spark.sql(f"DESCRIBE HISTORY delta.`{lake}/export/Person`").orderBy("version").collect()
print("RESULT " + json.dumps({"first": first, "second": read("Person"), "history": [h.userMetadata for h in history]}))
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the job read back from Delta, and the graph that it left behind."""
    folder = tmp_path_factory.mktemp("delta")
    (folder / "schema.pg").write_text(
        "node Person { name: String @key  age: I32? } node Company { name: String @key }"
        "edge Knows: Person -> Person { since: Date? } edge WorksAt: Person -> Company",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "conf")}
    example = ROOT / "examples" / "delta_to_graph.py"
    command = [sys.executable, "-c", JOB, example, folder / "lake", folder / "g.omni", folder / "schema.pg"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return {"graph": Graph.open(folder / "g.omni"), **json.loads(line.removeprefix("RESULT "))}


def test_delta_tables_become_nodes_and_edges_in_one_commit(result: dict[str, Any]) -> None:
    graph: Graph = result["graph"]
    merged, loaded, _created = graph.commits.list()
    at_first = graph.snapshot(commit=loaded.id)
    assert {row["name"]: row["age"] for row in at_first.table("Person").to_arrow().to_pylist()} == {
        "Ada": 36,
        "Bob": None,
    }
    assert {row["src"] for row in at_first.table("WorksAt").to_arrow().to_pylist()} == {"Ada", "Bob"}
    now = graph.snapshot().table("Person").to_arrow().to_pylist()
    assert {row["name"]: row["age"] for row in now} == {"Ada": 36, "Bob": 42, "Cy": 7}
    assert loaded.extra["message"].count("@v0") == 3
    assert merged.extra["message"].endswith("person@v1")


def test_a_snapshot_becomes_delta_tables_that_name_its_commit(result: dict[str, Any]) -> None:
    assert result["first"] == {
        "Person": [[36, "Ada"], [None, "Bob"]],
        "Company": [["Acme"]],
        "WorksAt": [["Ada", "Acme"], ["Bob", "Acme"]],
        "Knows": [],
    }
    assert result["second"] == [[36, "Ada"], [42, "Bob"], [7, "Cy"]]
    merged, loaded, _created = result["graph"].commits.list()
    assert result["history"] == [loaded.id, merged.id]
