"""An upsert that many workers stage and one place seals."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables import buckets, upsert
from omnigraph_engine.tables.heads import commit_staged, create_table
from omnigraph_engine.tables.stage import stage_append
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table, TableRef
from omnigraph_engine.tables.upsert import STAGED, UpsertPart, seal_upsert_parts, stage_upsert, stage_upsert_part

LOCATION = "nodes/0000000000000001-0000000000000002"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("v", pa.int64()),
    ]
)
STORED = range(20)  # in four fragments of five


def rows(numbers: list[int], value: int) -> pa.RecordBatch:
    ids = pa.array([f"p{number:03}" for number in numbers], pa.string())
    return pa.RecordBatch.from_arrays([ids, pa.array([value] * len(numbers), pa.int64())], schema=SCHEMA)


def at(storage: Storage, version: int) -> Table:
    return Table(storage, TableRef("node:Person", LOCATION, None, version))


def commit(table: Table, staged: StagedWrite | None) -> Table:
    assert staged is not None
    return at(table.storage, commit_staged(table, staged).version)


def lineage(table: Table) -> dict[int, tuple[int, int, int]]:
    """Value, row id and version of creation of every row, by the number in its id."""
    read = table.scan(["id", "v", "_rowid", "_row_created_at_version"]).read_all()
    table.dataset.validate()
    return {int(row["id"][1:]): (row["v"], row["_rowid"], row["_row_created_at_version"]) for row in read.to_pylist()}


@pytest.fixture
def table(storage: Storage) -> Table:
    create_table(storage, LOCATION, SCHEMA)
    empty = at(storage, 1)
    return commit(empty, stage_append(empty, [rows(list(STORED), 0)], max_rows_per_file=5))


@pytest.mark.parametrize("max_rows_per_file", [1, 3, 100])
def test_replaced_rows_keep_their_row_ids_however_the_rows_are_split_into_files(
    table: Table, max_rows_per_file: int
) -> None:
    given = [rows([30, 7], 1), rows([19, 31, 0, 8, 32], 1)]

    after = commit(table, stage_upsert(table, given, max_rows_per_file=max_rows_per_file))

    found = lineage(after)
    for number in STORED:
        assert found[number] == (1 if number in (0, 7, 8, 19) else 0, number, 2)
    assert {found[number][0] for number in (30, 31, 32)} == {1}
    assert len({row_id for _, row_id, _ in found.values()}) == 23
    assert {found[number][2] for number in (30, 31, 32)} == {3}


def test_the_deletions_of_a_fragment_that_several_workers_touch_are_written_once(table: Table) -> None:
    shares = [[0, 5, 10, 40], [1, 6], [2, 7, 41], [50]]
    texts = []
    for share in shares:
        part = stage_upsert_part(table, [rows(share, 1)], operation_id="load")
        assert part is not None
        texts.append(part.to_json())

    staged = seal_upsert_parts(at(table.storage, 2), [UpsertPart.from_json(text) for text in texts])

    assert staged is not None
    assert (staged.rows_inserted, staged.rows_updated) == (3, 7)
    assert len(staged.updated_fragments) == 3
    assert table.storage.list(STAGED) == []
    found = lineage(commit(table, staged))
    assert {number for number in found if found[number][0] == 1} == {0, 1, 2, 5, 6, 7, 10, 40, 41, 50}
    assert all(found[number][1] == number for number in STORED)


def test_a_fragment_that_several_workers_empty_together_is_removed(table: Table) -> None:
    parts = [stage_upsert_part(table, [rows(share, 1)], operation_id="load") for share in ([0, 1], [2], [3, 4])]

    staged = seal_upsert_parts(table, [part for part in parts if part is not None])

    assert staged is not None
    assert staged.removed_fragment_ids == (0,)
    assert staged.updated_fragments == ()


def test_the_message_of_a_part_does_not_grow_with_the_rows_it_replaces(table: Table) -> None:
    few, many = (stage_upsert_part(table, [rows(ids, 1)], operation_id="load") for ids in ([0, 5], list(range(10))))

    assert few is not None
    assert many is not None
    assert many.addresses is not None
    assert table.storage.size(many.addresses) == 80
    # The ids of replaced rows are in the new fragment's metadata, as runs.
    assert len(many.to_json()) - len(few.to_json()) < 40


def test_a_part_that_replaces_nothing_leaves_no_object(table: Table) -> None:
    part = stage_upsert_part(table, [rows([30], 1)], operation_id="load")

    assert part is not None
    assert part.addresses is None
    assert table.storage.list(STAGED) == []
    staged = seal_upsert_parts(table, [part])
    assert staged is not None
    assert (staged.rows_inserted, staged.rows_updated, staged.updated_fragments) == (1, 0, ())


def test_no_rows_are_no_part_and_no_parts_are_no_write(table: Table) -> None:
    assert stage_upsert_part(table, [], operation_id="load") is None
    assert stage_upsert_part(table, [rows([], 1)], operation_id="load") is None
    assert seal_upsert_parts(table, []) is None


def test_many_rows_wait_on_disk_and_meet_in_buckets_and_the_result_is_the_same(
    table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upsert, "ROWS_IN_MEMORY", 2)
    monkeypatch.setattr(upsert, "PUSHED_IDS", 0)
    monkeypatch.setattr(upsert, "MOST_ADDRESSES", 1)
    monkeypatch.setattr(buckets, "HELD_ROWS", 2)
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(waiting))

    after = commit(table, stage_upsert(table, [rows([number], 1) for number in (30, 0, 19, 7, 31, 8)]))

    found = lineage(after)
    assert {number for number in found if found[number][0] == 1} == {0, 7, 8, 19, 30, 31}
    assert all(found[number][1] == number for number in STORED)
    assert list(waiting.iterdir()) == []
