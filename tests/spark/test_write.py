"""Writing through Spark: everything a DataFrame holds becomes one commit, or nothing does."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from omnigraph_engine.errors import ConstraintViolation, DuplicateKey, OmnigraphError, VersionConflict
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.write.load import CommitReceipt, Load, LoadMode
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import StructType

import omnigraph_spark
from omnigraph_spark.write import TableLoad, open_writer

Read = Callable[..., DataFrame]
Write = Callable[..., None]

EVERYTHING = """
node Thing {
    key: String @key
    blob: Blob?
    day: Date?
    double: F64?
    flag: Bool?
    float: F32?
    int: I32?
    kind: enum(big, small)?
    long: I64?
    uint: U32?
    ulong: U64?
    vector: Vector(3)?
    when: DateTime?
    days: [Date]?
    flags: [Bool]?
    floats: [F64]?
    longs: [I64]?
    texts: [String]?
    ulongs: [U64]?
    whens: [DateTime]?
}
"""
COLUMNS = (
    "key string, blob binary, day date, double double, flag boolean, float float, int int, kind string, long long, "
    "uint long, ulong decimal(20,0), vector array<float>, when timestamp, days array<date>, flags array<boolean>, "
    "floats array<double>, longs array<long>, texts array<string>, ulongs array<decimal(20,0)>, whens array<timestamp>"
)
DAY = dt.date(1969, 7, 20)
WHEN = dt.datetime(2024, 7, 1, 23, 30, 0, 123000, tzinfo=dt.timezone.utc)
FULL = (
    "full", b"\x00\xff", DAY, -0.5, True, 1.5, -(2**31), "big", -(2**63),
    2**32 - 1, Decimal(2**64 - 1), [1.0, -2.0, 0.5], WHEN, [DAY, None], [True, None],
    [0.1, None], [2**63 - 1, None], ["a", "", None], [Decimal(2**64 - 1), None], [WHEN, None],
)  # fmt: skip
EMPTY = ("empty", b"", *[None] * 11, [], [], [], [], [], [], [])
NOTHING = ("nothing", *[None] * 19)


def people(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame([(name,) for name in names], "name string")


def stored_names(graph: Graph) -> list[str]:
    return sorted(graph.snapshot().table("Person").to_arrow(["name"])["name"].to_pylist())


@pytest.fixture(scope="module")
def things(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph into which Spark wrote every type there is, in a session whose zone is New York."""
    graph = Graph.create(tmp_path_factory.mktemp("things") / "things.omni", EVERYTHING)
    rows = spark.createDataFrame([FULL, EMPTY, NOTHING], COLUMNS)
    rows.write.format("omnigraph").option("node", "Thing").mode("append").save(graph.uri)
    return graph


def test_every_type_comes_back_as_it_was_written(spark: SparkSession, things: Graph) -> None:
    written = spark.createDataFrame([FULL, EMPTY, NOTHING], COLUMNS)
    found = spark.read.format("omnigraph").option("node", "Thing").load(things.uri).drop("id")
    assert_df_equality(written, found, ignore_row_order=True, ignore_column_order=True, ignore_nullable=True)


def test_every_type_is_stored_as_the_schema_says(things: Graph) -> None:
    table = things.snapshot().table("Thing").to_arrow(filter="key = 'full'").combine_chunks()
    whens = table["when"].chunk(0), table["whens"].chunk(0).flatten()
    millis = int(WHEN.timestamp() * 1000)
    assert [column.cast(pa.int64()).to_pylist() for column in whens] == [[millis], [millis, None]]
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 3)
    assert table.drop_columns(["when", "whens"]).to_pylist() == [
        {
            "id": "full", "key": "full", "blob": b"\x00\xff", "day": DAY, "double": -0.5, "flag": True, "float": 1.5,
            "int": -(2**31), "kind": "big", "long": -(2**63), "uint": 2**32 - 1, "ulong": 2**64 - 1,
            "vector": [1.0, -2.0, 0.5], "days": [DAY, None], "flags": [True, None], "floats": [0.1, None],
            "longs": [2**63 - 1, None], "texts": ["a", "", None], "ulongs": [2**64 - 1, None],
        }
    ]  # fmt: skip


def test_nodes_and_edges_are_appended_each_as_one_commit(
    spark: SparkSession, graph: Graph, read: Read, write: Write
) -> None:
    write(people(spark, "Ada", "Bob"), node="Person")
    write(people(spark, "Cy"), node="Person")
    knows = spark.createDataFrame([("Ada", "Bob", DAY), ("Bob", "Cy", None)], "src string, dst string, since date")
    write(knows, edge="Knows")
    assert stored_names(graph) == ["Ada", "Bob", "Cy"]
    found = read(edge="Knows")
    assert_df_equality(knows, found.drop("id"), ignore_row_order=True, ignore_nullable=True)
    assert found.select("id").distinct().count() == 2
    assert len(graph.commits.list()) == 4


def test_overwriting_replaces_the_type_and_nothing_else(spark: SparkSession, graph: Graph, write: Write) -> None:
    write(people(spark, "Ada", "Bob"), node="Person")
    write(spark.createDataFrame([("Acme",)], "name string"), node="Company")
    write(people(spark, "Dot"), "overwrite", node="Person")
    assert stored_names(graph) == ["Dot"]
    assert graph.snapshot().table("Company").count() == 1


def test_overwriting_nodes_that_edges_end_at_is_refused(spark: SparkSession, graph: Graph, write: Write) -> None:
    write(people(spark, "Ada", "Bob"), node="Person")
    write(spark.createDataFrame([("Ada", "Bob")], "src string, dst string"), edge="Knows")
    with pytest.raises(AnalysisException, match=r"OG4005 edge:Knows\.dst: 1 value"):
        write(people(spark, "Ada"), "overwrite", node="Person")
    assert stored_names(graph) == ["Ada", "Bob"]


def test_overwriting_with_no_rows_empties_the_type(spark: SparkSession, graph: Graph, write: Write) -> None:
    write(people(spark, "Ada", "Bob"), node="Person")
    write(people(spark), "overwrite", node="Person")
    assert graph.snapshot().table("Person").count() == 0
    assert stored_names(graph) == []


def test_appending_no_rows_commits_nothing(spark: SparkSession, graph: Graph, write: Write) -> None:
    write(people(spark), node="Person")
    assert len(graph.commits.list()) == 1


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_many_partitions_with_and_without_rows_become_one_commit(
    spark: SparkSession, graph: Graph, read: Read, write: Write, mode: str
) -> None:
    rows = spark.range(100).select(F.format_string("p%03d", "id").alias("name"), F.col("id").cast("int").alias("age"))
    write(rows.repartitionByRange(5, "age").filter("age < 20 OR age >= 60"), mode, node="Person")
    assert graph.snapshot().table("Person").count() == 60
    assert read(node="Person").agg(F.sum("age")).first()[0] == sum(range(20)) + sum(range(60, 100))  # type: ignore[index]
    assert len(graph.commits.list()) == 2


def test_one_key_in_two_partitions_is_refused_and_nothing_is_visible(
    spark: SparkSession, graph: Graph, write: Write
) -> None:
    rows = people(spark, "Ada").union(people(spark, "Ada"))
    assert rows.rdd.getNumPartitions() > 1
    with pytest.raises(AnalysisException, match=r"OG4004 node:Person: 1 id.* occur more than once"):
        write(rows, node="Person")
    assert stored_names(graph) == []


def test_a_key_that_exists_is_refused(spark: SparkSession, graph: Graph, write: Write) -> None:
    write(people(spark, "Ada"), node="Person")
    with pytest.raises(AnalysisException, match=r"OG4004 node:Person: 1 id.* exist already: 'Ada'"):
        write(people(spark, "Ada", "Bob"), node="Person")
    assert stored_names(graph) == ["Ada"]


def test_an_edge_to_nowhere_is_refused(spark: SparkSession, graph: Graph, write: Write) -> None:
    write(people(spark, "Ada"), node="Person")
    with pytest.raises(AnalysisException, match=r"OG4005 edge:Knows\.dst: 1 value.* not the id of any Person: 'Zoe'"):
        write(spark.createDataFrame([("Ada", "Zoe")], "src string, dst string"), edge="Knows")
    assert graph.snapshot().table("Knows").count() == 0


def test_a_failing_task_leaves_nothing_visible_and_the_graph_usable(
    spark: SparkSession, graph: Graph, read: Read, write: Write
) -> None:
    good = spark.createDataFrame([("Ada", 36)], "name string, age long")
    bad = spark.createDataFrame([("Bob", 2**40)], "name string, age long")
    with pytest.raises(PythonException) as raised:
        write(good.union(bad), node="Person")
    assert len(graph.commits.list()) == 1
    assert read(node="Person").count() == 0
    text = str(raised.value).strip().splitlines()
    assert len(text) == 2  # Spark's line, then ours
    assert "OG4003 Person.age must fit I32?" in text[1]
    write(good, node="Person")
    assert stored_names(graph) == ["Ada"]


def test_columns_that_do_not_fit_are_refused_before_any_task_runs(spark: SparkSession, write: Write) -> None:
    with pytest.raises(AnalysisException, match="Failed to initialize Python data source writer") as raised:
        write(spark.createDataFrame([("Ada", 36)], "name string, agee int"), node="Person")
    first, state = str(raised.value).splitlines()
    assert first.endswith("OG3005 Person has no property 'agee'. Hint: Did you mean 'age'?")
    assert state.strip() == "SQLSTATE: 38000"


def test_the_format_may_be_registered_too(spark: SparkSession, graph: Graph) -> None:
    session = spark.newSession()
    omnigraph_spark.register(session)
    assert session.read.format("omnigraph").option("node", "Company").load(graph.uri).columns == ["id", "name"]


@pytest.mark.s3
def test_a_graph_on_an_object_store_is_written_and_read(
    spark: SparkSession, s3_options: Mapping[str, str], social: str
) -> None:
    graph = Graph.create(f"s3://graphs/{uuid.uuid4()}/social.omni", social, storage_options=s3_options)
    options = {f"storage.{name}": value for name, value in s3_options.items()}
    rows = people(spark, "Ada").union(people(spark, "Bob"))
    rows.write.format("omnigraph").options(node="Person", **options).mode("append").save(graph.uri)
    found = spark.read.format("omnigraph").options(node="Person", columns="name", **options).load(graph.uri)
    assert_df_equality(rows, found, ignore_row_order=True, ignore_nullable=True)


# -- the seam itself, without Spark ---------------------------------------------------------------------------


APPEND, OVERWRITE = LoadMode.APPEND, LoadMode.OVERWRITE


def a_load(graph: Graph) -> Load:
    """A load as it arrives in another process."""
    load: Load = pickle.loads(pickle.dumps(graph.begin_load()))  # noqa: S301
    return load


def stage_partition(load: Load, table_key: str, mode: LoadMode, batches: Iterator[pa.RecordBatch]) -> str | None:
    """What a task does."""
    return TableLoad(load, table_key, mode, None).stage(batches)


def commit_partitions(load: Load, table_key: str, mode: LoadMode, messages: list[str | None]) -> CommitReceipt:
    """What the writer does when all tasks are done."""
    staged = TableLoad(load, table_key, mode, None).gather(messages)
    return load.commit([] if staged is None else [staged])


def batch(*names: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"name": list(names)})


def test_a_message_is_text_whose_size_does_not_follow_the_rows(graph: Graph) -> None:
    load = a_load(graph)
    small = stage_partition(load, "node:Person", APPEND, iter([batch("a")]))
    large = stage_partition(load, "node:Person", APPEND, iter([batch(*(f"p{number}" for number in range(50_000)))]))
    assert small is not None
    assert large is not None
    assert len(large) < len(small) + 100
    assert StagedWrite.from_json(large).rows_inserted == 50_000


def test_a_receipt_counts_what_all_partitions_did(graph: Graph) -> None:
    graph.load({"Person": pa.table({"name": ["Ada", "Bob", "Cy"]})})
    load = a_load(graph)
    messages = [
        stage_partition(load, "node:Person", OVERWRITE, iter(rows))
        for rows in ([batch("x")], [], [batch("y"), batch("z")])
    ]
    assert messages[1] is None
    receipt = commit_partitions(load, "node:Person", OVERWRITE, messages)
    counts: Any = receipt.tables["node:Person"]
    assert (counts.rows, counts.inserted, counts.updated, counts.deleted) == (3, 3, 0, 3)


def test_an_append_that_another_was_faster_than_is_committed_after_it(graph: Graph) -> None:
    first, second = a_load(graph), a_load(graph)
    staged = stage_partition(second, "node:Person", APPEND, iter([batch("Bob")]))
    commit_partitions(
        first, "node:Person", APPEND, [stage_partition(first, "node:Person", APPEND, iter([batch("Ada")]))]
    )
    commit_partitions(second, "node:Person", APPEND, [staged])
    assert stored_names(graph) == ["Ada", "Bob"]


def test_an_append_of_a_key_that_another_has_inserted_meanwhile_is_refused(graph: Graph) -> None:
    first, second = a_load(graph), a_load(graph)
    staged = stage_partition(second, "node:Person", APPEND, iter([batch("Ada")]))
    commit_partitions(
        first, "node:Person", APPEND, [stage_partition(first, "node:Person", APPEND, iter([batch("Ada")]))]
    )
    with pytest.raises(DuplicateKey, match="OG4004"):
        commit_partitions(second, "node:Person", APPEND, [staged])
    assert stored_names(graph) == ["Ada"]


def test_an_overwrite_of_a_table_that_has_moved_is_told_and_changes_nothing(graph: Graph) -> None:
    first, second = a_load(graph), a_load(graph)
    staged = stage_partition(second, "node:Person", OVERWRITE, iter([batch("Bob")]))
    commit_partitions(
        first, "node:Person", APPEND, [stage_partition(first, "node:Person", APPEND, iter([batch("Ada")]))]
    )
    with pytest.raises(VersionConflict, match="OG2001 version conflict on node:Person: expected 1, found 2"):
        commit_partitions(second, "node:Person", OVERWRITE, [staged])
    assert stored_names(graph) == ["Ada"]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("name string, agee int", "OG3005 Person has no property 'agee'. Hint: Did you mean 'age'?"),
        ("age int", "OG4003 Person.name is required, and the data has no such column."),
        ("name string, age string", "OG4002 Person.age is I32?"),
        ("name string, age struct<years:int>", "OG4002 Column 'age' is struct<years:int>"),
    ],
)
def test_a_writer_takes_only_columns_that_fit(graph: Graph, columns: str, says: str) -> None:
    with pytest.raises(OmnigraphError) as raised:
        open_writer({"path": graph.uri, "node": "Person"}, StructType.fromDDL(columns), overwrite=False)
    assert str(raised.value).startswith(says)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"node": "Person", "path": ""}, "OG6001 The address of the graph is missing"),
        ({"edge": "Persom"}, "OG3004 The graph has no edge type 'Persom'"),
        ({"node": "Person", "branch": "dev"}, "OG1010 The graph has no branch 'dev'"),
    ],
)
def test_a_writer_that_cannot_write_says_so_at_once(graph: Graph, options: dict[str, str], says: str) -> None:
    with pytest.raises(OmnigraphError) as raised:
        open_writer({"path": graph.uri, **options}, StructType.fromDDL("name string"), overwrite=False)
    assert str(raised.value).startswith(says)


@pytest.mark.parametrize(
    ("vector", "says"),
    [
        ([1.0, 2.0], "OG4003 Thing.vector must have 3 elements; rows that break this: 1; first values: 2."),
        ([1.0, 2.0, None], "OG4003 Thing.vector must have finite elements only"),
    ],
)
def test_a_vector_of_the_wrong_shape_is_refused(tmp_path: Path, vector: list[float | None], says: str) -> None:
    load = a_load(Graph.create(tmp_path / "things.omni", EVERYTHING))
    rows = pa.RecordBatch.from_pydict({"key": ["a"], "vector": pa.array([vector], pa.list_(pa.float32()))})
    with pytest.raises(ConstraintViolation) as raised:
        stage_partition(load, "node:Thing", APPEND, iter([rows]))
    assert str(raised.value).startswith(says)
