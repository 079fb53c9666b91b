"""The difference between two points of a graph: every entity that is different, once, and nothing that looks the same."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from branch_writes import SCHEMA, delete, knows, people
from omnigraph_engine.errors import BranchNotFound, UnknownType
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables import changes
from omnigraph_engine.tables.changes import row_changes
from omnigraph_engine.tables.table import Table


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.create(tmp_path / "g", SCHEMA)
    graph.load({"Person": people(*((f"p{number}", number, "x") for number in range(20)))})
    graph.branches.create("dev")
    return graph


def told(graph: Graph, before: str, after: str, kind: str = "Person") -> dict[str, tuple[str, Any, Any]]:
    """Per id the change and the ages before and after."""
    rows = graph.diff(before, after).table(kind).to_arrow().to_pylist()
    field = "age" if kind == "Person" else "since"
    return {
        row["id"]: (row["change"], (row["before"] or {}).get(field), (row["after"] or {}).get(field)) for row in rows
    }


def test_inserted_updated_and_deleted_entities_show_once(graph: Graph) -> None:
    graph.load({"Person": people(("p1", 100, "x"), ("new", 7, "x"))}, branch="dev", mode="merge")
    delete(graph, "dev", {"node:Person": ["p2"]})
    assert told(graph, "main", "dev") == {
        "new": ("inserted", None, 7),
        "p1": ("updated", 1, 100),
        "p2": ("deleted", 2, None),
    }
    assert told(graph, "dev", "main") == {
        "new": ("deleted", 7, None),
        "p1": ("updated", 100, 1),
        "p2": ("inserted", None, 2),
    }


def test_tables_that_are_the_same_are_not_opened_and_show_nothing(graph: Graph) -> None:
    graph.load({"Knows": knows(("e", "p1", "p2", 1))}, branch="dev")
    found = graph.diff("main", "dev")
    assert list(found.tables) == ["edge:Knows"]
    assert found.table("Person").to_arrow().num_rows == 0
    assert told(graph, "main", "dev", "Knows") == {"e": ("inserted", None, 1)}


def test_rewriting_equal_values_shows_nothing(graph: Graph) -> None:
    same = people(*((f"p{number}", number, "x") for number in range(20)))
    graph.load({"Person": same}, branch="dev", mode="overwrite")
    graph.load({"Person": same.slice(3, 4)}, mode="merge")
    assert told(graph, "main", "dev") == {}


def test_folding_small_fragments_shows_nothing(graph: Graph) -> None:
    for number in range(40):  # folds more than once
        graph.load({"Person": people((f"d{number}", number, "y"))}, branch="dev")
    assert told(graph, "main", "dev").keys() == {f"d{number}" for number in range(40)}
    middle = graph.commits.list("dev")[20].id
    assert told(graph, middle, "dev").keys() == {f"d{number}" for number in range(20, 40)}


def test_only_rows_that_were_written_since_are_read(graph: Graph) -> None:
    graph.load({"Person": people(("p1", 100, "x"))}, branch="dev", mode="merge")
    table = graph.diff("main", "dev").table("Person")
    found = table.row_changes()
    assert [batch.num_rows for batch in found.lost(["id"])] == [1]
    assert [batch.num_rows for batch in found.came(["id"])] == [1]


def test_lines_that_parted_long_ago_are_compared_by_what_each_wrote(graph: Graph) -> None:
    graph.load({"Person": people(("p1", 100, "x"))}, branch="dev", mode="merge")
    graph.load({"Person": people(("p2", 200, "x"), ("p1", 100, "x"))}, mode="merge")
    graph.branches.create("third", from_="dev")
    graph.load({"Person": people(("p3", 300, "x"))}, branch="third", mode="merge")
    assert told(graph, "main", "third") == {"p2": ("updated", 200, 2), "p3": ("updated", 3, 300)}


def test_new_rows_of_two_lines_are_not_taken_for_each_other(graph: Graph) -> None:
    """Each line gives out the same row ids and versions anew, and folding moves rows into other files."""
    for number in range(20):
        graph.load({"Person": people((f"m{number}", number, "x"))})
        graph.load({"Person": people((f"d{number}", number, "x"))}, branch="dev")
    found = told(graph, "main", "dev")
    assert {key for key, row in found.items() if row[0] == "inserted"} == {f"d{number}" for number in range(20)}
    assert {key for key, row in found.items() if row[0] == "deleted"} == {f"m{number}" for number in range(20)}
    assert len(found) == 40


@pytest.mark.parametrize("looked_up", [0, 4096])
def test_many_deletions_are_told_like_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_up: int) -> None:
    monkeypatch.setattr(changes, "LOOKED_UP", looked_up)
    graph = Graph.create(tmp_path / "many", SCHEMA)
    graph.load({"Person": people(*((f"p{number}", number, "x") for number in range(20_000)))})
    before = graph.snapshot().commit.id
    rng = np.random.default_rng(7)
    doomed = [f"p{number}" for number in rng.choice(20_000, 9_000, replace=False)]
    delete(graph, "main", {"node:Person": doomed[:3]})
    between = graph.snapshot().commit.id
    delete(graph, "main", {"node:Person": doomed[3:]})  # enough for Lance to keep them as a bitmap
    assert told(graph, before, between).keys() == set(doomed[:3])
    assert told(graph, before, "main").keys() == set(doomed)
    assert told(graph, between, "main").keys() == set(doomed[3:])


def test_which_rows_are_deleted_is_told_by_deletion_files_alone_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph.create(tmp_path / "many", SCHEMA)
    graph.load({"Person": people(*((f"p{number}", number, "x") for number in range(20_000)))})
    before = graph.snapshot().table("Person").table
    delete(graph, "main", {"node:Person": [f"p{number}" for number in range(0, 20_000, 2)]})
    after = graph.snapshot().table("Person").table
    [bitmap] = after.dataset.get_fragments()
    assert str(bitmap.deletion_file()).endswith(".bin")

    def scan(*_: Any, **__: Any) -> None:
        raise AssertionError("rows that are left were looked at")

    monkeypatch.setattr(Table, "scan", scan)
    assert row_changes(before, after).rows == 10_000
    assert row_changes(after, before).rows == 10_000


@pytest.mark.parametrize("most_recognised", [changes.MOST_RECOGNISED, 0])
def test_which_rows_are_lost_is_told_by_where_they_are_as_by_reading_them(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, most_recognised: int
) -> None:
    monkeypatch.setattr(changes, "MOST_RECOGNISED", most_recognised)
    for number in range(10):
        graph.load({"Person": people(*((f"m{number}-{row}", row, "x") for row in range(5)))})
    graph.branches.create("late")
    before = graph.snapshot(branch="late").table("Person").table
    delete(graph, "late", {"node:Person": ["p1", "p2", "m3-1"]})
    graph.load({"Person": people(("p7", 70, "x"), ("m4-4", 40, "x"))}, branch="late", mode="merge")
    for number in range(20):  # folds fragments that the base has, too
        graph.load({"Person": people((f"l{number}", number, "x"))}, branch="late")
    found = row_changes(before, graph.snapshot(branch="late").table("Person").table)
    read = {address for batch in found.lost(["id"]) for address in batch["_rowaddr"].to_pylist()}
    rows = before.scan(["id", *changes.ROW, changes.CHANGED_AT]).read_all()
    lost = {
        address
        for batch in rows.to_batches(max_chunksize=7)
        for address in batch.filter(pa.array(found.loses(batch)))["_rowaddr"].to_pylist()
    }
    assert lost == read
    assert len(read) == (5 if most_recognised else rows.num_rows)


def test_rows_of_many_fragments_are_looked_up_together_and_dealt_to_few(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        graph.load({"Person": people(*((f"m{number}-{row}", row, "x") for row in range(6)))})
    before = graph.snapshot().table("Person").table
    doomed = [f"m{number}-{row}" for number in range(8) for row in range(number % 4)]
    delete(graph, "main", {"node:Person": doomed})
    after = graph.snapshot().table("Person").table
    assert len(row_changes(before, after).lost_shares) == 1
    assert sum(batch.num_rows for batch in row_changes(before, after).lost(["id"])) == len(doomed)
    monkeypatch.setattr(changes, "ROWS_PER_SHARE", 4)
    monkeypatch.setattr(changes, "LOOKED_UP", 2)
    found = row_changes(before, after)
    read = [list(found.lost(["id"], share)) for share in range(len(found.lost_shares))]
    assert sorted(name for share in read for batch in share for name in batch["id"].to_pylist()) == doomed
    assert 3 <= len(read) <= 6
    assert all(sum(batch.num_rows for batch in share) <= 4 for share in read)


def test_commits_and_branches_may_be_named_and_unknown_ones_are_told(graph: Graph) -> None:
    first = graph.snapshot().commit.id
    graph.load({"Person": people(("late", 1, "x"))})
    assert told(graph, first, "main") == {"late": ("inserted", None, 1)}
    with pytest.raises(BranchNotFound):
        graph.diff("nowhere", "main")
    with pytest.raises(UnknownType):
        graph.diff("main", "dev").table("Nobody")


def test_changes_travel_and_their_shares_add_up(graph: Graph) -> None:
    graph.load({"Person": people(*((f"p{number}", -1, "x") for number in range(15)))}, branch="dev", mode="merge")
    one, other = (graph.snapshot(branch=name).table("Person").table for name in ("main", "dev"))
    found = pickle.loads(pickle.dumps(row_changes(one, other)))  # noqa: S301 - our own
    shares = [
        pa.Table.from_batches(list(found.came(["id"], share)), found_schema(found.came(["id"])))
        for share in range(len(found.came_shares))
    ]
    whole = pa.Table.from_batches(list(found.came(["id"])))
    assert pa.concat_tables(shares).equals(whole)


def found_schema(batches: Any) -> pa.Schema:
    return next(iter(batches)).schema
