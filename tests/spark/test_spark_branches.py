"""Branches from Spark: made, written, compared and merged with DataFrames; what they mean is the engine's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from omnigraph_engine.branches.merge import MergeOptions, MergeOutcome
from omnigraph_engine.branches.plan import TableAction
from omnigraph_engine.errors import (
    BranchExists,
    BranchHasDescendants,
    BranchNotFound,
    InvalidArgument,
    MergeConflict,
    MissingEndpoint,
    ReadOnlyGraph,
    SnapshotGone,
    UnknownType,
)
from omnigraph_engine.graph import Graph as EngineGraph
from omnigraph_engine.tables.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import omnigraph_spark.merge as spark_merge
from omnigraph_spark import Graph

KINDS = """
node Thing {
    name: String @key
    text: String?
    kind: enum(round, square)?
    flag: Bool?
    i32: I32?
    i64: I64?
    u32: U32?
    u64: U64?
    f32: F32?
    f64: F64?
    day: Date?
    moment: DateTime?
    raw: Blob?
    near: Vector(2)?
    words: [String]?
    many: [U64]?
    moments: [DateTime]?
}
"""


def rows(**ages: int | None) -> pa.Table:
    return pa.table({"name": list(ages), "age": pa.array(ages.values(), pa.int32())})


def ages(frame: DataFrame) -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in frame.collect()}


@pytest.fixture
def people(spark: SparkSession, graph: EngineGraph) -> Graph:
    """Ada and Bob, who know each other, and a branch dev made of that."""
    graph.load({"Person": rows(Ada=36, Bob=40), "Knows": pa.table({"src": ["Ada"], "dst": ["Bob"]})})
    graph.branches.create("dev")
    return Graph.open(spark, graph.uri)


# -- making, listing, deleting ----------------------------------------------------------------------------------------


def test_branches_are_made_listed_and_deleted_with_the_typed_errors(people: Graph, graph: EngineGraph) -> None:
    first = people.commits.list()[-1]
    assert people.branches.create("old", first.id).parent_version == first.manifest_version
    assert people.branches.create("feature", from_="dev").parent == "dev"
    assert people.branches.list() == graph.branches.list()
    assert people.branches.get("feature") == graph.branches.get("feature")
    assert (people.count("Person", branch="old"), people.count("Person", branch="feature")) == (0, 2)
    with pytest.raises(BranchExists):
        people.branches.create("dev")
    with pytest.raises(BranchNotFound, match="Did you mean 'dev'"):
        people.branches.get("deb")
    with pytest.raises(BranchHasDescendants, match="feature"):
        people.branches.delete("dev")
    for name in ("feature", "dev", "old"):
        people.branches.delete(name)
    assert [branch.name for branch in people.branches.list()] == ["main"]
    with pytest.raises(BranchNotFound):
        people.read("Person", branch="dev")


def test_a_graph_opened_for_reading_changes_no_branch_but_compares_them(spark: SparkSession, people: Graph) -> None:
    readonly = Graph.open(spark, people.uri, "ro")
    for change in (
        lambda: readonly.branches.create("more"),
        lambda: readonly.branches.delete("dev"),
        lambda: readonly.merge("dev"),
    ):
        with pytest.raises(ReadOnlyGraph):
            change()
    assert readonly.diff("main", "dev").tables == []


def test_the_table_of_branches_and_that_of_commits_show_them(people: Graph, read: Callable[..., DataFrame]) -> None:
    with people.transaction("dev", message="on dev") as tx:
        tx.load("Person", people.read("Person").selectExpr("name", "age + 1 AS age"), "merge")
    assert [(row["name"], row["parent"]) for row in read(table="branches").collect()] == [
        ("main", None),
        ("dev", "main"),
    ]
    assert [row["message"] for row in read(table="commits", branch="dev").take(1)] == ["on dev"]
    forks = {row["table"]: row["fork"] for row in read(table="snapshot", branch="dev").collect()}
    assert forks["node:Person"].startswith("dev-")
    assert forks["edge:Knows"] is None
    merged = people.merge("dev", message="back")
    newest = read(table="commits").first()
    assert newest is not None
    assert merged.commit is not None
    assert tx.commit is not None
    assert (newest["id"], newest["merged_parent"], newest["message"]) == (merged.commit.id, tx.commit.id, "back")


# -- writing and reading ----------------------------------------------------------------------------------------------


def test_the_format_appends_merges_overwrites_and_reads_on_a_branch(
    spark: SparkSession,
    people: Graph,
    read: Callable[..., DataFrame],
    write: Callable[..., None],
) -> None:
    frame = spark.createDataFrame([("Cy", 5)], "name string, age int")
    write(frame, node="Person", branch="dev")
    assert ages(read(node="Person", branch="dev")) == {"Ada": 36, "Bob": 40, "Cy": 5}
    write(frame.selectExpr("name", "6 AS age"), node="Person", branch="dev", load="merge")
    assert ages(read(node="Person", branch="dev")) == {"Ada": 36, "Bob": 40, "Cy": 6}
    write(spark.createDataFrame([("Cy", "Ada")], "src string, dst string"), "overwrite", edge="Knows", branch="dev")
    assert [row["src"] for row in read(edge="Knows", branch="dev").collect()] == ["Cy"]
    assert ages(read(node="Person")) == {"Ada": 36, "Bob": 40}
    assert [row["src"] for row in read(edge="Knows").collect()] == ["Ada"]
    assert (len(people.commits.list()), len(people.commits.list("dev"))) == (2, 5)


def test_a_transaction_on_a_branch_is_one_commit_there_and_needs_its_nodes_there(
    spark: SparkSession, people: Graph, graph: EngineGraph
) -> None:
    graph.load({"Person": rows(Zoe=1)})
    with pytest.raises(MissingEndpoint, match="Zoe"), people.transaction("dev") as tx:
        tx.load("Knows", spark.createDataFrame([("Ada", "Zoe")], "src string, dst string"))
    with people.transaction("dev", actor="jo") as tx:
        tx.load("Person", spark.createDataFrame([("Cy", 5)], "name string, age int"))
        tx.load("Knows", spark.createDataFrame([("Ada", "Cy")], "src string, dst string"))
    assert tx.commit is not None
    assert (tx.commit.branch, tx.commit.actor) == ("dev", "jo")
    assert (people.count("Person", branch="dev"), people.count("Knows", branch="dev")) == (3, 2)
    assert (people.count("Person"), people.count("Knows")) == (3, 1)
    receipt = people.load_json(
        spark.createDataFrame([('{"type": "Person", "data": {"name": "Dot"}}',)], "value string"), branch="dev"
    )
    assert receipt.tables["node:Person"].rows == 4


def test_a_graph_opened_on_a_branch_reads_writes_and_compares_there(spark: SparkSession, people: Graph) -> None:
    dev = Graph.open(spark, people.uri, branch="dev")
    with dev.transaction() as tx:
        tx.load("Person", spark.createDataFrame([("Cy", 5)], "name string, age int"))
    dev.load_json(spark.createDataFrame([('{"type": "Company", "data": {"name": "Acme"}}',)], "value string"))
    assert (dev.count("Person"), dev.snapshot().branch, dev.count("Person", branch="main")) == (3, "dev", 2)
    assert ages(dev.read("Person", filter="age < 10")) == {"Cy": 5}
    assert dev.diff("main").tables == ["node:Company", "node:Person"]
    assert (people.count("Person"), people.count("Company"), len(people.commits.list())) == (2, 0, 2)
    assert dev.read("Person", version=people.snapshot().version, branch="main").count() == 2
    assert len(dev.commits.list()) == 4
    assert dev.commits.list() == people.commits.list("dev")
    assert dev.branches.create("feature").parent == "dev"
    assert dev.branches.create("fix", "main").parent == "main"
    with pytest.raises(BranchNotFound, match="'deb'"):
        Graph.open(spark, people.uri, branch="deb")


@pytest.mark.parametrize("name", ["omnigraph.branch", "spark.omnigraph.branch"])
def test_a_setting_of_the_session_points_every_graph_that_names_no_branch_at_one(
    spark: SparkSession, people: Graph, name: str
) -> None:
    session = spark.newSession()
    session.conf.set(name, "dev")
    dev = Graph.open(session, people.uri)
    with dev.transaction() as tx:
        tx.load("Person", session.createDataFrame([("Cy", 5)], "name string, age int"))
    assert (dev.count("Person"), dev.snapshot().branch, people.count("Person")) == (3, "dev", 2)
    assert Graph.open(session, people.uri, branch="main").count("Person") == 2
    assert dev.merge("dev").commit is not None  # into main
    assert Graph.open(spark, people.uri).count("Person") == 3
    session.conf.set(name, "deb")
    with pytest.raises(BranchNotFound, match="'deb'"):
        Graph.open(session, people.uri)


def test_a_dataframe_whose_branch_is_gone_fails_with_one_line_and_not_with_a_traceback(
    people: Graph, graph: EngineGraph
) -> None:
    graph.load({"Person": rows(Cy=5, Ada=1)}, mode="merge", branch="dev")
    frames = [people.read("Person", branch="dev"), people.diff("main", "dev").table("Person")]
    people.branches.delete("dev")
    for frame in frames:
        with pytest.raises(PySparkException) as raised:
            frame.collect()
        assert "omnigraph_engine.errors." in str(raised.value)
        assert "Traceback" not in str(raised.value)
        assert 'File "' not in str(raised.value)


def test_a_type_that_a_diff_does_not_know_is_named_as_everywhere(people: Graph) -> None:
    with pytest.raises(UnknownType, match="Did you mean 'Person'"):
        people.diff("main", "dev").table("Persn")


def test_views_of_a_branch_join_in_sql(spark: SparkSession, people: Graph, graph: EngineGraph) -> None:
    graph.load({"Person": rows(Bob=41)}, mode="merge", branch="dev")
    session = spark.newSession()
    people.create_views(session, branch="dev", prefix="dev_")
    people.create_views(session)
    query = "SELECT was.age, is.age FROM Person was JOIN dev_Person is USING (id) WHERE was.age <> is.age"
    assert [tuple(row) for row in session.sql(query).collect()] == [(40, 41)]
    session.sql(
        f"CREATE TEMPORARY VIEW on_dev USING omnigraph OPTIONS (path '{people.uri}', node 'Person', branch 'dev')"
    )
    assert [row["age"] for row in session.sql("SELECT age FROM on_dev WHERE id = 'Bob'").collect()] == [41]


# -- comparing --------------------------------------------------------------------------------------------------------


def test_a_diff_has_every_entity_that_was_inserted_updated_or_deleted(
    spark: SparkSession, people: Graph, graph: EngineGraph
) -> None:
    graph.load({"Knows": pa.table({"src": ["Ada"], "dst": ["Ada"]})}, mode="overwrite", branch="dev")
    graph.load({"Person": rows(Ada=37, Cy=5)}, mode="overwrite", branch="dev")
    diff = people.diff("main", "dev")
    assert diff.tables == ["edge:Knows", "node:Person"]
    entity = "struct<id:string,age:int,name:string>"
    columns = f"change string, id string, before {entity}, after {entity}"
    expected = spark.createDataFrame(
        [
            ("updated", "Ada", ("Ada", 36, "Ada"), ("Ada", 37, "Ada")),
            ("deleted", "Bob", ("Bob", 40, "Bob"), None),
            ("inserted", "Cy", None, ("Cy", 5, "Cy")),
        ],
        columns,
    )
    assert_df_equality(diff.table("Person").orderBy("id"), expected, ignore_nullable=True)
    assert diff.table("node:Person").count() == 3
    assert diff.table("Company").count() == 0
    back = people.diff("dev", people.commits.list()[0].id).table("Person")
    assert {row["id"]: row["change"] for row in back.collect()} == {
        "Ada": "updated",
        "Bob": "inserted",
        "Cy": "deleted",
    }
    with pytest.raises(UnknownType, match="Person"):
        diff.table("node:Persn")


def test_a_diff_says_what_the_engine_says_for_every_type_and_for_nulls(spark: SparkSession, tmp_path: Path) -> None:
    """One thing for each property, in which that one alone changes; each way between null and a value; and rewritten rows."""
    engine = EngineGraph.create(tmp_path / "kinds.omni", KINDS)
    values: dict[str, tuple[Any, Any]] = {
        "text": ("a", "b"),
        "kind": ("round", "square"),
        "flag": (True, False),
        "i32": (1, 2),
        "i64": (2**53 + 1, 2**53 + 2),
        "u32": (2**32 - 2, 2**32 - 1),
        "u64": (2**64 - 2, 2**64 - 1),
        "f32": (0.5, 0.25),
        "f64": (0.1, 0.2),
        "day": ("2026-01-01", "2026-01-02"),
        "moment": ("2026-01-01T10:00:00.001Z", "2026-01-01T10:00:00.002Z"),
        "raw": ("base64:AAE=", "base64:AAI="),
        "near": ([1.0, 2.0], [1.0, 3.0]),
        "words": (["a", "b"], ["b", "a"]),
        "many": ([2**64 - 1], [2**64 - 1, 1]),
        "moments": (["2026-01-01T10:00:00.001Z"], ["2026-01-01T10:00:00.002Z"]),
    }

    def lines(side: int) -> list[str]:
        full = {name: pair[0] for name, pair in values.items()}
        things = [{"name": name, name: pair[side]} for name, pair in values.items()]
        things += [{"name": f"to {name}", name: pair[0] if side else None} for name, pair in values.items()]
        things += [{"name": f"from {name}", name: None if side else pair[0]} for name, pair in values.items()]
        zero = -0.0 if side else 0.0
        things += [{"name": "same", **full}, {"name": "nothing"}, {"name": "0", "f64": zero, "near": [zero, zero]}]
        return [json.dumps({"type": "Thing", "data": thing}) for thing in things]

    engine.load_jsonl(lines(0))
    engine.branches.create("dev")
    engine.load_jsonl(lines(1), mode="overwrite", branch="dev")
    found = Graph.open(spark, engine.uri).diff("main", "dev").table("Thing").collect()
    expected = engine.diff("main", "dev").table("Thing").to_arrow()
    assert {row["change"] for row in found} == {"updated"}
    assert sorted(row["id"] for row in found) == expected["id"].to_pylist()
    assert len(found) == 3 * len(values)
    by_id = {row["id"]: row for row in found}
    for name in values:
        row = by_id[name]
        assert [column for column in row["after"].asDict() if row["before"][column] != row["after"][column]] == [name]
        assert (by_id[f"to {name}"]["before"][name], by_id[f"from {name}"]["after"][name]) == (None, None)
    assert by_id["u64"]["after"]["u64"] == Decimal(2**64 - 1)
    assert by_id["many"]["after"]["many"] == [Decimal(2**64 - 1), Decimal(1)]
    assert by_id["near"]["before"]["near"] == [1.0, 2.0]
    assert by_id["day"]["after"]["day"] == date(2026, 1, 2)
    assert bytes(by_id["raw"]["after"]["raw"]) == b"\x00\x02"
    moment = by_id["moment"]["after"]["moment"].astimezone(timezone.utc)
    assert moment == datetime(2026, 1, 1, 10, 0, 0, 2000, timezone.utc)


def test_a_diff_shows_nothing_of_rows_that_were_rewritten_with_equal_values(people: Graph, graph: EngineGraph) -> None:
    graph.load({"Person": rows(Ada=36, Bob=40)}, mode="merge", branch="dev")
    diff = people.diff("main", "dev")
    assert diff.tables == ["node:Person"]  # its version moved, so somebody has to look
    assert diff.table("Person").collect() == []


# -- merging ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["in the committing process", "by jobs"])
def merging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges are made in each of the two ways; by jobs, every table in several parts."""
    if request.param == "by jobs":
        by_jobs(monkeypatch)


def by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_merge, "JOB_ROWS", 0)
    monkeypatch.setattr(spark_merge, "ROWS_PER_PART", 1)
    monkeypatch.setattr(spark_merge, "MOST_PARTS", 3)


@pytest.mark.usefixtures("merging")
def test_a_merge_into_a_branch_that_stood_still_adopts_tables_and_a_dry_run_changes_nothing(
    people: Graph, graph: EngineGraph
) -> None:
    graph.load({"Person": rows(Cy=5)}, branch="dev")
    planned = people.merge("dev", dry_run=True, delete_branch=True)
    assert (planned.outcome, planned.commit) == (MergeOutcome.FAST_FORWARD, None)
    assert (len(people.commits.list()), people.count("Person")) == (2, 2)
    assert len(people.branches.list()) == 2

    merged = people.merge("dev", actor="jo", message="reviewed", delete_branch=True)
    assert merged.outcome is MergeOutcome.FAST_FORWARD
    assert merged.tables["node:Person"].action is TableAction.ADOPTED
    assert merged.commit is not None
    assert (merged.commit.actor, merged.commit.extra["message"]) == ("jo", "reviewed")
    assert merged.commit == people.commits.list()[0]
    assert ages(people.read("Person")) == {"Ada": 36, "Bob": 40, "Cy": 5}
    assert [branch.name for branch in people.branches.list()] == ["main"]


@pytest.mark.usefixtures("merging")
def test_a_merge_of_branches_that_both_moved_has_the_changes_of_both(
    spark: SparkSession, people: Graph, graph: EngineGraph
) -> None:
    graph.load({"Person": rows(Ada=37)}, mode="merge")
    with people.transaction("dev") as tx:
        tx.load("Person", spark.createDataFrame([("Bob", 41), ("Cy", 5)], "name string, age int"), "merge")
    merged = people.merge("dev")
    assert merged.outcome is MergeOutcome.MERGED
    person = merged.tables["node:Person"]
    assert (person.action, person.inserted, person.updated, person.deleted) == (TableAction.MERGED, 1, 1, 0)
    assert ages(people.read("Person")) == {"Ada": 37, "Bob": 41, "Cy": 5}
    assert people.merge("dev").outcome is MergeOutcome.UP_TO_DATE
    assert people.merge("main", into="dev").outcome is MergeOutcome.FAST_FORWARD
    assert people.diff("main", "dev").table("Person").count() == 0


@pytest.mark.usefixtures("merging")
def test_conflicts_are_a_dataframe_of_a_dry_run_and_otherwise_an_error_that_changes_nothing(
    people: Graph, graph: EngineGraph
) -> None:
    graph.load({"Person": rows(Ada=37, Cy=5)}, mode="merge")
    graph.load({"Person": rows(Ada=38, Cy=6)}, mode="merge", branch="dev")
    with pytest.raises(MergeConflict, match=r"OG2008.*has 2 conflict") as refused:
        people.merge("dev")
    assert refused.value.conflicts.num_rows == 2
    planned = people.merge("dev", dry_run=True)
    assert planned.outcome is MergeOutcome.CONFLICTS
    assert planned.report() in refused.value.message
    assert planned.resolved.count() == 0
    found = planned.conflicts.orderBy("id").collect()
    assert [(row["kind"], row["type"], row["id"]) for row in found] == [
        ("divergent update", "Person", "Ada"),
        ("divergent insert", "Person", "Cy"),
    ]
    sides = [tuple(json.loads(row[side] or "{}").get("age") for side in ("base", "source", "target")) for row in found]
    assert sides == [(36, 38, 37), (None, 6, 5)]
    assert (len(people.commits.list()), ages(people.read("Person"))) == (3, {"Ada": 37, "Bob": 40, "Cy": 5})


@pytest.mark.usefixtures("merging")
def test_a_merge_takes_the_winner_for_each_type(people: Graph, graph: EngineGraph) -> None:
    for branch, age, year in (("main", 37, 2001), ("dev", 38, 2002)):
        since = pa.array([date(year, 1, 1)], pa.date32())
        graph.load(
            {"Person": rows(Ada=age), "Knows": pa.table({"id": ["k"], "src": ["Ada"], "dst": ["Ada"], "since": since})},
            mode="merge",
            branch=branch,
        )
    with pytest.raises(MergeConflict) as refused:
        people.merge("dev", on_conflict={"Person": "theirs"})
    assert refused.value.conflicts["type"].to_pylist() == ["Knows"]
    with pytest.raises(InvalidArgument, match="Persn"):
        people.merge("dev", on_conflict={"Persn": "theirs"})
    merged = people.merge("dev", on_conflict={"Person": "theirs", "Knows": "ours"})
    told = sorted((row["type"], row["resolution"]) for row in merged.resolved.collect())
    assert told == [("Knows", "ours"), ("Person", "theirs")]
    assert merged.conflicts.count() == 0
    assert ages(people.read("Person")) == {"Ada": 38, "Bob": 40}
    assert people.read("Knows", filter="id = 'k'").collect()[0]["since"] == date(2001, 1, 1)


@pytest.mark.usefixtures("merging")
def test_a_merge_by_property_keeps_what_each_side_changed(spark: SparkSession, tmp_path: Path) -> None:
    graph = Graph.create(spark, tmp_path / "g.omni", "node Person { name: String @key  age: I32?  city: String? }")

    def put(branch: str, *row: object) -> None:
        with graph.transaction(branch) as tx:
            tx.load("Person", spark.createDataFrame([row], "name string, age int, city string"), "merge")

    put("main", "Ada", 36, "London")
    graph.branches.create("dev")
    put("dev", "Ada", 37, "London")
    put("main", "Ada", 36, "Turin")
    assert graph.merge("dev", dry_run=True).outcome is MergeOutcome.CONFLICTS
    assert graph.merge("dev", granularity="property").outcome is MergeOutcome.MERGED
    assert graph.read("Person", columns=["age", "city"]).collect() == [Row(age=37, city="Turin")]


def test_a_merge_by_jobs_finds_every_kind_of_conflict_and_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = """
    node Person { name: String @key  mail: String? @unique }
    node Team { name: String @key }
    edge Leads: Person -> Team @card(0..1)
    """
    graph = EngineGraph.create(tmp_path / "g.omni", schema)

    def put(branch: str, people: dict[str, str | None], edges: dict[str, tuple[str, str]]) -> None:
        mails = pa.table({"name": list(people), "mail": pa.array(people.values(), pa.string())})
        ends = {"src": [ends[0] for ends in edges.values()], "dst": [ends[1] for ends in edges.values()]}
        graph.load({"Person": mails, "Leads": pa.table({"id": list(edges), **ends})}, mode="merge", branch=branch)

    graph.load({"Team": pa.table({"name": ["t", "u"]})})
    put("main", dict.fromkeys("abcdef"), {"1": ("e", "t")})
    graph.branches.create("dev")
    put("dev", {"a": "1", "m": "2", "b": "same"}, {"2": ("c", "t"), "4": ("d", "t")})
    put("main", {"a": "3", "m": "4", "n": "same"}, {"3": ("c", "u")})
    there = {"name": list("abcdem"), "mail": ["1", "same", None, None, None, "2"]}  # without f
    graph.load({"Person": pa.table(there)}, mode="overwrite", branch="dev")
    here = {"name": list("abcefmn"), "mail": ["3", None, None, None, "5", "4", "same"]}  # without d
    graph.load({"Person": pa.table(here)}, mode="overwrite")
    expected = graph.merge("dev", dry_run=True).conflicts
    kinds = ["cardinality", "delete against update", "divergent insert", "divergent update", "orphan edge", "unique"]
    assert sorted(set(expected["kind"].to_pylist())) == kinds
    before = graph.storage.list()
    by_jobs(monkeypatch)
    merged = Graph.open(spark, graph.uri)
    assert merged.merge("dev", dry_run=True).result.conflicts.equals(expected)
    with pytest.raises(MergeConflict) as refused:
        merged.merge("dev")
    assert refused.value.conflicts.equals(expected)
    assert graph.storage.list() == before


def test_a_merge_by_jobs_takes_every_type_bit_for_bit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of which Spark has no type, nulls, empty lists and texts, numbers that compare unlike they look."""
    full = {
        "text": "\U0001f600 \x00",
        "kind": "round",
        "flag": True,
        "i32": -(2**31),
        "i64": 2**63 - 1,
        "u32": 2**32 - 1,
        "u64": 2**64 - 1,
        "f32": -0.0,
        "f64": 0.1,
        "day": "2026-01-02",
        "moment": "2026-01-01T10:00:00.002Z",
        "raw": "base64:AAI=",
        "near": [1.0, -0.0],
        "words": ["", "b"],
        "many": [2**64 - 1],
        "moments": ["2026-01-01T10:00:00.001Z"],
    }
    empty = {"text": "", "raw": "base64:", "words": [], "many": [], "moments": []}

    def lines(things: dict[str, dict[str, Any]]) -> list[str]:
        return [json.dumps({"type": "Thing", "data": {"name": name, **data}}) for name, data in things.items()]

    def make(folder: str) -> EngineGraph:
        graph = EngineGraph.create(tmp_path / folder, KINDS)
        graph.load_jsonl(lines({"to full": {}, "to empty": full, "to nothing": full, "kept": full, "gone": full}))
        graph.branches.create("dev")
        graph.load_jsonl(lines({"kept": empty, "here": full}), mode="merge")
        theirs = {
            "to full": full,
            "to empty": empty,
            "to nothing": {},
            "kept": full,
            "new": full,
            "new and empty": empty,
        }
        graph.load_jsonl(lines(theirs), mode="overwrite", branch="dev")
        nan = pa.table({"name": ["nan"], "f32": pa.array([math.nan], pa.float32()), "f64": [math.nan]})
        graph.load({"Thing": nan}, branch="dev")
        return graph

    expected, merged = make("expected"), make("merged")
    expected.merge("dev")
    by_jobs(monkeypatch)
    result = Graph.open(spark, merged.uri).merge("dev")
    thing = result.tables["node:Thing"]
    assert (thing.inserted, thing.updated, thing.deleted, thing.rows) == (3, 3, 1, 8)

    def shown(graph: EngineGraph) -> str:
        table = graph.snapshot().table("Thing").to_arrow().sort_by("id")
        return repr(
            [
                [column.to_pylist(), column.cast(pa.int64()).to_pylist() if pa.types.is_date64(column.type) else None]
                for column in table.columns
            ]
        )

    assert shown(merged) == shown(expected)
    row_ids = [
        dict(
            zip(
                *graph.snapshot().table("Thing").table.scan(["id", "_rowid"]).read_all().to_pydict().values(),
                strict=True,
            )
        )
        for graph in (expected, merged)
    ]
    assert all(row_ids[0][name] == row_ids[1][name] for name in ("to full", "to empty", "to nothing", "kept", "here"))


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_of_merging_make_the_same_of_random_histories(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - not a secret
    kinds = ("Person", "Company")
    history = []
    for branch in ("main", "dev", "main", "dev", "main"):
        for kind in kinds:
            names = random.sample(range(40), random.randint(1, 25))
            mode = random.choice(["merge", "merge", "overwrite"])
            history.append((branch, kind, mode, {f"{kind}-{name}": random.randint(0, 2) for name in names}))
    options: dict[str, Any] = {
        "on_conflict": random.choice(["ours", "theirs"]),
        "granularity": random.choice(["row", "property"]),
    }
    schema = "node Person { name: String @key  age: I32?  more: I32? }\nnode Company { name: String @key  age: I32?  more: I32? }"

    def make(folder: str) -> EngineGraph:
        graph = EngineGraph.create(tmp_path / folder, schema)
        for place, (branch, kind, mode, values) in enumerate(history):
            if place == len(kinds):
                graph.branches.create("dev")
            ages = pa.array(values.values(), pa.int32())
            given = {"name": list(values), "age": ages, "more": ages if place % 4 else pa.nulls(len(ages), pa.int32())}
            graph.load({kind: pa.table(given)}, mode=mode, branch=branch)
        return graph

    expected, merged = make("expected"), make("merged")
    by_jobs(monkeypatch)
    spark_graph = Graph.open(spark, merged.uri)
    for one, other in (("dev", "main"), ("main", "dev")):
        here, by_job = expected.merge(one, other, **options), spark_graph.merge(one, other, **options).result
        assert (by_job.outcome, by_job.tables) == (here.outcome, here.tables)
        assert by_job.resolved.equals(here.resolved)
        for kind in kinds:
            tables = [graph.snapshot(branch=other).table(kind).to_arrow().sort_by("id") for graph in (expected, merged)]
            assert tables[0].equals(tables[1])


def test_an_error_of_a_task_is_raised_as_it_is(
    spark: SparkSession, people: Graph, graph: EngineGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.load({"Person": rows(Ada=37)}, mode="merge")
    graph.load({"Person": rows(Bob=41)}, mode="merge", branch="dev")
    by_jobs(monkeypatch)
    for table in ("before", "after"):  # a version that is not there any more is what a reader finds after a cleanup
        work = graph.begin_merge("dev", "main", MergeOptions()).begin(elsewhere=0)
        assert isinstance(work, dict)
        by_source = work["node:Person"].by_source
        gone = Table(graph.storage, replace(getattr(by_source, table).ref, version=99))
        with pytest.raises(SnapshotGone, match="version 99"):
            spark_merge.run_job(spark, replace(work["node:Person"], by_source=replace(by_source, **{table: gone})))
    assert people.merge("dev").outcome is MergeOutcome.MERGED
