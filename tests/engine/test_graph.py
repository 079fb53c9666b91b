"""The graph as users hold it: reading any moment of it, and loads that happen in full or not at all."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from omnigraph_engine.errors import (
    BranchNotFound,
    CommitNotFound,
    ConstraintViolation,
    DuplicateKey,
    InvalidArgument,
    MissingEndpoint,
    OmnigraphError,
    UnknownProperty,
    UnknownType,
)
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.publisher import Publication, publish
from omnigraph_engine.schema.steps import AddProperty
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.storage import Storage
from ulid import ULID

INDUSTRY = Path(__file__).parents[1] / "data" / "industry-intel"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    return Graph.create(tmp_path / "social.omni", social)


@pytest.fixture
def everywhere(storage: Storage, social: str) -> Graph:
    """The same on each kind of store in turn."""
    return Graph.create(storage.root, social, storage_options=storage.options)


def people(*names: str, age: int | None = None) -> pa.Table:
    return pa.table({"name": names, "age": pa.array([age] * len(names), pa.int32())})


def knows(*pairs: tuple[str, str]) -> pa.Table:
    return pa.table({"src": [pair[0] for pair in pairs], "dst": [pair[1] for pair in pairs]})


def names(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.table("Person").to_arrow(["name"])["name"].to_pylist())


def content(snapshot: Snapshot) -> Rows:
    return {
        key: sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) for key, table in snapshot.tables.items()
    }


def commit_at(graph: Graph, moment: datetime, actor: str | None = None, branch: str | None = None) -> str:
    """An empty commit with a time of its own."""
    commit_id = str(ULID())
    created_at = (moment - EPOCH) // timedelta(microseconds=1)
    publish(graph.storage, Publication(commit_id, branch, (), {}, actor=actor, created_at=created_at))
    return commit_id


# -- snapshots ----------------------------------------------------------------------------------------------


def test_a_snapshot_is_of_main_as_it_is_now_unless_told_otherwise(everywhere: Graph) -> None:
    receipt = everywhere.load({"Person": people("Ada")})
    for snapshot in (everywhere.snapshot(), everywhere.snapshot(branch="main")):
        assert (snapshot.branch, snapshot.version, snapshot.id) == ("main", 2, "manifest:main:v2")
        assert snapshot.commit == receipt.commit
        assert names(snapshot) == ["Ada"]


def test_a_snapshot_of_a_commit_or_a_version_shows_the_graph_as_it_was_then(everywhere: Graph) -> None:
    loads = [everywhere.load({"Person": people(name)}) for name in ("Ada", "Bob", "Cleo")]
    commits = [load.commit for load in loads if load.commit is not None]
    for number, commit in enumerate(commits, start=1):
        expected = ["Ada", "Bob", "Cleo"][:number]
        assert names(everywhere.snapshot(commit=commit.commit_id)) == expected
        assert names(everywhere.snapshot(version=commit.manifest_version)) == expected
        assert everywhere.snapshot(commit=commit.commit_id).commit == commit
    assert names(everywhere.snapshot(version=1)) == []


@pytest.mark.parametrize("as_given", [lambda time: time, lambda time: time.isoformat()], ids=["datetime", "text"])
def test_a_snapshot_of_a_time_shows_the_last_commit_that_is_not_later(
    graph: Graph, as_given: Callable[[datetime], datetime | str]
) -> None:
    noon = datetime(2090, 6, 1, 12, tzinfo=timezone.utc)
    first, second = commit_at(graph, noon), commit_at(graph, noon + timedelta(hours=1))
    tick = timedelta(microseconds=1)
    for moment, expected in [
        (noon, first),
        (noon + timedelta(minutes=59), first),
        (noon + timedelta(hours=1) - tick, first),
        (noon + timedelta(hours=1), second),
        (noon + timedelta(days=1), second),
    ]:
        assert graph.snapshot(timestamp=as_given(moment)).commit.commit_id == expected
    assert graph.snapshot(timestamp=as_given(noon - tick)).version == 1


def test_a_time_without_a_zone_is_utc_and_a_zone_is_respected(graph: Graph) -> None:
    noon = datetime(2090, 6, 1, 12, tzinfo=timezone.utc)
    first, second = commit_at(graph, noon), commit_at(graph, noon + timedelta(hours=1))
    for moment in (
        datetime(2090, 6, 1, 12, 30),  # noqa: DTZ001 - this is the case
        datetime(2090, 6, 1, 14, 30, tzinfo=timezone(timedelta(hours=2))),
        "2090-06-01T12:30:00",
        "2090-06-01 12:30:00",
        "2090-06-01T12:30:00Z",
        "2090-06-01T14:30:00+02:00",
    ):
        assert graph.snapshot(timestamp=moment).commit.commit_id == first
    assert graph.snapshot(timestamp="2090-06-02").commit.commit_id == second
    assert graph.snapshot(timestamp="2090-06-01").version == 1


@pytest.mark.parametrize("micros", [2_218_788_873_092_322, 2_150_050_743_485_377])
def test_a_commit_is_found_at_its_own_time_to_the_microsecond(graph: Graph, micros: int) -> None:
    moment = EPOCH + timedelta(microseconds=micros)  # these two are not whole microseconds as a float of seconds
    commit_id = commit_at(graph, moment)
    assert graph.snapshot(timestamp=moment).commit.commit_id == commit_id
    assert graph.snapshot(timestamp=moment - timedelta(microseconds=1)).commit.commit_id != commit_id


def test_a_time_before_the_first_commit_is_refused(graph: Graph) -> None:
    with pytest.raises(CommitNotFound, match="no commit as early as 2001-01-01") as caught:
        graph.snapshot(timestamp="2001-01-01")
    assert caught.value.details["branch"] == "main"


@pytest.mark.parametrize("timestamp", ["yesterday", "", 1_700_000_000])
def test_what_is_not_a_time_is_refused(graph: Graph, timestamp: Any) -> None:
    with pytest.raises(InvalidArgument, match="ISO 8601"):
        graph.snapshot(timestamp=timestamp)


@pytest.mark.parametrize(
    "given",
    [
        {"commit": "01M", "version": 1},
        {"commit": "01M", "timestamp": "2026-01-01"},
        {"version": 1, "timestamp": "2026-01-01"},
        {"commit": "01M", "branch": "main"},
        {"commit": "01M", "version": 1, "timestamp": "2026-01-01"},
    ],
    ids="+".join,
)
def test_two_ways_of_naming_one_moment_are_refused(graph: Graph, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="exclude each other"):
        graph.snapshot(**given)


def test_what_the_graph_does_not_have_is_refused_by_name(graph: Graph) -> None:
    lance.dataset(f"{graph.uri}/__manifest").create_branch("experiment")
    with pytest.raises(CommitNotFound, match="01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        graph.snapshot(commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(CommitNotFound, match="no version 99"):
        graph.snapshot(version=99)
    with pytest.raises(BranchNotFound, match=r"'experimnt'.*Did you mean 'experiment'"):
        graph.snapshot(branch="experimnt")
    with pytest.raises(BranchNotFound):
        graph.snapshot(branch="")


@pytest.mark.parametrize("version", [0, -1, 2**70, 1.5, "1"])
def test_what_cannot_be_a_version_is_refused(graph: Graph, version: Any) -> None:
    with pytest.raises(InvalidArgument, match="whole numbers"):
        graph.snapshot(version=version)


@pytest.mark.parametrize("opened_before", [True, False], ids=["opened", "not yet opened"])
def test_a_held_snapshot_is_undisturbed_by_whatever_is_committed_later(
    everywhere: Graph, *, opened_before: bool
) -> None:
    everywhere.load({"Person": people("Ada", "Bob", age=30), "Knows": knows(("Ada", "Bob"))})
    held = everywhere.snapshot()
    expected = content(everywhere.snapshot())
    if opened_before:
        assert content(held) == expected
    everywhere.load({"Person": people("Cleo")})
    everywhere.load({"Person": people("Ada", age=99)}, mode="merge")
    everywhere.load({"Knows": knows()}, mode="overwrite")
    everywhere.load({"Person": people("Zoe")}, mode="overwrite")
    assert content(held) == expected
    assert held.table("Person").count() == held.table("Person").count("true") == 2
    assert names(everywhere.snapshot()) == ["Zoe"]


# -- tables -------------------------------------------------------------------------------------------------


def test_a_table_is_found_by_its_key_or_by_its_types_name(graph: Graph) -> None:
    snapshot = graph.snapshot()
    assert list(snapshot.tables) == ["edge:Knows", "edge:WorksAt", "node:Company", "node:Person"]
    assert snapshot.table("Person") is snapshot.table("node:Person") is snapshot.tables["node:Person"]
    assert snapshot.table("Knows") is snapshot.table("edge:Knows")
    for name in ("person", "Persons", "edge:Person"):
        with pytest.raises(UnknownType, match=r"(?i)did you mean '(node:)?Person'"):
            snapshot.table(name)


def test_rows_are_read_by_column_filter_and_limit(graph: Graph) -> None:
    graph.load({"Person": pa.table({"name": ["Ada", "Bob", "Cleo"], "age": pa.array([36, None, 5], pa.int32())})})
    table = graph.snapshot().table("Person")
    assert table.schema.names == ["id", "age", "name"]
    assert table.to_arrow().to_pylist() == [
        {"id": "Ada", "age": 36, "name": "Ada"},
        {"id": "Bob", "age": None, "name": "Bob"},
        {"id": "Cleo", "age": 5, "name": "Cleo"},
    ]
    assert table.to_arrow(["name"], "age > 4", 1).to_pylist() == [{"name": "Ada"}]
    assert table.to_arrow(["age", "name"]).schema.names == ["age", "name"]
    assert table.to_arrow(filter="age IS NULL")["name"].to_pylist() == ["Bob"]
    assert table.to_arrow(limit=0).num_rows == 0
    assert table.to_arrow(filter="age > 100").num_rows == 0
    batches = list(table.to_batches(["name"], "age IS NOT NULL"))
    assert pa.Table.from_batches(batches)["name"].to_pylist() == ["Ada", "Cleo"]
    assert (table.count(), table.count("age > 4"), table.count("age > 100")) == (3, 2, 0)


def test_fragments_name_every_row_once(graph: Graph) -> None:
    assert graph.snapshot().table("Person").fragments() == []
    graph.load({"Person": people("Ada", "Bob")})
    graph.load({"Person": people("Cleo")})
    fragments = graph.snapshot().table("Person").fragments()
    assert [part.rows for part in fragments] == [2, 1]
    assert len({part.fragment_id for part in fragments}) == 2


@pytest.mark.parametrize("bad", ["age >", "nope = 1", "age = 'old'", "age + 1", ""])
def test_a_filter_that_makes_no_sense_is_a_typed_error_that_quotes_it(graph: Graph, bad: str) -> None:
    graph.load({"Person": people("Ada")})
    table = graph.snapshot().table("Person")
    for read in (
        lambda: table.to_arrow(filter=bad),
        lambda: list(table.to_batches(filter=bad)),
        lambda: table.count(bad),
    ):
        with pytest.raises(InvalidArgument) as caught:
            read()
        assert repr(bad) in caught.value.message
        assert "node:Person" in caught.value.message


def test_an_unknown_column_is_a_typed_error_with_the_nearest_name(graph: Graph) -> None:
    with pytest.raises(UnknownProperty, match="Did you mean 'name'"):
        graph.snapshot().table("Person").to_arrow(["nme"])
    with pytest.raises(InvalidArgument, match="limit"):
        graph.snapshot().table("Person").to_arrow(limit=-1)


def test_a_datetime_keeps_its_time_of_day(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path, "node Event { name: String @key\n at: DateTime }")
    moment = datetime(2026, 11, 18, 9, 30, 15, 250_000, tzinfo=timezone.utc)
    graph.load({"Event": pa.table({"name": ["arrow"], "at": pa.array([moment], pa.timestamp("ms", "UTC"))})})
    graph.load_jsonl(['{"type":"Event","data":{"name":"json","at":"2026-11-18T10:30:15.250+01:00"}}'])
    read = graph.snapshot().table("Event").to_arrow(["at"])["at"]
    assert read.type == pa.date64()
    assert read.cast(pa.int64()).to_pylist() == [(moment - EPOCH) // timedelta(milliseconds=1)] * 2


# -- history ------------------------------------------------------------------------------------------------


def test_commits_are_listed_newest_first_and_can_be_narrowed(graph: Graph) -> None:
    graph.load({"Person": people("Ada")}, actor="ada", message="one")
    graph.load({"Person": people("Bob")}, actor="bob")
    graph.load({"Person": people("Cleo")}, actor="ada")
    listed = graph.commits.list()
    assert [commit.manifest_version for commit in listed] == [4, 3, 2, 1]
    assert [commit.actor for commit in listed] == ["ada", "bob", "ada", None]
    assert [commit.parent_id for commit in listed] == [*(commit.commit_id for commit in listed[1:]), None]
    assert listed[2].extra["message"] == "one"
    assert graph.commits.list(actor="ada") == [listed[0], listed[2]]
    assert graph.commits.list(limit=2) == listed[:2]
    assert graph.commits.list(actor="ada", limit=1) == listed[:1]
    assert graph.commits.list(limit=0) == graph.commits.list(actor="nobody") == []
    with pytest.raises(InvalidArgument, match="limit"):
        graph.commits.list(limit=-1)
    with pytest.raises(BranchNotFound):
        graph.commits.list("nowhere")


def test_a_commit_is_shown_whichever_branch_it_was_made_on(graph: Graph) -> None:
    receipt = graph.load({"Person": people("Ada")})
    lance.dataset(f"{graph.uri}/__manifest").create_branch("dev")
    moment = datetime(2090, 1, 1, tzinfo=timezone.utc)
    on_dev = commit_at(graph, moment, actor="dev", branch="dev")
    assert receipt.commit is not None
    assert graph.commits.show(receipt.commit.commit_id) == receipt.commit
    shown = graph.commits.show(on_dev)
    assert (shown.branch, shown.actor, shown.manifest_version) == ("dev", "dev", 3)
    assert [commit.commit_id for commit in graph.commits.list("dev")][:2] == [on_dev, receipt.commit.commit_id]
    assert on_dev not in [commit.commit_id for commit in graph.commits.list()]
    with pytest.raises(CommitNotFound, match="No branch"):
        graph.commits.show("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_branches_are_listed_main_first_and_the_engines_own_are_not_shown(graph: Graph) -> None:
    assert [branch.name for branch in graph.branches.list()] == ["main"]
    graph.load({"Person": people("Ada")})
    manifest = lance.dataset(f"{graph.uri}/__manifest")
    for name in ("zeta", "alpha", "__internal"):
        manifest.create_branch(name)
    listed = graph.branches.list()
    assert [branch.name for branch in listed] == ["main", "alpha", "zeta"]
    assert [(branch.parent, branch.parent_version) for branch in listed] == [(None, None), ("main", 2), ("main", 2)]


def test_a_branch_is_read_at_its_head_its_versions_and_also_at_times_before_it_was_forked(graph: Graph) -> None:
    early, late = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2090, 2092))
    inherited = commit_at(graph, early)
    commit_at(graph, early + timedelta(days=1))
    lance.dataset(f"{graph.uri}/__manifest").create_branch("dev")
    own = commit_at(graph, late, branch="dev")
    commit_at(graph, late)
    head = graph.snapshot(branch="dev")
    assert (head.branch, head.commit.commit_id, head.id) == ("dev", own, "manifest:dev:v4")
    assert graph.snapshot(branch="dev", version=4).commit.commit_id == own
    assert graph.snapshot(commit=own).branch == "dev"
    assert graph.snapshot(branch="dev", timestamp=late).commit.commit_id == own
    assert graph.snapshot(branch="dev", timestamp=early).commit.commit_id == inherited


# -- schema -------------------------------------------------------------------------------------------------


def test_the_schema_is_the_given_text_its_catalog_and_a_drawing(graph: Graph, social: str) -> None:
    assert graph.schema.source == social
    assert list(graph.schema.catalog.nodes) == ["Company", "Person"]
    assert list(graph.schema.catalog.edges) == ["Knows", "WorksAt"]
    assert graph.schema.table_type("Person") is graph.schema.table_type("node:Person")
    with pytest.raises(UnknownType, match="Did you mean 'Person'"):
        graph.schema.table_type("Persn")
    for word in ("Person", "Company", "Knows", "WorksAt"):
        assert word in graph.schema.diagram()


def test_a_plan_says_what_a_new_schema_would_change_and_changes_nothing(graph: Graph, social: str) -> None:
    before = {path: graph.storage.get(path) for path in graph.storage.list()}
    assert graph.schema.plan(social).is_empty
    (step,) = graph.schema.plan(social.replace("age: I32?", "age: I32?\n    email: String?")).steps
    assert isinstance(step, AddProperty)
    assert graph.schema.plan(social.replace("age: I32?", "")).destructive
    assert {path: graph.storage.get(path) for path in graph.storage.list()} == before


# -- loads --------------------------------------------------------------------------------------------------


def test_a_load_of_several_types_is_one_commit(everywhere: Graph) -> None:
    receipt = everywhere.load(
        {
            "Knows": knows(("Ada", "Bob")),
            "node:Person": people("Ada", "Bob").to_batches()[0],
            "Company": pa.RecordBatchReader.from_batches(
                pa.schema([("name", pa.string())]), iter(pa.table({"name": ["Acme"]}).to_batches())
            ),
        }
    )
    assert receipt.commit == everywhere.snapshot().commit
    assert {key: (table.rows, table.inserted) for key, table in receipt.tables.items()} == {
        "node:Person": (2, 2),
        "node:Company": (1, 1),
        "edge:Knows": (1, 1),
    }
    assert len(everywhere.commits.list()) == 2
    assert everywhere.snapshot().table("Knows").to_arrow(["src", "dst"]).to_pylist() == [{"src": "Ada", "dst": "Bob"}]


BAD_LOADS: dict[str, tuple[dict[str, pa.Table], type[OmnigraphError]]] = {
    "an end that is missing": (
        {"Person": people("Bob"), "Knows": knows(("Bob", "Nobody"))},
        MissingEndpoint,
    ),
    "an id that exists": ({"Company": pa.table({"name": ["New"]}), "Person": people("Ada")}, DuplicateKey),
    "an id given twice": ({"Company": pa.table({"name": ["New"]}), "Person": people("Bob", "Bob")}, DuplicateKey),
    "a required null": (
        {"Company": pa.table({"name": ["New"]}), "Person": pa.table({"name": pa.array([None], pa.string())})},
        ConstraintViolation,
    ),
    "an unknown column": (
        {"Company": pa.table({"name": ["New"]}), "Person": pa.table({"name": ["Bob"], "nme": ["x"]})},
        UnknownProperty,
    ),
}


@pytest.mark.parametrize("case", BAD_LOADS)
def test_a_violation_in_one_type_leaves_nothing_of_any_type_visible(graph: Graph, case: str) -> None:
    data, error = BAD_LOADS[case]
    graph.load({"Person": people("Ada")})
    before, history = content(graph.snapshot()), graph.commits.list()
    with pytest.raises(error):
        graph.load(data)
    assert content(graph.snapshot()) == before
    assert graph.commits.list() == history
    graph.load({"Person": people("Bob"), "Knows": knows(("Bob", "Ada"))})  # and nothing is in the way


def test_a_violation_in_json_lines_leaves_nothing_visible(graph: Graph) -> None:
    lines = ['{"type":"Person","data":{"name":"Ada"}}', '{"edge":"Knows","from":"Ada","to":"Nobody"}']
    with pytest.raises(MissingEndpoint):
        graph.load_jsonl(lines)
    with pytest.raises(OmnigraphError, match="Line 2"):
        graph.load_jsonl([lines[0], "{"])
    assert content(graph.snapshot()) == {key: [] for key in graph.snapshot().tables}
    assert len(graph.commits.list()) == 1


def test_json_lines_come_from_a_path_or_from_anything_that_yields_lines(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "people.jsonl"
    path.write_text('{"type":"Person","data":{"name":"Ada"}}\n\n{"type":"Company","data":{"name":"Acme"}}\n')
    graph.load_jsonl(path)
    graph.load_jsonl(str(path), mode="merge")
    graph.load_jsonl(iter([b'{"type":"Person","data":{"name":"Bob"}}', '{"edge":"Knows","from":"Ada","to":"Bob"}']))
    assert names(graph.snapshot()) == ["Ada", "Bob"]
    assert len(graph.commits.list()) == 4


def test_merge_replaces_rows_whole_and_adds_the_others(graph: Graph) -> None:
    graph.load({"Person": people("Ada", "Bob", age=30)})
    receipt = graph.load({"Person": pa.table({"name": ["Bob", "Cleo"]})}, mode="merge")
    assert content(graph.snapshot())["node:Person"] == [
        {"id": "Ada", "age": 30, "name": "Ada"},
        {"id": "Bob", "age": None, "name": "Bob"},
        {"id": "Cleo", "age": None, "name": "Cleo"},
    ]
    table = receipt.tables["node:Person"]
    assert (table.rows, table.inserted, table.updated, table.deleted) == (3, 1, 1, 0)


def test_overwrite_leaves_exactly_the_given_rows_of_the_given_types(graph: Graph) -> None:
    graph.load({"Person": people("Ada", "Bob"), "Company": pa.table({"name": ["Acme"]})})
    receipt = graph.load({"Person": people("Cleo")}, mode="overwrite")
    assert names(graph.snapshot()) == ["Cleo"]
    assert graph.snapshot().table("Company").count() == 1
    table = receipt.tables["node:Person"]
    assert (table.rows, table.inserted, table.deleted) == (1, 1, 2)


def test_overwrite_with_no_rows_empties_the_type(graph: Graph) -> None:
    graph.load({"Person": people("Ada", "Bob")})
    receipt = graph.load({"Person": people()}, mode="overwrite")
    assert receipt.commit is not None
    assert receipt.tables["node:Person"].rows == 0
    table = graph.snapshot().table("Person")
    assert (table.count(), table.count("true"), table.to_arrow().num_rows, table.fragments()) == (0, 0, 0, [])
    graph.load({"Person": people("Ada")})
    assert names(graph.snapshot()) == ["Ada"]


def test_overwrite_that_would_leave_edges_without_their_ends_is_refused(graph: Graph) -> None:
    graph.load({"Person": people("Ada", "Bob"), "Knows": knows(("Ada", "Bob"))})
    with pytest.raises(MissingEndpoint, match="Bob"):
        graph.load({"Person": people("Ada")}, mode="overwrite")
    assert names(graph.snapshot()) == ["Ada", "Bob"]
    graph.load({"Person": people("Ada"), "Knows": knows()}, mode="overwrite")
    assert (names(graph.snapshot()), graph.snapshot().table("Knows").count()) == (["Ada"], 0)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_of_no_rows_commits_nothing(graph: Graph, mode: str) -> None:
    receipt = graph.load({"Person": people()}, mode=mode)
    assert (receipt.commit, receipt.tables) == (None, {})
    assert graph.snapshot().version == 1


def test_an_unknown_mode_or_type_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidArgument, match="append, merge or overwrite"):
        graph.load({"Person": people("Ada")}, mode="upsert")
    with pytest.raises(UnknownType, match="Did you mean 'Person'"):
        graph.load({"Persn": people("Ada")})


# -- a real dataset -----------------------------------------------------------------------------------------


def _json_rows(lines: Iterable[str]) -> Rows:
    rows: Rows = defaultdict(list)
    for line in filter(str.strip, lines):
        given = json.loads(line)
        if "type" in given:
            rows[f"node:{given['type']}"].append(given["data"])
        else:
            rows[f"edge:{given['edge']}"].append({"src": given["from"], "dst": given["to"], **given.get("data", {})})
    return rows


def _stored_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows with times as the text that the file has, and without what the file does not say."""
    for number, field in enumerate(table.schema):
        if pa.types.is_date64(field.type):
            texts = pa.array(
                [
                    None if at is None else (EPOCH + timedelta(milliseconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ")
                    for at in table.column(number).cast(pa.int64()).to_pylist()
                ]
            )
            table = table.set_column(number, field.name, texts)
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def test_the_industry_graph_reads_back_row_by_row_as_its_file_says(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path, (INDUSTRY / "schema.pg").read_text())
    receipt = graph.load_jsonl(INDUSTRY / "seed.jsonl")
    expected = _json_rows((INDUSTRY / "seed.jsonl").read_text().splitlines())
    assert sum(table.inserted for table in receipt.tables.values()) == sum(map(len, expected.values())) == 263
    snapshot = Graph.open(tmp_path, "ro").snapshot()
    assert {key for key, table in snapshot.tables.items() if table.count()} == expected.keys()
    for key, rows in expected.items():
        stored = _stored_rows(snapshot.tables[key].to_arrow())
        for row, given in zip(stored, rows, strict=True):
            row_id = row.pop("id")
            if "id" in given:
                assert row_id == given.pop("id")
            else:
                assert row_id == str(ULID.from_str(row_id))
        assert stored == [{name: value for name, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda graph: graph.snapshot().table("Person").to_arrow(limit="3"), "limit is '3', not a whole number"),
        (lambda graph: graph.snapshot().table("Person").to_arrow(limit=-1), "limit is -1; it must not be negative"),
        (lambda graph: graph.commits.list(limit=True), "limit is True, not a whole number"),
        (lambda graph: graph.begin_load(max_rows_per_file=0), "max_rows_per_file is 0; it must be at least 1"),
        (lambda graph: graph.begin_load(max_rows_per_file=-1), "max_rows_per_file is -1; it must be at least 1"),
        (lambda graph: graph.merge("dev", on_conflict=None), "on_conflict is None"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_as_one(
    graph: Graph, call: Callable[[Graph], object], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        call(graph)
