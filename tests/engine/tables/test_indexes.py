from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.heads import commit_staged, create_table, head_version
from omnigraph_engine.tables.indexes import IndexKind, decode_index, encode_index, stage_index
from omnigraph_engine.tables.stage import stage_append, stage_delete
from omnigraph_engine.tables.staged import StagedWrite, StageKind
from omnigraph_engine.tables.table import Table, TableRef

LOCATION = "nodes/0000000000000001-0000000000000002"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)
COLUMNS = {IndexKind.BTREE: "id", IndexKind.INVERTED: "text", IndexKind.IVF_FLAT: "vector"}


def at(storage: Storage, version: int) -> Table:
    return Table(storage, TableRef("node:Doc", LOCATION, None, version))


def commit(table: Table, staged: StagedWrite | None) -> Table:
    assert staged is not None
    return at(table.storage, commit_staged(table, staged).version)


def rows(start: int, stop: int) -> pa.RecordBatch:
    numbers = range(start, stop)
    return pa.RecordBatch.from_pylist(
        [{"id": f"d{n}", "text": f"word{n} of many", "vector": [float(n), 0.0]} for n in numbers], schema=SCHEMA
    )


@pytest.fixture
def empty(tmp_path: Path) -> Table:
    storage = Storage(tmp_path)
    create_table(storage, LOCATION, SCHEMA)
    return at(storage, 1)


@pytest.fixture
def filled(empty: Table) -> Table:
    """Version 2: sixty rows in three fragments."""
    return commit(empty, stage_append(empty, [rows(0, 60)], max_rows_per_file=20))


@pytest.mark.parametrize("kind", IndexKind)
def test_a_staged_index_is_invisible_and_covers_every_fragment(filled: Table, kind: IndexKind) -> None:
    staged = stage_index(filled, COLUMNS[kind], kind)

    assert staged is not None
    assert staged.kind is StageKind.INDEX
    assert staged.rows_after(60) == 60
    assert head_version(filled.storage, filled.ref) == 2
    assert at(filled.storage, 2).dataset.describe_indices() == []
    index = decode_index(staged.new_indices[0])
    assert index.name == f"{COLUMNS[kind]}_idx"
    assert set(index.fragment_ids) == {0, 1, 2}


@pytest.mark.parametrize("kind", IndexKind)
def test_an_index_comes_back_equal_from_text(filled: Table, kind: IndexKind) -> None:
    staged = stage_index(filled, COLUMNS[kind], kind)
    assert staged is not None

    index = decode_index(staged.new_indices[0])

    assert encode_index(index) == staged.new_indices[0]
    assert decode_index(encode_index(index)) == index
    assert StagedWrite.from_json(staged.to_json()) == staged


def test_a_committed_btree_is_used_and_finds_the_row(filled: Table) -> None:
    table = commit(filled, stage_index(filled, "id", IndexKind.BTREE))

    assert "ScalarIndexQuery" in table.dataset.scanner(filter="id = 'd41'").explain_plan()
    assert table.scan(["id"], filter="id = 'd41'").read_all()["id"].to_pylist() == ["d41"]
    assert table.count("id = 'nobody'") == 0


def test_a_committed_inverted_index_is_used_and_finds_the_word(filled: Table) -> None:
    table = commit(filled, stage_index(filled, "text", IndexKind.INVERTED))

    found = table.dataset.to_table(columns=["id"], full_text_query="word41")

    assert found["id"].to_pylist() == ["d41"]


def test_a_committed_vector_index_is_used_and_finds_the_nearest(filled: Table) -> None:
    table = commit(filled, stage_index(filled, "vector", IndexKind.IVF_FLAT))
    nearest = {"column": "vector", "q": pa.array([41.2, 0.0], pa.float32()), "k": 2}

    assert "ANN" in table.dataset.scanner(nearest=nearest).explain_plan()
    found = table.dataset.to_table(columns=["id", "_distance"], nearest=nearest)

    assert found["id"].to_pylist() == ["d41", "d42"]


def test_several_indexes_stand_beside_each_other(filled: Table) -> None:
    table = filled
    for kind, column in COLUMNS.items():
        table = commit(table, stage_index(table, column, kind))

    assert table.ref.version == 5
    assert {index.name for index in table.dataset.describe_indices()} == {"id_idx", "text_idx", "vector_idx"}


def test_rows_appended_and_deleted_after_an_index_are_answered_rightly(filled: Table) -> None:
    table = commit(filled, stage_index(filled, "id", IndexKind.BTREE))
    table = commit(table, stage_append(table, [rows(60, 70)]))
    table = commit(table, stage_delete(table, "id = 'd41'"))

    assert table.count("id = 'd65'") == 1
    assert table.count("id = 'd41'") == 0
    assert table.count("id = 'd40'") == 1


@pytest.mark.parametrize("kind", IndexKind)
def test_an_empty_table_has_nothing_to_index(empty: Table, kind: IndexKind) -> None:
    assert stage_index(empty, COLUMNS[kind], kind) is None
