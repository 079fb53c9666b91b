"""Folding: a table that is written in many small commits stays in few fragments, and nobody can tell from its rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from omnigraph_engine.graph import Graph
from omnigraph_engine.schema.arrow import table_schema
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import accept_initial
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.fold import FOLD_AT, SIZE_CLASSES, fold_limit, fold_limit_after, stage_fold
from omnigraph_engine.tables.heads import commit_staged, create_table
from omnigraph_engine.tables.stage import stage_append, stage_overwrite
from omnigraph_engine.tables.table import Table, TableRef
from omnigraph_engine.tables.upsert import stage_upsert

ACCEPTED = accept_initial(parse_catalog("node Person { name: String @key  age: I32? }"))
SCHEMA = table_schema(ACCEPTED, ACCEPTED.catalog.nodes["Person"])
KEPT = ["id", "name", "age", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


@pytest.mark.parametrize(
    ("rows", "limit"),
    [
        ([], None),
        ([1] * 15, None),
        ([1] * 16, 16),
        ([1] * 40, 16),
        ([15] * 16, 16),
        ([16] * 16, 256),
        ([16] * 15 + [1], 256),
        ([1] * 8 + [16] * 8, 256),
        ([16] + [1] * 15, 256),
        ([1] * 16 + [16], 256),  # a larger one at the end hides the small ones from their own class
        ([300] + [1] * 15, 4_096),
        ([5_000] + [1] * 15, 65_536),
        ([70_000] + [1] * 15, None),
        ([1] * 16 + [70_000], None),  # only what stands at the end
        ([65_535] * 16, 65_536),
        ([65_536] * 100, None),
    ],
    ids=str,
)
def test_a_class_is_folded_when_sixteen_of_it_stand_at_the_end(rows: list[int], limit: int | None) -> None:
    assert fold_limit(rows) == limit


def batch(*names: str, age: int = 1) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist([{"id": name, "name": name, "age": age} for name in names], schema=SCHEMA)]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    place = Storage(tmp_path / "graph.omni")
    create_table(place, "nodes/person", SCHEMA)
    return place


def at(storage: Storage, version: int) -> Table:
    return Table(storage, TableRef("node:Person", "nodes/person", None, version))


def grown(storage: Storage, count: int) -> Table:
    """A table of so many fragments of one row, some of them replaced since."""
    table = at(storage, 1)
    for number in range(count):
        staged = stage_append(table, batch(f"p{number:02d}"))
        assert staged is not None
        table = at(storage, commit_staged(table, staged).version)
    return table


def rows_of(table: Table, columns: list[str] = KEPT) -> list[dict[str, Any]]:
    return sorted(table.scan(columns).read_all().to_pylist(), key=lambda row: str(row["id"]))


def test_folding_keeps_rows_row_ids_and_the_versions_that_made_them(storage: Storage) -> None:
    before = grown(storage, 12)
    merged = stage_upsert(before, batch("p03", "p07", age=2))
    assert merged is not None
    before = at(storage, commit_staged(before, merged).version)
    rows = rows_of(before)
    assert len({row["_row_created_at_version"] for row in rows}) == 12
    after = at(storage, commit_staged(before, stage_fold(before, 16)).version)
    assert after.ref.version == before.ref.version + 1
    assert rows_of(after) == rows
    assert len(after.fragments()) == 1 < len(before.fragments())
    assert rows_of(before) == rows  # readers of the version before see what they saw
    after.dataset.validate()


def test_fragments_of_a_larger_class_are_left_alone(storage: Storage) -> None:
    table = grown(storage, 3)
    large = stage_append(table, batch(*(f"q{number}" for number in range(20))))
    assert large is not None
    table = at(storage, commit_staged(table, large).version)
    (kept,) = [part.fragment_id for part in table.fragments() if part.rows == 20]
    folded = at(storage, commit_staged(table, stage_fold(table, 16)).version)
    assert sorted(part.rows for part in folded.fragments()) == [3, 20]
    assert kept in [part.fragment_id for part in folded.fragments()]


def test_the_write_that_is_to_come_counts(storage: Storage) -> None:
    table = grown(storage, FOLD_AT - 1)
    append = stage_append(table, batch("new"))
    replace = stage_upsert(table, batch("p00", age=2))
    assert append is not None
    assert replace is not None
    assert fold_limit_after(table, append) == 16
    assert fold_limit_after(table, replace) is None  # one fragment goes as one comes
    assert fold_limit_after(table, stage_overwrite(table, batch("only"))) is None


def test_a_table_with_an_index_is_not_folded(storage: Storage) -> None:
    table = grown(storage, FOLD_AT)
    append = stage_append(table, batch("new"))
    assert append is not None
    assert fold_limit_after(table, append) == 16
    table.dataset.create_scalar_index("id", "BTREE")
    indexed = at(storage, table.ref.version + 1)
    assert fold_limit_after(indexed, append) is None


def test_three_hundred_commits_of_one_row_leave_a_bounded_number_of_fragments(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path / "graph.omni", "node Person { name: String @key }")
    most = 0
    for number in range(300):
        graph.load({"Person": pa.table({"name": [f"p{number}"]})})
        if number % 25 == 0:
            most = max(most, len(graph.snapshot().table("Person").fragments()))
    classes = 1 + math.ceil(math.log(300, SIZE_CLASSES[0]))
    assert max(most, len(graph.snapshot().table("Person").fragments())) <= classes * FOLD_AT
    assert sorted(graph.snapshot().table("Person").to_arrow(["id"])["id"].to_pylist()) == sorted(
        f"p{number}" for number in range(300)
    )
    assert len(graph.commits.list()) == 301
