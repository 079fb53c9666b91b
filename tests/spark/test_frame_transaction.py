"""Transactions of DataFrames: several types become one commit, or nothing does; errors are the engine's own."""

# ruff: noqa: PT012 - a transaction is a block, and what raises is its end
from __future__ import annotations

import io
import json
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from omnigraph_engine.errors import (
    CardinalityViolation,
    ConstraintViolation,
    DuplicateKey,
    InvalidArgument,
    InvalidInput,
    MissingEndpoint,
    OmnigraphError,
    TypeMismatch,
    UniqueViolation,
    UnknownProperty,
    UnknownType,
    VersionConflict,
)
from omnigraph_engine.graph import Graph as EngineGraph
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from omnigraph_spark import Graph

INDUSTRY = Path(__file__).parents[1] / "data" / "industry-intel"
RULES = """
node Person {
    name: String @key
    email: String? @unique
    age: I32?
    @range(age, 0..150)
}
node City {
    country: String
    name: String
    @key(country, name)
}
edge LivesIn: Person -> City @card(0..1) { since: I32? }
edge Knows: Person -> Person
"""


@pytest.fixture
def social_graph(spark: SparkSession, graph: EngineGraph) -> Graph:
    return Graph.open(spark, graph.uri)


@pytest.fixture
def rules(spark: SparkSession, tmp_path: Path) -> Graph:
    """A graph whose schema has a rule of every kind."""
    return Graph.create(spark, tmp_path / "rules.omni", RULES)


def people(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame([(name,) for name in names], "name string")


def pairs(spark: SparkSession, *ends: tuple[str, str]) -> DataFrame:
    return spark.createDataFrame(list(ends), "src string, dst string")


def spread(spark: SparkSession, rows: Sequence[tuple[object, ...]], columns: str) -> DataFrame:
    """Every row in a partition of its own."""
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(rows)), columns)
    assert [len(part) for part in frame.rdd.glom().collect()] == [1] * len(rows)
    return frame


def content(graph: Graph) -> dict[str, list[dict[str, Any]]]:
    """Every row of the graph, as the engine sees it."""
    tables = EngineGraph.open(graph.uri, "ro").snapshot().tables
    return {key: sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) for key, table in tables.items()}


def names(graph: Graph, type_name: str = "Person") -> list[str]:
    return sorted(EngineGraph.open(graph.uri, "ro").snapshot().table(type_name).to_arrow(["name"])["name"].to_pylist())


def load_one(graph: Graph, type_name: str, frame: DataFrame, mode: str = "append") -> None:
    with graph.transaction() as tx:
        tx.load(type_name, frame, mode)


# -- one commit, or nothing -----------------------------------------------------------------------------------


def test_nodes_and_edges_of_several_types_become_one_commit(spark: SparkSession, social_graph: Graph) -> None:
    with social_graph.transaction(actor="loader", message="first") as tx:
        tx.load("WorksAt", pairs(spark, ("Ada", "Acme")))  # before its nodes: only the end of the block matters
        tx.load("Person", people(spark, "Ada", "Bob"))
        tx.load("node:Company", people(spark, "Acme"))
        tx.load("Knows", pairs(spark, ("Ada", "Bob"), ("Bob", "Ada")))
        assert social_graph.count("Person") == 0
    newest, first = social_graph.commits.list()
    assert tx.commit == tx.receipt.commit == newest
    assert (newest.actor, newest.extra["message"], newest.parent_id) == ("loader", "first", first.id)
    inserted = {key: table.inserted for key, table in tx.receipt.tables.items()}
    assert inserted == {"node:Person": 2, "node:Company": 1, "edge:Knows": 2, "edge:WorksAt": 1}
    assert {key: len(rows) for key, rows in content(social_graph).items()} == inserted


def test_an_exception_in_the_block_leaves_nothing_visible_and_the_history_as_it_was(
    spark: SparkSession, social_graph: Graph
) -> None:
    load_one(social_graph, "Person", people(spark, "Ada"))
    before, head = content(social_graph), social_graph.commits.list()
    transaction = social_graph.transaction()
    with pytest.raises(ZeroDivisionError), transaction as tx:
        tx.load("Person", people(spark, "Bob"))
        tx.load("Company", people(spark, "Acme"))
        _ = 1 // 0
    assert content(social_graph) == before
    assert social_graph.commits.list() == head
    with pytest.raises(InvalidArgument, match="not committed"):
        _ = transaction.receipt
    load_one(social_graph, "Person", people(spark, "Bob"))
    assert names(social_graph) == ["Ada", "Bob"]


def test_a_load_outside_of_the_block_is_refused_before_any_job(spark: SparkSession, social_graph: Graph) -> None:
    transaction = social_graph.transaction()
    with pytest.raises(InvalidArgument, match="has not begun: nothing would be committed"):
        transaction.load("Person", people(spark, "Ada"))
    with pytest.raises(InvalidArgument, match="has not begun"):
        transaction.load_json(spark.createDataFrame([("{}",)], "value string"))
    with transaction as tx:
        tx.load("Person", people(spark, "Ada"))
    for type_name in ("Person", "Company"):
        with pytest.raises(InvalidArgument, match="is over"):
            tx.load(type_name, people(spark, "Bob"))
    assert names(social_graph) == ["Ada"]


@pytest.mark.parametrize("rows", [0, -1])
def test_a_number_of_rows_per_file_below_one_is_refused(social_graph: Graph, rows: int) -> None:
    with pytest.raises(InvalidArgument, match=r"max_rows_per_file is .*; it must be at least 1"):
        social_graph.transaction(max_rows_per_file=rows)


def test_a_block_that_loads_nothing_or_no_rows_commits_nothing(spark: SparkSession, social_graph: Graph) -> None:
    with social_graph.transaction() as nothing:
        pass
    with social_graph.transaction() as no_rows:
        no_rows.load("Person", people(spark))
        no_rows.load("Company", people(spark), "merge")
    assert nothing.commit is None
    assert no_rows.commit is None
    assert len(social_graph.commits.list()) == 1


def test_one_rule_that_breaks_in_one_type_keeps_all_types_out(spark: SparkSession, social_graph: Graph) -> None:
    with pytest.raises(MissingEndpoint) as raised, social_graph.transaction() as tx:
        tx.load("Person", people(spark, "Ada"))
        tx.load("Company", people(spark, "Acme"))
        tx.load("WorksAt", pairs(spark, ("Ada", "Acme"), ("Ada", "Nowhere")))
    assert raised.value.details == {
        "table_key": "edge:WorksAt", "type": "WorksAt", "property": "dst", "rule": "dst", "count": 1, "values": ["Nowhere"],
    }  # fmt: skip
    assert all(rows == [] for rows in content(social_graph).values())
    assert len(social_graph.commits.list()) == 1


def test_two_transactions_that_append_both_land(spark: SparkSession, social_graph: Graph) -> None:
    with social_graph.transaction() as first, social_graph.transaction() as second:
        first.load("Person", people(spark, "Ada"))
        second.load("Person", people(spark, "Bob"))
    assert names(social_graph) == ["Ada", "Bob"]
    assert len(social_graph.commits.list()) == 3


def test_an_overwrite_that_others_were_faster_than_is_refused(spark: SparkSession, social_graph: Graph) -> None:
    with pytest.raises(VersionConflict), social_graph.transaction() as slow:
        slow.load("Person", people(spark, "Zoe"), "overwrite")
        load_one(social_graph, "Person", people(spark, "Ada"))
    assert names(social_graph) == ["Ada"]


def test_the_jobs_of_a_failed_block_are_stopped(spark: SparkSession, social_graph: Graph, tmp_path: Path) -> None:
    """The task waits for a file that nobody makes before the block has failed; only a stopped job ends without it."""
    begun, release = tmp_path / "begun", tmp_path / "release"

    def wait(rows: Any) -> Any:
        import time  # noqa: PLC0415 - runs in a worker

        begun.touch()
        while not release.exists():
            time.sleep(0.01)
        yield from rows

    slow = people(spark, "Ada").mapInArrow(wait, "name string")
    watchdog = threading.Timer(10, release.touch)
    watchdog.start()
    try:
        with pytest.raises(KeyError, match="enough"), social_graph.transaction() as tx:
            tx.load("Person", slow)
            while not begun.exists():
                threading.Event().wait(0.01)
            raise KeyError("enough")
        assert not release.exists()
    finally:
        watchdog.cancel()
        release.touch()
    assert len(social_graph.commits.list()) == 1


# -- typed errors ---------------------------------------------------------------------------------------------


def test_a_row_that_breaks_a_rule_on_its_own_is_told_by_the_typed_error_with_details(
    spark: SparkSession, rules: Graph
) -> None:
    rows = spread(spark, [("Ada", 36), ("Bob", 200), ("Cy", 40)], "name string, age int")
    with pytest.raises(ConstraintViolation) as raised:
        load_one(rules, "Person", rows)
    details = raised.value.details
    assert (details["type"], details["property"], details["rule"]) == ("Person", "age", "range")
    assert (details["values"], details["ids"]) == ([200], ["Bob"])
    assert len(rules.commits.list()) == 1


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_one_key_in_two_tasks_is_refused_in_every_mode(spark: SparkSession, social_graph: Graph, mode: str) -> None:
    load_one(social_graph, "Person", people(spark, "Ada"))
    before = content(social_graph)
    rows = spread(spark, [("Ada",), ("Bob",), ("Cy",), ("Bob",)], "name string")
    if mode == "append":
        rows = rows.filter("name <> 'Ada'")
    with pytest.raises(DuplicateKey, match="occur more than once") as raised:
        load_one(social_graph, "Person", rows, mode)
    assert raised.value.details["values"] == ["Bob"]
    assert content(social_graph) == before


def test_a_key_in_two_loads_of_one_transaction_is_refused(spark: SparkSession, social_graph: Graph) -> None:
    with pytest.raises(DuplicateKey) as raised, social_graph.transaction() as tx:
        tx.load("Person", people(spark, "Ada", "Bob"))
        tx.load("Person", people(spark, "Bob"))
    assert raised.value.details["values"] == ["Bob"]
    with social_graph.transaction() as tx:
        tx.load("Person", people(spark, "Ada"))
        tx.load("Person", people(spark, "Bob"))
    assert names(social_graph) == ["Ada", "Bob"]
    assert tx.receipt.tables["node:Person"].inserted == tx.metrics.tables["node:Person"].rows == 2


def test_a_key_that_exists_is_refused_on_append_whichever_task_has_it(spark: SparkSession, social_graph: Graph) -> None:
    load_one(social_graph, "Person", people(spark, "Ada"))
    with pytest.raises(DuplicateKey, match="exist already") as raised:
        load_one(social_graph, "Person", spread(spark, [("Bob",), ("Ada",), ("Cy",)], "name string"))
    assert (raised.value.details["count"], raised.value.details["values"]) == (1, ["Ada"])
    assert names(social_graph) == ["Ada"]


def test_a_unique_value_in_two_tasks_or_in_the_graph_is_refused(spark: SparkSession, rules: Graph) -> None:
    columns = "name string, email string"
    with pytest.raises(UniqueViolation) as raised:
        load_one(rules, "Person", spread(spark, [("Ada", "a@x"), ("Bob", "b@x"), ("Cy", "a@x")], columns))
    assert (raised.value.details["property"], raised.value.details["values"]) == ("email", ["a@x"])
    load_one(rules, "Person", spread(spark, [("Ada", "a@x"), ("Bob", None), ("Cy", None)], columns))
    with pytest.raises(UniqueViolation, match="taken by other rows"):
        load_one(rules, "Person", spread(spark, [("Dot", "d@x"), ("Eve", "a@x")], columns))
    load_one(rules, "Person", spread(spark, [("Ada", "new@x"), ("Eve", "a@x")], columns), "merge")
    assert names(rules) == ["Ada", "Bob", "Cy", "Eve"]


def test_too_many_edges_of_one_source_are_found_across_tasks(spark: SparkSession, rules: Graph) -> None:
    load_one(rules, "City", spark.createDataFrame([("fr", "Lyon"), ("fr", "Nice")], "country string, name string"))
    load_one(rules, "Person", people(spark, "Ada", "Bob"))
    lyon, nice = (row["id"] for row in content(rules)["node:City"])
    with pytest.raises(CardinalityViolation) as raised:
        ends = [("Ada", lyon), ("Bob", lyon), ("Ada", nice)]
        load_one(rules, "LivesIn", spread(spark, ends, "src string, dst string"))
    assert (raised.value.details["values"], raised.value.details["counts"]) == (["Ada"], [2])
    load_one(rules, "LivesIn", pairs(spark, ("Ada", lyon)))
    with pytest.raises(CardinalityViolation):
        load_one(rules, "LivesIn", spread(spark, [("Bob", nice), ("Ada", nice)], "src string, dst string"))
    assert len(content(rules)["edge:LivesIn"]) == 1


@pytest.mark.parametrize(
    ("type_name", "columns", "mode", "error", "says"),
    [
        ("Persom", "name string", "append", UnknownType, "Did you mean 'Person'"),
        ("Person", "name string, agee int", "append", UnknownProperty, "Did you mean 'age'"),
        ("Person", "age int", "append", ConstraintViolation, "name is required"),
        ("Person", "name string, age string", "append", TypeMismatch, "Person.age is I32"),
        ("Person", "name string", "upsert", InvalidArgument, "upsert"),
        ("Knows", "dst string", "append", ConstraintViolation, "src"),
    ],
)
def test_a_load_that_cannot_work_is_refused_at_once_and_ends_the_block(
    spark: SparkSession, social_graph: Graph, type_name: str, columns: str, mode: str, error: type[OmnigraphError], says: str
) -> None:  # fmt: skip
    with pytest.raises(error, match=says), social_graph.transaction() as tx:
        tx.load("Company", people(spark, "Acme"))
        tx.load(type_name, spark.createDataFrame([], columns), mode)
    assert len(social_graph.commits.list()) == 1


# -- modes ----------------------------------------------------------------------------------------------------


def test_append_merge_and_overwrite_do_what_their_names_say(spark: SparkSession, social_graph: Graph) -> None:
    columns = "name string, age int"
    with social_graph.transaction() as tx:
        tx.load("Person", spark.createDataFrame([("Ada", 36), ("Bob", 41)], columns))
    receipts = [tx.receipt.tables["node:Person"]]
    with social_graph.transaction() as tx:
        tx.load("Person", spark.createDataFrame([("Bob", 42), ("Cy", 7)], columns), "merge")
    receipts.append(tx.receipt.tables["node:Person"])
    merged = sorted(map(tuple, social_graph.read("Person", columns=["name", "age"]).collect()))
    assert merged == [("Ada", 36), ("Bob", 42), ("Cy", 7)]
    with social_graph.transaction() as tx:
        tx.load("Person", spark.createDataFrame([("Dot", 1)], columns), "overwrite")
    receipts.append(tx.receipt.tables["node:Person"])
    assert names(social_graph) == ["Dot"]
    counts = [(found.rows, found.inserted, found.updated, found.deleted) for found in receipts]
    assert counts == [(2, 2, 0, 0), (3, 1, 1, 0), (1, 1, 0, 3)]


def test_a_merge_by_many_tasks_keeps_row_ids_and_creation_versions(spark: SparkSession, social_graph: Graph) -> None:
    """All tasks replace rows of the one fragment there is; one of them adds rows as well."""
    load_one(social_graph, "Person", people(spark, *(f"p{number:02d}" for number in range(40))).coalesce(1))
    marks = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]

    def stored() -> dict[str, tuple[int, int, int]]:
        table = EngineGraph.open(social_graph.uri, "ro").snapshot().table("Person")
        rows = table.to_arrow(columns=marks).to_pylist()
        return {row["id"]: (row[marks[1]], row[marks[2]], row[marks[3]]) for row in rows}

    before = stored()
    assert len(EngineGraph.open(social_graph.uri).snapshot().table("Person").fragments()) == 1
    changed = spark.range(0, 44, 2, 7).selectExpr("format_string('p%02d', id) AS name", "cast(id AS int) AS age")
    with social_graph.transaction() as tx:
        tx.load("Person", changed, "merge")
    after = stored()
    receipt = tx.receipt.tables["node:Person"]
    assert (receipt.rows, receipt.inserted, receipt.updated) == (42, 2, 20)
    assert {name: mark[:2] for name, mark in after.items() if name in before} == {
        name: mark[:2] for name, mark in before.items()
    }
    assert sorted(name for name in before if after[name] != before[name]) == [f"p{n:02d}" for n in range(0, 40, 2)]
    ages = dict(map(tuple, social_graph.read("Person", columns=["name", "age"]).collect()))
    assert ages == {f"p{n:02d}": (n if n % 2 == 0 else None) for n in range(40)} | {"p40": 40, "p42": 42}


def test_a_merge_that_others_were_faster_than_lands_on_top_of_them(spark: SparkSession, social_graph: Graph) -> None:
    columns = "name string, age int"
    load_one(social_graph, "Person", spark.createDataFrame([("Ada", 1), ("Bob", 1)], columns))
    with social_graph.transaction() as slow:
        slow.load("Person", spread(spark, [("Ada", 2), ("Cy", 2)], columns), "merge")
        load_one(social_graph, "Person", spark.createDataFrame([("Ada", 3), ("Bob", 3), ("Dot", 3)], columns), "merge")
    ages = dict(map(tuple, social_graph.read("Person", columns=["name", "age"]).collect()))
    assert ages == {"Ada": 2, "Bob": 3, "Cy": 2, "Dot": 3}


@pytest.mark.parametrize(
    "modes",
    [
        ("append", "merge"),
        ("merge", "merge"),
        ("overwrite", "append"),
    ],
)
def test_a_type_that_is_loaded_twice_with_other_modes_than_append_is_refused(
    spark: SparkSession, social_graph: Graph, modes: tuple[str, str]
) -> None:
    with pytest.raises(InvalidArgument, match="loaded twice in one transaction") as raised:  # noqa: SIM117
        with social_graph.transaction() as tx:
            tx.load("Person", people(spark, "Ada"), modes[0])
            tx.load("Person", people(spark, "Bob"), modes[1])
    assert raised.value.details == {"table_key": "node:Person", "modes": list(modes)}
    assert len(social_graph.commits.list()) == 1


def test_json_lines_that_hold_a_type_which_is_loaded_otherwise_too_are_refused(
    spark: SparkSession, social_graph: Graph
) -> None:
    lines = spark.createDataFrame([(json.dumps({"type": "Person", "data": {"name": "Ada"}}),)], "value string")
    with pytest.raises(InvalidArgument, match="loaded twice"), social_graph.transaction() as tx:
        tx.load("Person", people(spark, "Bob"), "merge")
        tx.load_json(lines)
    assert len(social_graph.commits.list()) == 1


# -- options of a transaction ---------------------------------------------------------------------------------


def test_a_numbered_write_that_is_repeated_does_nothing_and_runs_no_job(
    spark: SparkSession, social_graph: Graph
) -> None:
    with social_graph.transaction(txn_app_id="nightly", txn_version=7) as first:
        first.load("Person", people(spark, "Ada"))
    fail = F.udf(lambda _: 1 // 0, "string")
    never = people(spark, "Bob").select(fail("name").alias("name"))  # a job over this fails
    for version in (7, 6):
        with social_graph.transaction(txn_app_id="nightly", txn_version=version) as again:
            again.load("Person", never)
        assert again.receipt.replayed
        assert again.commit == first.commit
    with social_graph.transaction(txn_app_id="nightly", txn_version=8) as third:
        third.load("Person", people(spark, "Cy"))
    assert not third.receipt.replayed
    assert names(social_graph) == ["Ada", "Cy"]
    assert len(social_graph.commits.list()) == 3
    with pytest.raises(InvalidArgument, match="belong together"):
        social_graph.transaction(txn_app_id="nightly")


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_dangling_edges_are_left_out_and_counted_when_asked(
    spark: SparkSession, social_graph: Graph, mode: str
) -> None:
    load_one(social_graph, "Person", people(spark, "Ada", "Bob"))
    ends = [("Ada", "Bob"), ("Ada", "Zoe"), ("Bob", "Ada"), ("Xi", "Yo")]
    with social_graph.transaction(skip_dangling=True) as tx:
        tx.load("Knows", spread(spark, ends, "src string, dst string"), mode)
    receipt = tx.receipt.tables["edge:Knows"]
    assert (receipt.inserted, receipt.skipped, receipt.rows) == (2, 2, 2)
    stored = {(row["src"], row["dst"]) for row in content(social_graph)["edge:Knows"]}
    assert stored == {("Ada", "Bob"), ("Bob", "Ada")}


def test_only_dangling_edges_commit_nothing_and_are_counted(spark: SparkSession, social_graph: Graph) -> None:
    with social_graph.transaction(skip_dangling=True) as tx:
        tx.load("Knows", pairs(spark, ("Xi", "Yo")))
    assert tx.commit is None
    assert tx.receipt.tables["edge:Knows"].skipped == 1
    assert len(social_graph.commits.list()) == 1


def test_endpoints_are_taken_from_the_columns_that_are_named(spark: SparkSession, rules: Graph) -> None:
    with rules.transaction() as tx:
        tx.load("Person", people(spark, "Ada", "Bob"))
        tx.load("City", spark.createDataFrame([("fr", "Lyon"), ("it", "Lyon")], "country string, name string"))
        moves = spark.createDataFrame(
            [("Ada", "fr", "Lyon", 1999), ("Bob", "it", "Lyon", None)],
            "who string, land string, town string, since int",
        )
        tx.load("LivesIn", moves, src_key=["who"], dst_key=["land", "town"])
        friends = spark.createDataFrame([("Ada", "Bob")], "one string, other string")
        tx.load("Knows", friends, src="one", dst="other")
    stored = content(rules)
    cities = {row["id"]: row["country"] for row in stored["node:City"]}
    found = [(row["src"], cities[row["dst"]], row["since"]) for row in stored["edge:LivesIn"]]
    assert sorted(found) == [("Ada", "fr", 1999), ("Bob", "it", None)]
    assert [(row["src"], row["dst"]) for row in stored["edge:Knows"]] == [("Ada", "Bob")]


@pytest.mark.parametrize(
    ("choice", "error", "says"),
    [
        ({"src": "whoo"}, UnknownProperty, "no column 'whoo'.*Did you mean 'who'"),
        ({"src": "who", "dst_key": ["town"]}, InvalidArgument, "key of City, which has 2 member"),
        ({"src": "who", "dst_key": ["land", "twon"]}, UnknownProperty, "Did you mean 'town'"),
    ],
)
def test_endpoint_columns_that_do_not_fit_are_refused_at_once(
    spark: SparkSession, rules: Graph, choice: dict[str, Any], error: type[OmnigraphError], says: str
) -> None:
    moves = spark.createDataFrame([("Ada", "fr", "Lyon")], "who string, land string, town string")
    with pytest.raises(error, match=says), rules.transaction() as tx:
        tx.load("LivesIn", moves, **choice)


def test_a_missing_key_of_an_endpoint_is_a_typed_error_of_the_task(spark: SparkSession, rules: Graph) -> None:
    moves = spark.createDataFrame([("Ada", "fr", None)], "who string, land string, town string")
    with pytest.raises(ConstraintViolation, match=r"City\.name must not be null where LivesIn\.dst"):  # noqa: SIM117
        with rules.transaction() as tx:
            tx.load("LivesIn", moves, src="who", dst_key=["land", "town"])


def test_metrics_tell_what_was_staged_and_how_long_each_phase_took(spark: SparkSession, social_graph: Graph) -> None:
    with social_graph.transaction(max_rows_per_file=4) as tx:
        tx.load("Person", spark.range(0, 20, 1, 2).selectExpr("cast(id AS string) AS name"))
        tx.load("Company", people(spark, "Acme").coalesce(1))
    person, company = tx.metrics.tables["node:Person"], tx.metrics.tables["node:Company"]
    assert (person.rows, person.files) == (20, 6)  # 4 + 4 + 2 in each of two tasks
    assert (company.rows, company.files) == (1, 1)
    assert 0 < company.bytes < person.bytes
    assert (person.skipped, company.skipped) == (0, 0)
    for table in (person, company):
        assert table.seconds.keys() == {"stage", "commit"}
        assert 0 < table.seconds["stage"] <= tx.metrics.seconds["stage"]
    spent = person.seconds["commit"] + company.seconds["commit"]
    assert spent == pytest.approx(tx.metrics.seconds["commit"])
    assert {"capture", "stage", "validate", "commit", "publish"} <= tx.metrics.seconds.keys()
    assert all(seconds >= 0 for seconds in tx.metrics.seconds.values())
    assert len(EngineGraph.open(social_graph.uri).snapshot().table("Person").fragments()) == 6


def test_metrics_count_what_was_skipped_also_of_a_type_of_which_nothing_is_left(
    spark: SparkSession, social_graph: Graph
) -> None:
    with social_graph.transaction(skip_dangling=True) as tx:
        tx.load("Person", people(spark, "Ada"), "merge")
        tx.load("Knows", pairs(spark, ("Ada", "Ada"), ("Ada", "Zoe")))
        tx.load("WorksAt", pairs(spark, ("Ada", "Acme"), ("Zoe", "Acme")))
    assert {key: (table.rows, table.skipped) for key, table in tx.metrics.tables.items()} == {
        "node:Person": (1, 0), "edge:Knows": (2, 1), "edge:WorksAt": (2, 2),
    }  # fmt: skip
    assert tx.metrics.tables["node:Person"].seconds.keys() == {"stage", "gather", "commit"}
    assert tx.metrics.tables["edge:WorksAt"].seconds.keys() == {"stage"}
    receipt = tx.receipt.tables["edge:WorksAt"]
    assert (receipt.version, receipt.rows, receipt.inserted, receipt.skipped) == (1, 0, 0, 2)
    assert social_graph.commits.list()[0].extra["metrics"]["edge:WorksAt"]["skipped"] == 2


def test_a_merge_has_no_more_tasks_than_can_run_at_a_time(spark: SparkSession, social_graph: Graph) -> None:
    many = people(spark, *(f"p{number}" for number in range(40))).repartition(8)
    with social_graph.transaction() as tx:
        tx.load("Person", many, "merge")
    assert tx.metrics.tables["node:Person"].files <= spark.sparkContext.defaultParallelism
    assert social_graph.count("Person") >= 40


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "lines"), [(_Terminal, 2), (io.StringIO, 0)])
def test_what_was_staged_is_told_on_a_terminal_and_nowhere_else(
    spark: SparkSession, social_graph: Graph, monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], lines: int
) -> None:
    told = stream()
    monkeypatch.setattr(sys, "stderr", told)
    with social_graph.transaction() as tx:
        tx.load("Person", people(spark, "Ada", "Bob").coalesce(1))
        tx.load("Company", people(spark, "Acme").coalesce(1))
    written = sorted(line for line in told.getvalue().splitlines() if "staged" in line)
    assert len(written) == lines
    if written:
        assert re.fullmatch(r"node:Person: staged 2 rows in 1 files, \d+\.\d MB, \d+\.\d s", written[1])


# -- JSON lines -----------------------------------------------------------------------------------------------


def test_the_industry_graph_loaded_by_spark_equals_the_engines_own_load_id_for_id(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = (INDUSTRY / "schema.pg").read_text(encoding="utf-8")
    expected = EngineGraph.create(tmp_path / "engine.omni", schema)
    expected.load_jsonl(INDUSTRY / "seed.jsonl")
    graph = Graph.create(spark, tmp_path / "spark.omni", schema)
    lines = spark.read.text(str(INDUSTRY / "seed.jsonl")).repartition(3)
    receipt = graph.load_json(lines, actor="importer", message="seed")
    assert sum(table.inserted for table in receipt.tables.values()) == 263
    assert (graph.commits.list()[0].actor, len(graph.commits.list())) == ("importer", 2)

    def rows(snapshot: Any) -> dict[str, list[dict[str, Any]]]:
        """All rows by table; an edge without a given id has one of its own making, which no two loads share."""
        found = {}
        for key, table in snapshot.tables.items():
            # As whole numbers: Python's own times refuse part of what is stored.
            stored = table.to_arrow()
            columns = [
                stored[name].cast(pa.int64()) if stored.schema.field(name).type == pa.date64() else stored[name]
                for name in stored.column_names
            ]
            listed = pa.table(columns, names=stored.column_names).to_pylist()
            for row in listed:
                if key.startswith("edge:"):
                    row["id"] = None
            found[key] = sorted(listed, key=repr)
        return found

    ours = rows(EngineGraph.open(graph.uri, "ro").snapshot())
    theirs = rows(expected.snapshot())
    assert ours == theirs
    assert sum(map(len, ours.values())) == 263
    assert all(row["id"] for key, table in ours.items() if key.startswith("node:") for row in table)


def test_json_lines_are_loaded_from_a_file_and_merged_again(
    spark: SparkSession, social_graph: Graph, tmp_path: Path
) -> None:
    lines = [
        {"type": "Person", "data": {"name": "Ada", "age": 36}},
        {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {}},
        {"type": "Person", "data": {"name": "Bob"}},
    ]
    file = tmp_path / "people.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    receipt = social_graph.load_json(file)
    assert {key: table.inserted for key, table in receipt.tables.items()} == {"node:Person": 2, "edge:Knows": 1}
    older = json.dumps({"type": "Person", "data": {"name": "Ada", "age": 37}})
    receipt = social_graph.load_json(spark.createDataFrame([(older,)], "value string"), "merge")
    assert receipt.tables["node:Person"].updated == 1
    assert social_graph.count("Person", "age = 37") == 1
    assert len(social_graph.commits.list()) == 3


def test_json_lines_are_loaded_from_all_files_of_a_folder(social_graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "delivery"
    folder.mkdir()
    for name in ("Ada", "Bob"):
        line = json.dumps({"type": "Person", "data": {"name": name}})
        (folder / f"{name}.jsonl").write_text(f"{line}\n", encoding="utf-8")
    assert social_graph.load_json(folder).tables["node:Person"].inserted == 2
    assert names(social_graph) == ["Ada", "Bob"]


@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ('{"type": "Persom", "data": {"name": "Ada"}}', UnknownType, "Did you mean 'Person'"),
        ('{"type": "Person", "data": {"name": "Ada", "age": "old"}}', OmnigraphError, "age"),
        ("not json", InvalidInput, "OG4001"),
        ('{"type": "Person", "data": {"name": "Bob"}}', DuplicateKey, "'Bob'"),
    ],
)
def test_bad_json_lines_raise_the_typed_error_and_commit_nothing(
    spark: SparkSession, social_graph: Graph, line: str, error: type[OmnigraphError], says: str
) -> None:
    good = json.dumps({"type": "Person", "data": {"name": "Bob"}})
    with pytest.raises(error, match=says):
        social_graph.load_json(spread(spark, [(good,), (line,)], "value string"))
    assert len(social_graph.commits.list()) == 1


def test_a_bad_json_line_is_told_by_its_text_because_the_numbers_of_tasks_mean_nothing(
    spark: SparkSession, social_graph: Graph
) -> None:
    lines = [(json.dumps({"type": "Person", "data": {"name": f"p{number}"}}),) for number in range(20)]
    lines[17] = ('{"type": "Person", "data": {"name": "p17", "age": "old"}}',)
    with pytest.raises(OmnigraphError) as raised:
        social_graph.load_json(spark.createDataFrame(lines, "value string").repartition(4))
    assert raised.value.message.startswith(f"The line '{lines[17][0]}': Person.age must be ")
    assert raised.value.details["text"] == lines[17][0]


def test_json_lines_must_be_one_column_of_text(spark: SparkSession, social_graph: Graph) -> None:
    with pytest.raises(InvalidInput, match="one column of text"):
        social_graph.load_json(spark.createDataFrame([(1, "x")], "number int, value string"))
    with pytest.raises(InvalidInput, match="one column of text"):
        social_graph.load_json(spark.createDataFrame([(1,)], "number int"))
