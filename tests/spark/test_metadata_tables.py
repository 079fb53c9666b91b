"""Tables about a graph, read as DataFrames: commits, branches, snapshot, schema and recoveries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import lance
import pyarrow as pa
import pytest
from chispa import assert_df_equality
from omnigraph_engine.errors import InvalidArgument
from omnigraph_engine.graph import Graph
from omnigraph_engine.write.load import WriteOptions
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark.read import pin_load

Read = Callable[..., DataFrame]

DYING_WRITER = """
import sys
import pyarrow as pa
from omnigraph_engine.graph import Graph
from omnigraph_engine.write.load import WriteOptions
graph = Graph.open(sys.argv[1], options=WriteOptions(lease=0.5))
graph.load({"Person": pa.table({"name": ["Eve"]})}, actor="doomed")
"""


@pytest.fixture
def two_commits(graph: Graph) -> Graph:
    graph.load({"Person": pa.table({"name": ["Ada", "Bob"]})}, actor="me", message="people")
    graph.load({"Company": pa.table({"name": ["Acme"]})}, actor="you")
    return graph


def times(micros: int) -> datetime:
    return datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=micros)


def test_commits_are_listed_newest_first_with_all_that_is_known_of_them(
    spark: SparkSession, two_commits: Graph, read: Read
) -> None:
    found = read(table="commits")
    columns = (
        "id string, branch string, parent string, merged_parent string, actor string, message string, "
        "created_at timestamp, version long, metrics string"
    )
    expected = [
        (
            commit.id, "main", commit.parent_id, None, commit.actor, commit.extra.get("message"),
            times(commit.created_at), commit.manifest_version,
            json.dumps(commit.extra["metrics"]) if "metrics" in commit.extra else None,
        )
        for commit in two_commits.commits.list()
    ]  # fmt: skip
    assert [row[4:6] for row in expected] == [("you", None), ("me", "people"), (None, None)]
    assert_df_equality(found, spark.createDataFrame(expected, columns))


def test_commits_are_those_that_the_chosen_point_contains(two_commits: Graph, read: Read) -> None:
    newest, second, first = two_commits.commits.list()
    assert [row["id"] for row in read(table="commits", commit=second.id).collect()] == [second.id, first.id]
    assert [row["id"] for row in read(table="commits", version=first.manifest_version).collect()] == [first.id]
    loaded = read(table="commits")
    two_commits.load({"Person": pa.table({"name": ["Cy"]})})
    assert [row["id"] for row in loaded.collect()] == [newest.id, second.id, first.id]


def test_branches_are_listed_main_first(two_commits: Graph, read: Read) -> None:
    manifest = lance.dataset(f"{two_commits.uri}/__manifest")
    manifest.create_branch("dev", (None, manifest.version))
    found = read(table="branches")
    assert found.schema.simpleString() == "struct<name:string,parent:string,parent_version:bigint,created_at:timestamp>"
    main, dev = found.collect()
    assert (main["name"], main["parent"]) == ("main", None)
    assert (dev["name"], dev["parent_version"]) == ("dev", manifest.version)
    assert abs(dev["created_at"].timestamp() - datetime.now(timezone.utc).timestamp()) < 60


def test_the_snapshot_lists_tables_with_their_versions_and_rows(
    spark: SparkSession, two_commits: Graph, read: Read
) -> None:
    found = read(table="snapshot")
    expected = [
        (key, table.published.version, None, table.published.row_count, table.published.location)
        for key, table in two_commits.snapshot().tables.items()
    ]
    assert [row[3] for row in expected] == [0, 0, 1, 2]
    columns = "table string, version long, fork string, rows long, location string"
    assert_df_equality(found, spark.createDataFrame(expected, columns))
    first = two_commits.commits.list()[-1]
    assert {row["rows"] for row in read(table="snapshot", commit=first.id).collect()} == {0}


def test_the_schema_lists_every_property_and_types_that_have_none(spark: SparkSession, read: Read) -> None:
    columns = "kind string, type string, property string, declared string, nullable boolean, key boolean, src string, dst string"
    expected = [
        ("node", "Person", "name", "String", False, True, None, None),
        ("node", "Person", "age", "I32?", True, False, None, None),
        ("node", "Company", "name", "String", False, True, None, None),
        ("edge", "Knows", "since", "Date?", True, False, "Person", "Person"),
        ("edge", "WorksAt", None, None, None, None, "Person", "Company"),
    ]
    assert_df_equality(read(table="schema"), spark.createDataFrame(expected, columns), ignore_row_order=True)


def test_recoveries_are_listed_after_a_writer_died(two_commits: Graph, read: Read) -> None:
    found = read(table="recoveries")
    assert found.columns == ["operation", "kind", "commit", "actor", "writer", "tables", "created_at"]
    assert found.collect() == []
    dead = subprocess.run(
        [sys.executable, "-c", DYING_WRITER, two_commits.uri],
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": "table.commit:after=kill"},
        check=False,
        capture_output=True,
    )
    assert dead.returncode == -9
    Graph.open(two_commits.uri, options=WriteOptions(lease=0.5))
    (record,) = two_commits.maintenance.recoveries()
    (row,) = read(table="recoveries").collect()
    assert (row["operation"], row["kind"], row["commit"]) == (record.operation_id, record.kind.value, record.commit_id)
    assert (row["actor"], row["writer"]) == ("doomed", record.writer_kind)
    assert [outcome["table"] for outcome in json.loads(row["tables"])] == ["node:Person"]
    assert row["created_at"].timestamp() == record.created_at.timestamp()


def test_a_type_is_read_by_its_key_as_by_its_name(two_commits: Graph, read: Read) -> None:
    assert two_commits.snapshot().table("Person").count() == 2
    assert_df_equality(read(table="node:Person"), read(node="Person"), ignore_row_order=True)
    assert_df_equality(read(table="edge:Knows", columns="src"), read(edge="Knows", columns="src"))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("comits", "OG6001 There is no table 'comits'.*Did you mean 'commits'"),
        ("people", "OG6001 There is no table 'people'.*Tables: commits, branches, snapshot, schema, recoveries"),
        ("node:Persom", "OG3004 The graph has no node type 'Persom'.*Did you mean 'Person'"),
    ],
)
def test_a_table_that_is_not_there_is_refused_with_a_hint(read: Read, table: str, says: str) -> None:
    with pytest.raises(AnalysisException, match=says):
        read(table=table)


def test_the_columns_of_a_table_about_the_graph_cannot_be_chosen_by_schema(
    spark: SparkSession, two_commits: Graph
) -> None:
    reader = spark.read.format("omnigraph").option("table", "branches").schema("name string")
    with pytest.raises(AnalysisException, match=r"cannot be chosen.*Use select after load"):
        reader.load(two_commits.uri).collect()


def test_a_table_about_a_branch_that_is_not_there_is_refused(two_commits: Graph) -> None:
    with pytest.raises(LookupError, match="no branch 'dev'"):
        pin_load({"path": two_commits.uri, "table": "commits", "branch": "dev"})
    with pytest.raises(InvalidArgument):
        pin_load({"path": two_commits.uri, "table": "commit"})


def test_tables_about_a_graph_are_views_in_sql(spark: SparkSession, two_commits: Graph) -> None:
    session = spark.newSession()
    session.sql(f"CREATE TEMPORARY VIEW log USING omnigraph OPTIONS (path '{two_commits.uri}', table 'commits')")
    found = session.sql("SELECT actor FROM log WHERE message = 'people'").collect()
    assert [row["actor"] for row in found] == ["me"]
