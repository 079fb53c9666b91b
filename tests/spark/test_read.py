"""Reading through Spark: a pinned snapshot, chosen columns, and fragments shared out to tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import lance
import pyarrow as pa
import pytest
from omnigraph_engine.errors import InvalidArgument, OmnigraphError
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables.table import FragmentInfo
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from omnigraph_spark.read import open_reader, pin_load, share_out

Read = Callable[..., DataFrame]


@pytest.fixture
def people(graph: Graph) -> Graph:
    graph.load({"Person": pa.table({"name": ["Ada", "Bob"], "age": [36, None]})})
    return graph


def names(people: DataFrame) -> list[str]:
    return sorted(row["name"] for row in people.collect())


def test_the_format_is_found_without_registering_it(spark: SparkSession, people: Graph) -> None:
    fresh = spark.newSession()
    assert fresh.read.format("omnigraph").option("node", "Person").load(people.uri).count() == 2


@pytest.mark.usefixtures("people")
def test_rows_come_back_with_the_types_columns_in_stored_order(read: Read) -> None:
    person = read(node="Person")
    assert person.schema.simpleString() == "struct<id:string,age:int,name:string>"
    assert [field.nullable for field in person.schema] == [False, True, False]
    assert sorted(map(tuple, person.collect())) == [("Ada", 36, "Ada"), ("Bob", None, "Bob")]


def test_a_table_without_rows_is_read_as_one(read: Read) -> None:
    assert read(edge="Knows").collect() == []


def test_a_loaded_dataframe_stays_what_it_was_while_others_commit(people: Graph, read: Read) -> None:
    before = read(node="Person")
    people.load({"Person": pa.table({"name": ["Cy"]})})
    assert before.count() == 2
    people.load({"Person": pa.table({"name": ["Dot"]})}, mode="overwrite")
    assert names(before) == ["Ada", "Bob"]
    assert names(read(node="Person")) == ["Dot"]


@pytest.mark.usefixtures("people")
def test_columns_are_chosen_by_option_in_the_order_given(read: Read) -> None:
    assert sorted(map(tuple, read(node="Person", columns="name,age").collect())) == [("Ada", 36), ("Bob", None)]


def test_columns_are_chosen_by_a_given_schema(spark: SparkSession, people: Graph) -> None:
    reader = spark.read.format("omnigraph").option("node", "Person")
    assert sorted(map(tuple, reader.schema("name string").load(people.uri).collect())) == [("Ada",), ("Bob",)]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("nam string", "OG3005 node:Person has no column 'nam'. Hint: Did you mean 'name'?"),
        ("age long", "OG4002 node:Person.age is int; the given schema says bigint."),
    ],
)
def test_a_given_schema_must_be_the_tables(people: Graph, schema: str, says: str) -> None:
    with pytest.raises(OmnigraphError) as raised:
        open_reader({"path": people.uri, "node": "Person"}, None, StructType.fromDDL(schema))
    assert says in str(raised.value)


def test_a_given_schema_and_the_option_columns_must_not_differ(people: Graph) -> None:
    given = {"path": people.uri, "node": "Person", "columns": "id,age"}
    open_reader(given, None, StructType.fromDDL("id string, age int"))
    with pytest.raises(InvalidArgument, match="one of them"):
        open_reader(given, None, StructType.fromDDL("age int"))


def test_a_point_in_history_is_read_by_commit_version_or_time(people: Graph, read: Read) -> None:
    then = people.snapshot()
    people.load({"Person": pa.table({"name": ["Cy"]})})
    time = then.commit.created_at
    assert names(read(node="Person")) == ["Ada", "Bob", "Cy"]
    assert names(read(node="Person", commit=then.commit.commit_id)) == ["Ada", "Bob"]
    assert names(read(node="Person", version=then.version)) == ["Ada", "Bob"]
    iso = pa.scalar(time, pa.timestamp("us", "UTC")).as_py().isoformat()
    assert names(read(node="Person", timestamp=iso)) == ["Ada", "Bob"]


def test_a_branch_is_read_by_its_name(people: Graph, read: Read) -> None:
    manifest = lance.dataset(f"{people.uri}/__manifest")
    manifest.create_branch("dev", (None, manifest.version))
    people.load({"Person": pa.table({"name": ["Cy"]})})
    assert names(read(node="Person", branch="dev")) == ["Ada", "Bob"]
    assert names(read(node="Person", branch="main")) == ["Ada", "Bob", "Cy"]


def test_a_temporary_view_carries_the_options_into_sql(spark: SparkSession, people: Graph) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW person USING omnigraph OPTIONS (path '{people.uri}', node 'Person')")
    try:
        assert spark.sql("SELECT max(age) AS oldest FROM person WHERE name <> 'Bob'").first()["oldest"] == 36  # type: ignore[index]
    finally:
        spark.catalog.dropTempView("person")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"node": "Person", "columns": "nam"}, "OG3005 node:Person has no column 'nam'. Hint: Did you mean 'name'?"),
        ({"node": "Person", "branch": "dev"}, "OG1010 The graph has no branch 'dev'."),
        ({"edge": "Person"}, "OG3004 The graph has no edge type 'Person'."),
    ],
)
def test_options_that_name_nothing_are_refused(people: Graph, options: dict[str, str], says: str) -> None:
    with pytest.raises(OmnigraphError) as raised:
        pin_load({"path": people.uri, **options})
    assert str(raised.value).startswith(says)


def test_an_error_is_one_clean_line_with_its_code(read: Read) -> None:
    with pytest.raises(AnalysisException, match="OG") as raised:
        read(node="Persom")
    first, state = str(raised.value).splitlines()
    assert first.endswith("UnknownType: OG3004 The graph has no node type 'Persom'. Hint: Did you mean 'Person'?")
    assert state.strip() == "SQLSTATE: 38000"


def test_fragments_are_shared_out_by_rows_in_stored_order() -> None:
    fragments = [FragmentInfo(number, rows) for number, rows in enumerate([10, 40, 60, 5, 500, 5, 5])]
    assert share_out(fragments, 100) == [(0, 1), (2, 3), (4,), (5, 6)]
    assert share_out([], 100) == [()]


def test_the_module_that_spark_looks_for_loads_neither_lance_nor_the_engine() -> None:
    script = "import sys, pyspark_omnigraph; print({'lance', 'omnigraph_engine', 'pyarrow.dataset'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], check=True, capture_output=True, text=True, env=os.environ
    )
    assert done.stdout.strip() == "set()"
