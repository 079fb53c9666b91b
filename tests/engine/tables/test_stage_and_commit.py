from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from omnigraph_engine.errors import GraphDamaged, InvalidArgument, SnapshotGone, StorageError, VersionConflict
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import ExactCommit, manifest_path, transaction_uuid
from omnigraph_engine.tables.heads import commit_staged, create_table, drop_line, fork, head_version, restore
from omnigraph_engine.tables.indexes import IndexKind, stage_index
from omnigraph_engine.tables.stage import stage_append, stage_delete, stage_overwrite
from omnigraph_engine.tables.staged import StagedWrite, StageKind, combine
from omnigraph_engine.tables.table import Table, TableRef
from omnigraph_engine.tables.upsert import stage_upsert

LOCATION = "nodes/0000000000000001-0000000000000002"
KEY = "node:Person"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("v", pa.int64()),
    ]
)


def rows(**values: int | None) -> pa.RecordBatch:
    columns = [pa.array(list(values), pa.string()), pa.array(list(values.values()), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def at(storage: Storage, version: int, branch: str | None = None) -> Table:
    return Table(storage, TableRef(KEY, LOCATION, branch, version))


def content(table: Table) -> dict[str, int]:
    read = table.scan(["id", "v"]).read_all().to_pydict()
    return dict(zip(read["id"], read["v"], strict=True))


def lineage(table: Table) -> dict[str, tuple[int, int, int]]:
    """Row id, version of creation and version of the last update, by id."""
    names = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    read = table.scan(["id", *names]).read_all().to_pydict()
    return dict(zip(read["id"], zip(*(read[name] for name in names), strict=True), strict=True))


def commit(table: Table, staged: StagedWrite | None) -> Table:
    assert staged is not None
    return at(table.storage, commit_staged(table, staged).version, table.ref.branch)


def head(table: Table) -> int:
    return head_version(table.storage, table.ref)


@pytest.fixture
def empty(storage: Storage) -> Table:
    assert create_table(storage, LOCATION, SCHEMA).version == 1
    return at(storage, 1)


@pytest.fixture
def filled(empty: Table) -> Table:
    """Version 2, in two fragments: a and b, then c and d."""
    staged = stage_append(empty, [rows(a=1, b=2, c=3, d=4)], max_rows_per_file=2)
    table = commit(empty, staged)
    assert [part.rows for part in table.fragments()] == [2, 2]
    return table


STAGES: dict[str, Callable[[Table], StagedWrite | None]] = {
    "append": lambda table: stage_append(table, [rows(x=9)]),
    "overwrite": lambda table: stage_overwrite(table, [rows(x=9)]),
    "upsert": lambda table: stage_upsert(table, [rows(a=9, x=9)]),
    "delete": lambda table: stage_delete(table, "id = 'a'"),
    "index": lambda table: stage_index(table, "id", IndexKind.BTREE),
}


def test_a_new_table_is_version_one_empty_and_says_where_its_manifest_is(storage: Storage) -> None:
    created = create_table(storage, LOCATION, SCHEMA)

    manifest = manifest_path(LOCATION, 1)
    assert created == ExactCommit(1, storage.store_path(manifest), storage.size(manifest))
    assert at(storage, 1).count() == 0
    assert at(storage, 1).schema.equals(SCHEMA, check_metadata=True)


def test_a_table_is_not_created_over_another(filled: Table) -> None:
    with pytest.raises(StorageError, match="Creating the table"):
        create_table(filled.storage, LOCATION, SCHEMA)

    assert head(filled) == 2


@pytest.mark.parametrize("stage", STAGES)
def test_staging_never_moves_head_and_committing_moves_it_by_exactly_one(filled: Table, stage: str) -> None:
    staged = STAGES[stage](filled)

    assert staged is not None
    assert staged.kind is StageKind(stage)
    assert (staged.table_key, staged.base_version) == (KEY, 2)
    assert head(filled) == 2
    assert content(at(filled.storage, 2)) == {"a": 1, "b": 2, "c": 3, "d": 4}

    landed = commit_staged(filled, staged)

    manifest = manifest_path(LOCATION, 3)
    assert landed == ExactCommit(3, filled.storage.store_path(manifest), filled.storage.size(manifest))
    assert head(filled) == 3
    assert transaction_uuid(filled.storage, LOCATION, 3) == staged.transaction_uuid
    assert at(filled.storage, 3).count() == staged.rows_after(4)


def test_appended_rows_get_fresh_row_ids_and_the_version_they_were_created_at(filled: Table) -> None:
    staged = stage_append(filled, [rows(e=5), rows(f=None)])
    table = commit(filled, staged)

    assert content(table) == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": None}
    assert lineage(table) == {
        "a": (0, 2, 2),
        "b": (1, 2, 2),
        "c": (2, 2, 2),
        "d": (3, 2, 2),
        "e": (4, 3, 3),
        "f": (5, 3, 3),
    }


def test_no_rows_stage_nothing(filled: Table) -> None:
    assert stage_append(filled, []) is None
    assert stage_append(filled, [rows()]) is None
    assert stage_upsert(filled, []) is None
    assert stage_upsert(filled, [rows()]) is None


def test_an_overwrite_replaces_every_row_and_reuses_no_row_id(filled: Table) -> None:
    staged = stage_overwrite(filled, [rows(a=10, z=11)])
    assert (staged.rows_inserted, staged.rows_deleted) == (2, 4)

    table = commit(filled, staged)

    assert content(table) == {"a": 10, "z": 11}
    assert lineage(table) == {"a": (4, 3, 3), "z": (5, 3, 3)}


def test_an_overwrite_with_no_rows_empties_the_table_and_keeps_its_shape(filled: Table) -> None:
    staged = stage_overwrite(filled, [])
    assert (staged.rows_inserted, staged.rows_deleted, staged.rows_after(4)) == (0, 4, 0)

    table = commit(filled, staged)

    assert table.count() == 0
    assert table.schema.equals(SCHEMA, check_metadata=True)
    assert table.dataset.has_stable_row_ids
    again = commit(table, stage_append(table, [rows(a=1)]))
    assert lineage(again) == {"a": (4, 4, 4)}


def test_a_delete_makes_one_deletion_vector_for_each_fragment_with_a_match(filled: Table) -> None:
    staged = stage_delete(filled, "id IN ('a', 'c')")

    assert staged is not None
    assert (len(staged.updated_fragments), staged.removed_fragment_ids, staged.rows_deleted) == (2, (), 2)
    assert len(filled.storage.list(f"{LOCATION}/_deletions")) == 2
    assert content(commit(filled, staged)) == {"b": 2, "d": 4}


def test_a_delete_leaves_fragments_without_a_match_alone(filled: Table) -> None:
    staged = stage_delete(filled, "v = 3")

    assert staged is not None
    assert (len(staged.updated_fragments), staged.removed_fragment_ids, staged.rows_deleted) == (1, (), 1)
    assert lineage(commit(filled, staged)) == {"a": (0, 2, 2), "b": (1, 2, 2), "d": (3, 2, 2)}


def test_a_delete_of_all_rows_of_a_fragment_removes_the_fragment(filled: Table) -> None:
    staged = stage_delete(filled, "v >= 2")

    assert staged is not None
    assert (len(staged.updated_fragments), staged.removed_fragment_ids, staged.rows_deleted) == (1, (1,), 3)
    table = commit(filled, staged)
    assert content(table) == {"a": 1}
    assert len(table.fragments()) == 1


def test_a_later_delete_counts_only_the_rows_it_deletes_itself(filled: Table) -> None:
    once = commit(filled, stage_delete(filled, "id = 'a'"))

    staged = stage_delete(once, "id IN ('a', 'b', 'c')")

    assert staged is not None
    assert staged.rows_deleted == 2
    assert content(commit(once, staged)) == {"d": 4}


def test_a_delete_that_matches_nothing_stages_nothing(filled: Table) -> None:
    assert stage_delete(filled, "id = 'nobody'") is None
    assert filled.storage.list(f"{LOCATION}/_deletions") == []


@pytest.mark.parametrize("predicate", ["nope = 1", "v = 'x'", "v ="])
def test_a_predicate_that_does_not_work_is_the_callers_mistake(filled: Table, predicate: str) -> None:
    with pytest.raises(InvalidArgument, match="does not work on node:Person"):
        stage_delete(filled, predicate)


def test_a_data_file_that_is_gone_is_not_blamed_on_the_predicate(filled: Table) -> None:
    for path in filled.storage.list(f"{LOCATION}/data"):
        filled.storage.delete(path)

    with pytest.raises(StorageError, match="Staging a delete"):
        stage_delete(at(filled.storage, 2), "v = 3")


def test_an_upsert_keeps_row_id_and_creation_of_matched_rows_and_dates_their_update(filled: Table) -> None:
    staged = stage_upsert(filled, [rows(b=20, e=50)])

    assert staged is not None
    assert (staged.rows_inserted, staged.rows_updated, staged.rows_deleted) == (1, 1, 0)
    table = commit(filled, staged)
    assert content(table) == {"a": 1, "b": 20, "c": 3, "d": 4, "e": 50}
    assert lineage(table) == {
        "a": (0, 2, 2),
        "b": (1, 2, 3),
        "c": (2, 2, 2),
        "d": (3, 2, 2),
        "e": (4, 3, 3),
    }


def test_an_upsert_of_every_row_of_a_fragment_removes_the_fragment(filled: Table) -> None:
    staged = stage_upsert(filled, [rows(a=10, b=20)])

    assert staged is not None
    assert staged.removed_fragment_ids == (0,)
    table = commit(filled, staged)
    assert lineage(table) == {"a": (0, 2, 3), "b": (1, 2, 3), "c": (2, 2, 2), "d": (3, 2, 2)}


@pytest.mark.parametrize("stage", STAGES)
def test_a_staged_write_survives_json_and_is_committed_by_whoever_reads_it(filled: Table, stage: str) -> None:
    staged = STAGES[stage](filled)
    assert staged is not None

    text = staged.to_json()
    read = StagedWrite.from_json(text)

    assert read == staged
    assert read.to_json() == text
    assert commit_staged(at(filled.storage, 2), read).version == 3


def test_parts_staged_by_several_workers_are_one_commit(filled: Table) -> None:
    parts = [stage_append(at(filled.storage, 2), [rows(**{name: 1})]) for name in ("x", "y", "z")]

    whole = combine([part for part in parts if part is not None])

    assert whole is not None
    assert whole.rows_inserted == 3
    table = commit(filled, whole)
    assert table.ref.version == 3
    assert table.count() == 7
    assert {lineage(table)[name] for name in "xyz"} == {(4, 3, 3), (5, 3, 3), (6, 3, 3)}


def test_deletes_of_different_fragments_are_combined(filled: Table) -> None:
    parts = [stage_delete(filled, "id = 'a'"), stage_delete(filled, "id IN ('c', 'd')")]

    whole = combine([part for part in parts if part is not None])

    assert whole is not None
    assert whole.rows_deleted == 3
    assert content(commit(filled, whole)) == {"b": 2}


def test_nothing_staged_combines_to_nothing() -> None:
    assert combine([]) is None


def test_two_parts_that_touch_one_fragment_are_refused(filled: Table) -> None:
    first, second = stage_delete(filled, "id = 'a'"), stage_delete(filled, "id = 'b'")
    assert first is not None
    assert second is not None
    whole = stage_delete(filled, "v <= 2")
    assert whole is not None
    assert whole.removed_fragment_ids == (0,)

    for pair in ((first, second), (first, whole), (whole, whole)):
        with pytest.raises(ValueError, match="touch the same fragment"):
            combine(pair)


@pytest.mark.parametrize(
    "change", [{"base_version": 3}, {"table_key": "node:Other"}, {"kind": StageKind.UPSERT}, {"line": "fork"}]
)
def test_parts_of_another_base_table_line_or_kind_are_refused(filled: Table, change: dict[str, Any]) -> None:
    staged = stage_append(filled, [rows(x=1)])
    assert staged is not None

    with pytest.raises(ValueError, match="differ in table, kind, base version or line"):
        combine([staged, replace(staged, **change)])


@pytest.mark.parametrize("landed", ["append", "overwrite", "delete", "upsert"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_commit_on_a_moved_head_is_a_version_conflict_and_changes_nothing(
    filled: Table, stage: str, landed: str
) -> None:
    staged = STAGES[stage](filled)
    assert staged is not None
    winner = commit(filled, STAGES[landed](filled))
    before = lineage(winner)

    with pytest.raises(VersionConflict) as caught:
        commit_staged(filled, staged)

    assert caught.value.details == {"table_key": KEY, "expected": 2, "actual": 3}
    assert caught.value.retryable
    assert head(filled) == 3
    assert lineage(at(filled.storage, 3)) == before


@pytest.mark.parametrize("stage", ["append", "delete", "overwrite"])
def test_two_racing_commits_on_one_base_have_exactly_one_winner(filled: Table, stage: str) -> None:
    start = threading.Barrier(2)

    def run(table: Table, staged: StagedWrite) -> str | None:
        start.wait()
        try:
            commit_staged(table, staged)
        except VersionConflict:
            return None
        return staged.transaction_uuid

    table = filled
    with ThreadPoolExecutor(2) as pool:
        for turn in range(4):
            base = table.ref.version
            changes = {
                "append": lambda opened, turn=turn: stage_append(opened, [rows(**{f"x{turn}": turn})]),
                "overwrite": lambda opened, turn=turn: stage_overwrite(opened, [rows(a=turn)]),
                "delete": lambda opened, turn=turn: stage_delete(opened, f"v = {turn + 1}"),
            }
            opened = [at(filled.storage, base), at(filled.storage, base)]
            staged = [changes[stage](one) for one in opened]
            landed = [uuid for uuid in pool.map(run, opened, staged) if uuid is not None]

            assert len(landed) == 1
            assert head(filled) == base + 1
            assert transaction_uuid(filled.storage, LOCATION, base + 1) == landed[0]
            table = at(filled.storage, base + 1)

    assert table.count() == {"append": 8, "overwrite": 1, "delete": 0}[stage]


@pytest.mark.parametrize("stage", STAGES)
def test_a_staged_write_that_landed_is_recognised_and_not_applied_twice(filled: Table, stage: str) -> None:
    staged = STAGES[stage](filled)
    assert staged is not None
    first = commit_staged(filled, staged)

    again = commit_staged(at(filled.storage, 2), StagedWrite.from_json(staged.to_json()))

    assert again == first
    assert head(filled) == 3
    assert at(filled.storage, 3).count() == staged.rows_after(4)


def test_a_staged_write_that_landed_is_recognised_also_below_later_versions(filled: Table) -> None:
    staged = stage_append(filled, [rows(x=1)])
    assert staged is not None
    table = commit(filled, staged)
    later = commit(table, stage_overwrite(table, [rows(q=1)]))

    assert commit_staged(filled, staged).version == 3
    assert head(filled) == 4
    assert content(later) == {"q": 1}


def test_the_transaction_of_a_version_that_does_not_exist_is_none(filled: Table) -> None:
    assert transaction_uuid(filled.storage, LOCATION, 3) is None
    assert transaction_uuid(filled.storage, f"{LOCATION}/tree/nobody", 2) is None


def test_a_restore_makes_the_old_content_the_next_version_exactly(filled: Table) -> None:
    old = lineage(filled)
    changed = commit(filled, stage_upsert(filled, [rows(a=100, x=9)]))
    assert lineage(changed) != old

    landed = restore(changed, 2, "undo-1")

    assert landed.version == 4
    restored = at(filled.storage, 4)
    assert content(restored) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert lineage(restored) == old
    assert transaction_uuid(filled.storage, LOCATION, 4) == "undo-1"
    assert restore(changed, 2, "undo-1") == landed
    assert head(filled) == 4


def test_a_restore_is_refused_when_head_moved(filled: Table) -> None:
    commit(filled, stage_append(filled, [rows(x=9)]))

    with pytest.raises(VersionConflict) as caught:
        restore(filled, 1, "undo-1")

    assert caught.value.details == {"table_key": KEY, "expected": 2, "actual": 3}
    assert head(filled) == 3
    assert at(filled.storage, 3).count() == 5


def test_row_ids_are_not_reused_after_a_restore(filled: Table) -> None:
    changed = commit(filled, stage_append(filled, [rows(x=9)]))
    restored = at(filled.storage, restore(changed, 2, "undo-1").version)

    table = commit(restored, stage_append(restored, [rows(y=9)]))

    assert lineage(table)["y"] == (5, 5, 5)


def test_a_fork_starts_at_its_parents_version_and_copies_no_data(filled: Table) -> None:
    forked = fork(filled, "f1")

    assert forked.ref == TableRef(KEY, LOCATION, "f1", 2)
    assert head(forked) == 2
    assert lineage(forked) == lineage(filled)
    assert not [path for path in filled.storage.list(forked.ref.path) if "/data/" in path]


def test_writes_on_a_fork_are_exact_and_do_not_touch_the_main_line(filled: Table) -> None:
    forked = fork(filled, "f1")
    stale = stage_delete(forked, "id = 'a'")
    assert stale is not None

    after = commit(forked, stage_upsert(forked, [rows(a=100, x=9)]))
    after = commit(after, stage_delete(after, "id = 'b'"))

    assert after.ref == TableRef(KEY, LOCATION, "f1", 4)
    assert content(after) == {"a": 100, "c": 3, "d": 4, "x": 9}
    assert lineage(after)["a"] == (0, 2, 3)
    assert head(filled) == 2
    assert content(at(filled.storage, 2)) == {"a": 1, "b": 2, "c": 3, "d": 4}
    with pytest.raises(VersionConflict) as caught:
        commit_staged(forked, stale)
    assert caught.value.details == {"table_key": KEY, "expected": 2, "actual": 4}


def test_the_main_line_moves_on_without_its_fork(filled: Table) -> None:
    forked = fork(filled, "f1")

    commit(filled, stage_overwrite(filled, []))

    assert head(forked) == 2
    assert at(filled.storage, 2, "f1").count() == 4
    assert commit(forked, stage_append(forked, [rows(x=9)])).count() == 5


def test_forking_twice_gives_the_same_fork_with_what_was_written_to_it(filled: Table) -> None:
    forked = fork(filled, "f1")
    commit(forked, stage_append(forked, [rows(x=9)]))

    again = fork(at(filled.storage, 2), "f1")

    assert again.ref == forked.ref
    assert head(again) == 3
    assert at(filled.storage, 3, "f1").count() == 5


def test_an_old_version_can_be_forked_after_head_moved_on(filled: Table) -> None:
    commit(filled, stage_append(filled, [rows(x=9)]))

    forked = fork(filled, "f1")

    assert (forked.ref.version, forked.count()) == (2, 4)


def test_a_half_made_fork_is_made_whole(filled: Table) -> None:
    fork(filled, "f1")
    filled.storage.delete(f"{LOCATION}/_refs/branches/f1.json")

    forked = fork(at(filled.storage, 2), "f1")

    assert filled.storage.list(f"{LOCATION}/_refs/branches") == [f"{LOCATION}/_refs/branches/f1.json"]
    assert content(forked) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert commit(forked, stage_append(forked, [rows(x=9)])).ref.version == 3


def test_a_commit_on_a_line_that_was_dropped_since_it_was_opened_says_that(filled: Table) -> None:
    forked = fork(filled, "f1")
    staged = stage_append(forked, [rows(x=9)])
    assert staged is not None
    drop_line(filled.storage, forked.ref)

    with pytest.raises(SnapshotGone, match="node:Person version 2 on 'f1' is not in storage any more"):
        commit_staged(forked, staged)


def test_a_name_that_forks_another_version_is_damage(filled: Table) -> None:
    fork(filled, "f1")
    changed = commit(filled, stage_append(filled, [rows(x=9)]))

    with pytest.raises(GraphDamaged, match="fork 'f1' of another version"):
        fork(changed, "f1")


def test_a_fork_of_a_fork_sees_its_parents_rows_and_writes_beside_it(filled: Table) -> None:
    first = fork(filled, "f1")
    parent = commit(first, stage_append(first, [rows(x=9)]))

    child = fork(parent, "f2")
    assert child.ref == TableRef(KEY, LOCATION, "f2", 3)
    grown = commit(child, stage_upsert(child, [rows(a=100, x=10)]))

    assert content(grown) == {"a": 100, "b": 2, "c": 3, "d": 4, "x": 10}
    assert lineage(grown)["x"] == (4, 3, 4)
    assert content(at(filled.storage, 3, "f1"))["x"] == 9
    assert (head(filled), head(first), head(grown)) == (2, 3, 4)
    assert fork(at(filled.storage, 3, "f1"), "f2").ref == child.ref


def test_a_restore_on_a_fork_stays_on_the_fork(filled: Table) -> None:
    first = fork(filled, "f1")
    changed = commit(first, stage_delete(first, "v > 1"))

    landed = restore(changed, 2, "undo-1")

    assert landed.version == 4
    assert at(filled.storage, 4, "f1").count() == 4
    assert head(filled) == 2


@pytest.mark.parametrize("name", ["a%20b", "a#b", "a:b", "ü ö"])
def test_a_local_root_may_have_any_name(tmp_path: Path, name: str) -> None:
    storage = Storage(tmp_path / name)
    storage.make_root()
    create_table(storage, LOCATION, SCHEMA)
    table = at(storage, 1)

    assert content(commit(table, stage_append(table, [rows(a=1)]))) == {"a": 1}
    assert storage.list(f"{LOCATION}/data")
