"""Replacing few rows of a large table in two commits: nobody can tell that it was not one, but by the time it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omnigraph_engine.graph import Graph
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables import row_ids
from omnigraph_engine.tables.heads import commit_staged, create_table, fork
from omnigraph_engine.tables.indexes import IndexKind, stage_index
from omnigraph_engine.tables.patch import Patch, stage_patches
from omnigraph_engine.tables.row_ids import is_named_later, stage_row_ids, under_new_row_ids, version_runs
from omnigraph_engine.tables.stage import stage_append
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table, TableRef
from omnigraph_engine.tables.upsert import NOWHERE, seal_upsert, stage_upsert

LOCATION = "nodes/0000000000000001-0000000000000002"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("v", pa.int64()),
    ]
)
KEPT = ["id", "v", "_rowid", "_row_created_at_version"]


def rows(numbers: list[int], value: int) -> pa.RecordBatch:
    ids = pa.array([f"p{number:03}" for number in numbers], pa.string())
    return pa.RecordBatch.from_arrays([ids, pa.array([value] * len(numbers), pa.int64())], schema=SCHEMA)


def at(storage: Storage, version: int) -> Table:
    return Table(storage, TableRef("node:Person", LOCATION, None, version))


def commit(table: Table, staged: StagedWrite | None) -> Table:
    assert staged is not None
    return Table(table.storage, _moved(table.ref, commit_staged(table, staged).version))


def _moved(ref: TableRef, version: int) -> TableRef:
    return TableRef(ref.table_key, ref.location, ref.branch, version)


def in_one_step(table: Table, staged: StagedWrite) -> Table:
    return commit(table, staged)


def in_two_steps(table: Table, staged: StagedWrite, before: Table | None = None) -> Table:
    after = commit(table, under_new_row_ids(staged))
    return commit(after, stage_row_ids(after, before=before or table, staged=staged))


def shown(table: Table, filter: str | None = None) -> list[dict[str, Any]]:  # noqa: A002
    table.dataset.validate()
    found = table.scan(KEPT, filter).read_all().to_pylist()
    return sorted(({str(key): value for key, value in row.items()} for row in found), key=lambda row: str(row["id"]))


@pytest.fixture
def table(storage: Storage) -> Table:
    """Rows that three versions have created, folded together in one fragment; and more."""
    create_table(storage, LOCATION, SCHEMA)
    table = at(storage, 1)
    for start in (0, 5, 10):
        table = commit(table, stage_append(table, [rows(list(range(start, start + 5)), 0)]))
    table.dataset.optimize.compact_files()
    folded = at(storage, table.dataset.latest_version)
    return commit(folded, stage_append(folded, [rows(list(range(15, 20)), 0)]))


UPSERTS = {
    "replacing alone": [rows([12, 3, 17], 1)],
    "replacing and adding": [rows([12, 31, 3], 1), rows([30, 17, 6], 1)],
    "all rows of a fragment": [rows([15, 16, 17, 18, 19, 2], 1)],
    "one row": [rows([7], 1)],
}


@pytest.mark.parametrize("given", UPSERTS.values(), ids=UPSERTS)
@pytest.mark.parametrize("max_rows_per_file", [1, 2, 100])
def test_rows_keep_their_row_ids_and_creation_in_two_steps_as_in_one(
    table: Table, given: list[pa.RecordBatch], max_rows_per_file: int
) -> None:
    expected = {row["id"]: row for row in shown(table)}
    after = in_two_steps(table, _staged(table, given, max_rows_per_file))
    assert after.ref.version == table.ref.version + 2
    found = {row["id"]: row for row in shown(after)}
    replaced = {name for batch in given for name in batch.column(0).to_pylist()}
    assert {name: (row["_rowid"], row["_row_created_at_version"]) for name, row in expected.items()} == {
        name: (row["_rowid"], row["_row_created_at_version"]) for name, row in found.items() if name in expected
    }
    assert {name for name, row in found.items() if row["v"] == 1} == replaced
    added = [row["_row_created_at_version"] for name, row in found.items() if name not in expected]
    assert set(added) <= {table.ref.version + 1}
    assert len({row["_rowid"] for row in found.values()}) == len(found)


def _staged(table: Table, given: list[pa.RecordBatch], max_rows_per_file: int = 100) -> StagedWrite:
    staged = stage_upsert(table, given, max_rows_per_file=max_rows_per_file)
    assert staged is not None
    return staged


def test_the_rows_were_last_changed_by_the_first_step(table: Table) -> None:
    after = in_two_steps(table, _staged(table, [rows([3], 1)]))
    changed = after.scan(["id"], f"_row_last_updated_at_version > {table.ref.version}").read_all()
    assert changed["id"].to_pylist() == ["p003"]


def test_rows_can_be_replaced_in_two_steps_again_and_again(table: Table) -> None:
    born = {row["id"]: (row["_rowid"], row["_row_created_at_version"]) for row in shown(table)}
    for value in range(1, 6):
        table = in_two_steps(table, _staged(table, [rows([value, 19 - value, 0], value)]))
    found = shown(table)
    assert {row["id"]: (row["_rowid"], row["_row_created_at_version"]) for row in found} == born
    assert {row["id"]: row["v"] for row in found if row["v"]} == {
        **{f"p{number:03}": number for number in range(1, 6)},
        **{f"p{19 - number:03}": number for number in range(1, 6)},
        "p000": 5,
    }


def test_rows_that_are_only_added_stay_as_the_first_step_made_them(table: Table) -> None:
    gone = table.scan(["_rowaddr"], "id = 'p002'").read_all()["_rowaddr"].to_numpy()
    patch = Patch(pa.Table.from_batches([rows([40], 1)]), np.array([NOWHERE]), gone)
    staged = stage_patches(table, [patch])
    assert staged is not None
    part, gone = staged
    write = seal_upsert(table, [part], lambda _: gone)
    assert write is not None
    assert not is_named_later(table, write)
    after = commit(table, under_new_row_ids(write))
    assert stage_row_ids(after, before=table, staged=write).rewrites == ()


def test_a_line_that_was_forked_since_takes_what_was_staged_before(table: Table) -> None:
    staged = _staged(table, [rows([12, 31, 3], 1)])
    expected = [row for row in shown(table) if row["id"] in ("p003", "p012")]
    after = in_two_steps(fork(table, "dev.0123"), staged, before=table)
    found = {row["id"]: row for row in shown(after, "v = 1")}
    assert list(found) == ["p003", "p012", "p031"]
    assert [{**found[str(row["id"])], "v": 0} for row in expected] == expected
    assert shown(at(table.storage, table.ref.version), "v = 1") == []


def test_an_index_stays_and_answers_right_for_rows_before_and_after(table: Table) -> None:
    for column in ("id", "v"):
        table = commit(table, stage_index(table, column, IndexKind.BTREE))
    after = in_two_steps(table, _staged(table, [rows([12, 31, 3], 1)]))
    assert {index.name for index in after.dataset.describe_indices()} == {"id_idx", "v_idx"}
    assert [row["v"] for row in shown(after, "id = 'p003'")] == [1]
    assert [row["id"] for row in shown(after, "v = 1")] == ["p003", "p012", "p031"]
    assert len(shown(after, "v = 0")) == 18
    assert [row["v"] for row in shown(after, "id IN ('p003', 'p004', 'p031')")] == [1, 0, 1]


def test_two_steps_are_taken_for_few_rows_of_many(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = _staged(table, [rows([12, 3], 1)])
    assert not is_named_later(table, staged)
    monkeypatch.setattr(row_ids, "MANY_ROWS", 20)
    assert is_named_later(table, staged)
    monkeypatch.setattr(row_ids, "FEW_ROWS", 1)
    assert not is_named_later(table, staged)


@given(st.lists(st.integers(0, 2**63), min_size=1, max_size=40))
def test_versions_are_written_by_runs_as_lance_reads_them(versions: list[int]) -> None:
    runs = list(_runs(version_runs(np.array(versions, np.uint64))))
    assert [version for start, end, version in runs for _ in range(start, end)] == versions
    assert [end for _, end, _ in runs[:-1]] == [start for start, _, _ in runs[1:]]


def _runs(data: bytes) -> list[tuple[int, int, int]]:
    """The message, read by the rules of its encoding."""
    found = []
    for run in _fields(data):
        span, version = run[1][1], run[1].get(2, 0)
        bounds = span[1]
        found.append((bounds.get(1, 0), bounds[2], version))
    return found


def _fields(data: bytes) -> list[tuple[int, Any]]:
    found, place = [], 0
    while place < len(data):
        tag, place = _varint(data, place)
        value, place = _varint(data, place)
        if tag & 7 == 2:
            inner = dict(_fields(data[place : place + value]))
            found.append((tag >> 3, inner))
            place += value
        else:
            found.append((tag >> 3, value))
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_ids, "MANY_ROWS", 0)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_an_upsert_of_a_large_table_is_one_commit_of_the_graph(storage: Storage, branch: str) -> None:
    graph = Graph.create(storage.root, "node Person { name: String @key  age: I32? }", storage_options=storage.options)
    graph.load({"Person": pa.table({"name": ["ada", "bob"], "age": pa.array([1, 2], pa.int32())})})
    if branch != "main":
        graph.branches.create(branch)
    before = {row["id"]: row for row in _people(graph, branch)}
    commits = len(graph.commits.list(branch))
    receipt = graph.load(
        {"Person": pa.table({"name": ["bob", "cleo"], "age": pa.array([22, 3], pa.int32())})},
        branch=branch,
        mode="merge",
    )
    assert (receipt.tables["node:Person"].updated, receipt.tables["node:Person"].inserted) == (1, 1)
    after = {row["id"]: row for row in _people(graph, branch)}
    assert {name: row["age"] for name, row in after.items()} == {"ada": 1, "bob": 22, "cleo": 3}
    for name, row in before.items():
        assert {**after[name], "age": row["age"]} == row
    assert len(graph.commits.list(branch)) == commits + 1


def _people(graph: Graph, branch: str) -> list[dict[str, Any]]:
    columns = ["id", "age", "_rowid", "_row_created_at_version"]
    return list(graph.snapshot(branch=branch).table("Person").to_arrow(columns).to_pylist())
