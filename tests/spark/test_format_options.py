"""Options of ``format("omnigraph")`` beyond the type and the snapshot: what each of them does, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from omnigraph_engine.errors import InvalidArgument, OmnigraphError, UnknownProperty
from omnigraph_engine.graph import Graph
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import StructType

from omnigraph_spark.options import read_options, write_options
from omnigraph_spark.read import pin_load
from omnigraph_spark.write import open_writer

Read = Callable[..., DataFrame]
Write = Callable[..., None]

PERSON = {"path": "/data/social.omni", "node": "Person"}
KNOWS = {"path": "/data/social.omni", "edge": "Knows"}
PEOPLE = [("Ada", 36), ("Bob", None), ("Cy", 61), ("Dot", 7)]
TOWNS = """
node Person { name: String @key }
node City {
    country: String
    name: String
    @key(country, name)
}
edge LivesIn: Person -> City { since: I32? }
"""


def same(found: DataFrame, expected: DataFrame) -> None:
    assert_df_equality(found, expected, ignore_row_order=True, ignore_column_order=True, ignore_nullable=True)


@pytest.fixture
def people(spark: SparkSession, graph: Graph) -> DataFrame:
    """Four people, in the graph and as a DataFrame."""
    graph.load({"Person": pa.table({"name": [name for name, _ in PEOPLE], "age": [age for _, age in PEOPLE]})})
    return spark.createDataFrame(PEOPLE, "name string, age int")


# -- reading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["age > 30", "age IS NULL", "name IN ('Ada', 'Dot')", "age > 30 AND name <> 'Cy'", "age < 0"]
)
def test_a_filter_at_the_source_is_the_same_filter_in_spark(people: DataFrame, read: Read, text: str) -> None:
    same(read(node="Person", filter=text).drop("id"), people.filter(text))


def test_a_filter_may_use_columns_that_are_not_read(people: DataFrame, read: Read) -> None:
    same(read(node="Person", columns="name", filter="age > 30"), people.filter("age > 30").select("name"))


@pytest.mark.usefixtures("people")
def test_one_dataframe_is_filtered_at_the_source_and_again_in_spark(read: Read) -> None:
    """Two filters on one DataFrame must not leak into each other; Spark's own pushdown does that."""
    loaded = read(node="Person", filter="age > 10")
    assert [row["name"] for row in loaded.filter("age < 50").collect()] == ["Ada"]
    assert [row["name"] for row in loaded.filter("age > 50").collect()] == ["Cy"]


@pytest.mark.usefixtures("people")
def test_a_filter_that_makes_no_sense_is_one_clean_line(read: Read) -> None:
    with pytest.raises(AnalysisException, match="OG6001 The filter 'agee > 3' does not work on node:Person") as raised:
        read(node="Person", filter="agee > 3").collect()
    assert len(str(raised.value).strip().splitlines()) == 2


@pytest.mark.usefixtures("people")
def test_a_filter_of_which_a_part_would_be_dropped_is_refused(read: Read) -> None:
    with pytest.raises(AnalysisException, match=r"OG6001 .* is not one condition"):
        read(node="Person", filter="age > 0; AND name = 'Ada'").collect()


@pytest.mark.parametrize(("limit", "rows"), [(0, 0), (3, 3), (99, 4)])
def test_a_limit_is_read_by_one_task(people: DataFrame, read: Read, limit: int, rows: int) -> None:
    found = read(node="Person", limit=limit, **{"partition.rows": 1}).drop("id")
    assert found.rdd.getNumPartitions() == 1
    assert found.count() == rows
    same(found.intersectAll(people.select(found.columns)), found)


def test_partition_rows_shares_fragments_out_and_changes_no_row(spark: SparkSession, read: Read, write: Write) -> None:
    rows = spark.range(0, 60, 1, 2).selectExpr("format_string('p%02d', id) AS name", "cast(id AS int) AS age")
    write(rows, node="Person", **{"write.max_rows_per_file": 10})
    for target, tasks in ((10, 6), (20, 3), (25, 3), (60, 1)):
        found = read(node="Person", **{"partition.rows": target}).drop("id")
        assert found.rdd.getNumPartitions() == tasks
        same(found, rows)


# -- writing --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("people")
def test_actor_and_message_are_in_the_commit(spark: SparkSession, graph: Graph, write: Write) -> None:
    write(spark.createDataFrame([("Eve",)], "name string"), node="Person", actor="Importer", message="More, people")
    newest = graph.commits.list()[0]
    assert (newest.actor, newest.extra["message"]) == ("Importer", "More, people")


def test_a_numbered_write_is_done_once(spark: SparkSession, graph: Graph, read: Read, write: Write) -> None:
    first, other = (spark.createDataFrame([(name,)], "name string") for name in ("Ada", "Bob"))
    once = {"txn.app_id": "nightly", "txn.version": 7}
    write(first, node="Person", **once)
    write(first, node="Person", **once)
    write(other, node="Person", **{**once, "txn.version": 6})
    write(other, "overwrite", node="Person", **once)
    same(read(node="Person", columns="name"), first)
    write(other, node="Person", **{**once, "txn.version": 8})
    same(read(node="Person", columns="name"), first.union(other))
    assert len(graph.commits.list()) == 3


def test_a_task_starts_a_new_file_after_as_many_rows_as_told(spark: SparkSession, graph: Graph, write: Write) -> None:
    rows = spark.range(0, 25, 1, 1).selectExpr("cast(id AS string) AS name")
    write(rows, node="Person", **{"write.max_rows_per_file": 10})
    assert [part.rows for part in graph.snapshot().table("Person").fragments()] == [10, 10, 5]


def test_load_merge_replaces_rows_that_exist_and_adds_the_others(
    spark: SparkSession, graph: Graph, people: DataFrame, read: Read, write: Write
) -> None:
    changes = spark.createDataFrame([("Ada", 37), ("Eve", 1), ("Cy", None)], "name string, age int").repartition(3)
    write(changes, node="Person", load="merge")
    kept = people.join(changes.select("name"), "name", "left_anti")
    same(read(node="Person").drop("id"), kept.unionByName(changes))
    assert len(graph.commits.list()) == 3


def test_endpoints_are_the_columns_that_edge_src_and_edge_dst_name(
    spark: SparkSession, people: DataFrame, read: Read, write: Write
) -> None:
    assert people.count() == 4
    friends = spark.createDataFrame([("Ada", "Bob"), ("Cy", "Ada")], "one string, other string")
    write(friends, edge="Knows", **{"edge.src": "one", "edge.dst": "other"})
    same(read(edge="Knows", columns="src,dst"), friends.toDF("src", "dst"))


def test_endpoints_are_found_by_the_key_columns_that_are_named(spark: SparkSession, tmp_path: Path) -> None:
    graph = Graph.create(tmp_path / "towns.omni", TOWNS)
    cities = pa.table({"country": ["fr", "it"], "name": ["Lyon", "Lyon"]})
    graph.load({"Person": pa.table({"name": ["Ada", "Bob"]}), "City": cities})
    moves = spark.createDataFrame(
        [("Ada", "fr", "Lyon", 1999), ("Bob", "it", "Lyon", None)], "who string, land string, town string, since int"
    )
    keys = {"edge.src.key": "who", "edge.dst.key": "land, town"}
    moves.write.format("omnigraph").options(edge="LivesIn", **keys).mode("append").save(graph.uri)
    reader = spark.read.format("omnigraph")
    lives = reader.option("edge", "LivesIn").load(graph.uri)
    city = spark.read.format("omnigraph").option("node", "City").load(graph.uri)
    joined = lives.join(city, lives.dst == city.id).select(
        lives.src.alias("who"), city.country.alias("land"), city.name.alias("town"), "since"
    )
    same(joined, moves)


def test_dangling_edges_are_refused_or_left_out_as_edge_endpoints_says(
    spark: SparkSession, graph: Graph, people: DataFrame, read: Read, write: Write
) -> None:
    assert people.count() == 4
    edges = spark.createDataFrame([("Ada", "Bob"), ("Ada", "Zoe"), ("Xi", "Ada")], "src string, dst string")
    for loud in ({}, {"edge.endpoints": "error"}):
        with pytest.raises(AnalysisException, match="OG4005"):
            write(edges, edge="Knows", **loud)
    write(edges, edge="Knows", **{"edge.endpoints": "skip"})
    same(read(edge="Knows", columns="src,dst"), edges.filter("src = 'Ada' AND dst = 'Bob'"))
    assert len(graph.commits.list()) == 3
    told = read(table="commits").select(F.get_json_object("metrics", "$['edge:Knows'].skipped")).first()
    assert told == ("2",)


# -- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**PERSON, "fitler": "age > 3"}, "no option 'fitler'.*Did you mean 'filter'"),
        ({**PERSON, "limit": "-1"}, "option limit is -1; it must be at least 0"),
        ({**PERSON, "limit": "many"}, "option limit is 'many', not a whole number"),
        ({**PERSON, "partition.rows": "0"}, "partition.rows is 0; it must be at least 1"),
        ({**PERSON, "table": "commits"}, "node and table were given"),
        ({**PERSON, "load": "merge"}, "no option 'load' to read"),
        ({"node": "Person", "paths": '["/a","/b"]'}, "One load reads one graph.*union"),
    ],
)
def test_values_that_make_no_sense_are_refused_when_reading(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        read_options(given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**PERSON, "load": "upsert"}, "option load is 'upsert'.*Use append or merge"),
        ({**PERSON, "load": "overwrite"}, "option load is 'overwrite'.*Use append or merge"),
        ({**KNOWS, "edge.endpoints": "drop"}, "edge.endpoints is 'drop'.*Use error or skip"),
        ({**KNOWS, "edge.src": "a", "edge.src.key": "b"}, "edge.src and edge.src.key exclude each other"),
        ({**KNOWS, "edge.dst.key": "a,,b"}, "separated by commas"),
        ({**PERSON, "edge.src": "a"}, "edge.src is for edges, and Person is written as a node type"),
        ({**PERSON, "edge.endpoints": "skip"}, "edge.endpoints is for edges"),
        ({**PERSON, "txn.version": "x"}, "txn.version is 'x', not a whole number"),
        ({**PERSON, "write.max_rows_per_file": "0"}, "must be at least 1"),
        ({**PERSON, "acter": "me"}, "no option 'acter'.*Did you mean 'actor'"),
        ({"path": "/data/social.omni", "table": "node:Person"}, "no option 'table' to write"),
        ({**PERSON, "filter": "age > 3"}, "no option 'filter' to write"),
    ],
)
def test_values_that_make_no_sense_are_refused_when_writing(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        write_options(given)


@pytest.mark.parametrize(
    ("options", "columns", "error", "says"),
    [
        ({"node": "Person", "txn.app_id": "a"}, "name string", InvalidArgument, "belong together"),
        ({"edge": "Knows", "edge.src": "frm"}, "from string, dst string", UnknownProperty, "Did you mean 'from'"),
        ({"edge": "Knows", "edge.src.key": "a,b"}, "a string, b string, dst string", InvalidArgument, "1 member"),
    ],
)
def test_options_that_do_not_fit_the_graph_are_refused_before_any_task_runs(
    graph: Graph, options: dict[str, str], columns: str, error: type[OmnigraphError], says: str
) -> None:
    with pytest.raises(error, match=says):
        open_writer({"path": graph.uri, **options}, StructType.fromDDL(columns), overwrite=False)


@pytest.mark.usefixtures("people")
def test_overwriting_and_merging_at_once_is_refused(spark: SparkSession, graph: Graph, write: Write) -> None:
    with pytest.raises(AnalysisException, match=r"OG6001 mode overwrite replaces the whole type.*mode..append"):
        write(spark.createDataFrame([("Eve",)], "name string"), "overwrite", node="Person", load="merge")
    assert graph.snapshot().table("Person").count() == 4


@pytest.mark.parametrize("option", [{"columns": "id"}, {"filter": "id = ''"}, {"limit": "1"}])
def test_options_of_rows_are_refused_for_tables_about_the_graph(graph: Graph, option: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match=r"is for node and edge types.*use select, where and limit"):
        pin_load({"path": graph.uri, "table": "commits", **option})
