"""``Graph`` over a Spark session: what it reads, counts and pins, and how it opens."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from omnigraph_engine.errors import (
    BranchNotFound,
    CommitNotFound,
    GraphExists,
    GraphNotFound,
    InvalidArgument,
    ReadOnlyGraph,
    SchemaSyntaxError,
    UnknownProperty,
    UnknownType,
)
from omnigraph_engine.graph import Graph as EngineGraph
from omnigraph_engine.tables.table import FragmentInfo
from pyspark.sql import DataFrame, SparkSession

import omnigraph_spark
from omnigraph_spark import Graph
from omnigraph_spark.read import share_out


@pytest.fixture
def people(spark: SparkSession, graph: EngineGraph) -> Graph:
    """Three people of whom two work for one company and one knows another."""
    graph.load(
        {
            "Person": pa.table({"name": ["Ada", "Bob", "Cy"], "age": [36, None, 61]}),
            "Company": pa.table({"name": ["Acme"]}),
            "Knows": pa.table({"src": ["Ada"], "dst": ["Bob"]}),
            "WorksAt": pa.table({"src": ["Ada", "Cy"], "dst": ["Acme", "Acme"]}),
        }
    )
    return Graph.open(spark, graph.uri)


def names(frame: DataFrame) -> list[str]:
    return sorted(row["name"] for row in frame.collect())


def jobs(spark: SparkSession) -> int:
    """How many jobs the session has run so far."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())  # type: ignore[attr-defined]


def test_the_package_offers_graph_and_says_what_it_has_not() -> None:
    assert omnigraph_spark.Graph is Graph
    with pytest.raises(AttributeError, match="has no attribute 'Grahp'"):
        _ = omnigraph_spark.Grahp  # type: ignore[attr-defined]


# -- creating and opening -------------------------------------------------------------------------------------


def test_a_created_graph_is_empty_and_knows_its_schema(spark: SparkSession, tmp_path: Path, social: str) -> None:
    graph = Graph.create(spark, tmp_path / "new.omni", social)
    assert graph.schema.source == social
    assert len(graph.commits.list()) == 1
    assert graph.snapshot().tables == ["edge:Knows", "edge:WorksAt", "node:Company", "node:Person"]
    assert graph.read("Person").collect() == []
    assert EngineGraph.open(tmp_path / "new.omni", "ro").schema.source == social


def test_a_relative_address_means_the_folder_of_the_driver(
    spark: SparkSession, tmp_path: Path, social: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = Graph.create(spark, "near.omni", social)
    assert graph.uri == os.path.join(os.getcwd(), "near.omni")
    assert Graph.open(spark, "near.omni").count("Person") == 0


def test_creating_and_opening_raise_the_typed_errors(spark: SparkSession, people: Graph, social: str) -> None:
    with pytest.raises(GraphExists):
        Graph.create(spark, people.uri, social)
    with pytest.raises(GraphNotFound):
        Graph.open(spark, people.uri + "-elsewhere")
    with pytest.raises(SchemaSyntaxError):
        Graph.create(spark, people.uri + "-elsewhere", "node Person {")
    with pytest.raises(InvalidArgument, match="mode is 'w'"):
        Graph.open(spark, people.uri, "w")  # type: ignore[arg-type]


def test_a_graph_opened_for_reading_reads_and_refuses_to_write(spark: SparkSession, people: Graph) -> None:
    readonly = Graph.open(spark, people.uri, "ro")
    assert names(readonly.read("Person")) == ["Ada", "Bob", "Cy"]
    with pytest.raises(ReadOnlyGraph):
        readonly.transaction()
    with pytest.raises(ReadOnlyGraph):
        readonly.load_json(spark.createDataFrame([("{}",)], "value string"))
    assert len(people.commits.list()) == 2


# -- reading --------------------------------------------------------------------------------------------------


def test_rows_have_the_types_of_the_schema_and_are_those_that_the_format_reads(
    spark: SparkSession, people: Graph
) -> None:
    found = people.read("Person")
    assert found.schema.simpleString() == "struct<id:string,age:int,name:string>"
    raw = spark.read.format("omnigraph").option("node", "Person").load(people.uri)
    assert_df_equality(raw, found, ignore_row_order=True, ignore_nullable=True)
    assert sorted(map(tuple, people.read("edge:WorksAt").drop("id").collect())) == [("Ada", "Acme"), ("Cy", "Acme")]


def test_columns_filter_and_limit_are_applied_at_the_source(spark: SparkSession, people: Graph) -> None:
    found = people.read("Person", columns=["age", "name"], filter="age > 40")
    assert_df_equality(found, spark.createDataFrame([(61, "Cy")], "age int, name string"), ignore_nullable=True)
    assert people.read("Person", limit=2).count() == 2
    assert people.read("Person", limit=0).count() == 0
    assert people.read("Person", filter="age IS NULL", limit=5).count() == 1
    assert names(people.read("Person", columns=["name"], filter="id = 'Ada'")) == ["Ada"]


@pytest.mark.parametrize(
    ("name", "choice", "error", "says"),
    [
        ("Persom", {}, UnknownType, "Did you mean 'Person'"),
        ("Person", {"columns": ["nam"]}, UnknownProperty, "Did you mean 'name'"),
        ("Person", {"filter": "agee > 3"}, InvalidArgument, "does not work on node:Person"),
        ("Person", {"filter": "age >"}, InvalidArgument, "does not work on node:Person"),
        ("Person", {"filter": "age > 0; AND name = 'Ada'"}, InvalidArgument, "is not one condition.* from ';' on"),
        ("Person", {"columns": ["name", "name"]}, InvalidArgument, "not distinct"),
        ("Person", {"limit": "3"}, InvalidArgument, "limit is '3', not a whole number"),
        ("Person", {"partition_rows": 0}, InvalidArgument, "partition_rows is 0; it must be at least 1"),
        ("Person", {"branch": "dev"}, BranchNotFound, "no branch 'dev'"),
        ("Person", {"commit": "01ZZ"}, CommitNotFound, "commit '01ZZ'"),
        ("Person", {"version": 99}, CommitNotFound, "99"),
        ("Person", {"timestamp": "1999-01-01"}, CommitNotFound, "1999"),
    ],
)
def test_what_cannot_be_read_is_refused_before_any_job_with_the_typed_error(
    spark: SparkSession, people: Graph, name: str, choice: dict[str, object], error: type[Exception], says: str
) -> None:
    before = jobs(spark)
    with pytest.raises(error, match=says):
        people.read(name, **choice)  # type: ignore[arg-type]
    assert jobs(spark) == before


def test_a_limit_below_zero_is_refused_as_an_argument(people: Graph) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        people.read("Person", limit=-1)


def test_a_point_in_history_is_read_by_commit_version_and_time(people: Graph, graph: EngineGraph) -> None:
    then = people.snapshot()
    graph.load({"Person": pa.table({"name": ["Dot"]})})
    instant = datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=then.commit.created_at)
    assert names(people.read("Person")) == ["Ada", "Bob", "Cy", "Dot"]
    assert names(people.read("Person", commit=then.commit.id)) == ["Ada", "Bob", "Cy"]
    assert names(people.read("Person", version=then.version)) == ["Ada", "Bob", "Cy"]
    assert names(people.read("Person", timestamp=instant)) == ["Ada", "Bob", "Cy"]
    assert names(people.read("Person", timestamp=instant.isoformat())) == ["Ada", "Bob", "Cy"]
    first = people.commits.list()[-1]
    assert names(people.read("Person", commit=first.id)) == []


def test_a_snapshot_shows_one_commit_whatever_is_committed_later(people: Graph, graph: EngineGraph) -> None:
    pinned = people.snapshot()
    frame = pinned.read("Person")
    graph.load({"Person": pa.table({"name": ["Dot"]}), "Knows": pa.table({"src": ["Dot"], "dst": ["Ada"]})})
    graph.load({"WorksAt": pa.table({"src": ["Dot"], "dst": ["Acme"]})}, mode="overwrite")
    assert (pinned.count("Person"), pinned.count("Knows"), pinned.count("WorksAt")) == (3, 1, 2)
    assert names(frame) == names(pinned.read("Person")) == ["Ada", "Bob", "Cy"]
    assert sorted(row["src"] for row in pinned.read("WorksAt").collect()) == ["Ada", "Cy"]
    assert (people.count("Person"), people.count("Knows"), people.count("WorksAt")) == (4, 2, 1)
    assert repr(pinned) == f"Snapshot({pinned.id})" == f"Snapshot(manifest:main:v{pinned.version})"
    assert people.commits.show(pinned.commit.id) == pinned.commit


def test_a_count_runs_no_job_and_one_with_a_filter_is_right_too(spark: SparkSession, people: Graph) -> None:
    before = jobs(spark)
    assert people.count("Person") == 3
    assert people.snapshot().count("edge:WorksAt") == 2
    assert jobs(spark) == before
    assert people.count("Person", "age > 40") == 1
    assert people.count("Person", "age > 99") == 0
    assert jobs(spark) > before  # so the figure above would have moved


def test_commits_and_branches_are_those_of_the_graph(people: Graph, graph: EngineGraph) -> None:
    graph.load({"Person": pa.table({"name": ["Dot"]})}, actor="me")
    assert people.commits.list() == graph.commits.list()
    assert people.commits.list(actor="me") == graph.commits.list(limit=1) == people.commits.list(limit=1)
    assert [branch.name for branch in people.branches.list()] == ["main"]
    people.maintenance.recover()
    assert people.maintenance.recoveries() == []


# -- SQL ------------------------------------------------------------------------------------------------------


def test_views_of_all_types_join_in_sql_and_show_one_commit(
    spark: SparkSession, people: Graph, graph: EngineGraph
) -> None:
    session = spark.newSession()
    assert people.create_views(session) == ["Knows", "WorksAt", "Company", "Person"]
    graph.load({"Person": pa.table({"name": ["Zoe"]}), "WorksAt": pa.table({"src": ["Zoe"], "dst": ["Acme"]})})
    query = "SELECT p.name FROM Person p JOIN WorksAt w ON w.src = p.id JOIN Company c ON c.id = w.dst ORDER BY 1"
    assert [row["name"] for row in session.sql(query).collect()] == ["Ada", "Cy"]
    people.create_views(session)
    assert [row["name"] for row in session.sql(query).collect()] == ["Ada", "Cy", "Zoe"]


def test_views_take_a_prefix_and_belong_to_the_session_of_the_graph(spark: SparkSession, people: Graph) -> None:
    created = people.create_views(prefix="g_")
    try:
        assert created == ["g_Knows", "g_WorksAt", "g_Company", "g_Person"]
        assert spark.table("g_Person").count() == 3
        assert not spark.newSession().catalog.tableExists("g_Person")
    finally:
        for name in created:
            spark.catalog.dropTempView(name)


# -- sharing out ----------------------------------------------------------------------------------------------


def test_thousands_of_fragments_become_few_partitions_and_each_is_read_once() -> None:
    fragments = [FragmentInfo(number, 100) for number in range(5_000)]
    partitions = share_out(fragments, 262_144)
    assert len(partitions) == 2
    assert [number for part in partitions for number in part] == list(range(5_000))
    assert len(share_out(fragments, 1_000)) == 500
    assert len(share_out(fragments, 1)) == 5_000


def test_partition_rows_says_how_many_tasks_read_and_every_row_comes_once(
    spark: SparkSession, graph: EngineGraph
) -> None:
    graph_of_session = Graph.open(spark, graph.uri)
    with graph_of_session.transaction(max_rows_per_file=10) as tx:
        tx.load("Person", spark.range(0, 120, 1, 2).selectExpr("format_string('p%03d', id) AS name"))
    assert len(graph.snapshot().table("Person").fragments()) == 12
    for rows, tasks in ((10, 12), (30, 4), (25, 6), (1_000_000, 1)):
        found = graph_of_session.read("Person", partition_rows=rows)
        assert found.rdd.getNumPartitions() == tasks
        assert sorted(row["name"] for row in found.collect()) == [f"p{number:03d}" for number in range(120)]
    assert graph_of_session.read("Person", partition_rows=10, limit=35).rdd.getNumPartitions() == 1
    assert graph_of_session.read("Person", partition_rows=10, limit=35).count() == 35
