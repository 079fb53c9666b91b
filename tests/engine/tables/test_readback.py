"""Staged rows, read before anybody can see them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from omnigraph_engine.graph import Graph
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.readback import scan_staged, staged_rows
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table, TableRef
from omnigraph_engine.write.load import LoadMode

SCHEMA = "node Doc { name: String @key  size: I64?  body: Blob? }"
LARGE = bytes(range(256)) * 1000


def docs(**bodies: bytes | None) -> pa.Table:
    return pa.table({"name": list(bodies), "body": pa.array(bodies.values(), pa.large_binary())})


@pytest.fixture
def graph(storage: Storage) -> Graph:
    graph = Graph.create(storage.root, SCHEMA, storage_options=storage.options)
    graph.load({"Doc": docs(a=b"old", b=b"kept")})
    return graph


def stage(graph: Graph, rows: pa.Table, mode: LoadMode) -> tuple[Table, StagedWrite]:
    staged = graph.begin_load().stage("node:Doc", rows.to_batches(), mode)
    assert staged is not None
    published = graph.snapshot().table("Doc").published
    return Table(graph.storage, TableRef("node:Doc", published.location, None, published.version)), staged


@pytest.mark.parametrize("mode", LoadMode)
def test_staged_rows_are_those_that_the_write_brings_and_no_others(graph: Graph, mode: LoadMode) -> None:
    given = {"c": LARGE, "d": b"", "e": None} | ({} if mode is LoadMode.APPEND else {"a": b"new"})
    table, staged = stage(graph, docs(**given), mode)
    found = [row for batch in staged_rows(table, staged) for row in batch.to_pylist()]
    assert {row["id"]: row["body"] for row in found} == given
    ids = [name for batch in scan_staged(table, staged, ["id"]) for name in batch.column("id").to_pylist()]
    assert sorted(ids) == sorted(given)
    assert sorted(graph.snapshot().table("Doc").to_arrow(["id"])["id"].to_pylist()) == ["a", "b"]


def test_columns_come_in_the_order_they_are_asked_for(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path / "graph.omni", "node N { name: String @key  a: I64?  b: I64? }")
    load = graph.begin_load()
    staged = load.stage("node:N", pa.table({"name": ["x"], "a": [1], "b": [2]}).to_batches(), LoadMode.APPEND)
    assert staged is not None
    published = graph.snapshot().table("N").published
    table = Table(graph.storage, TableRef("node:N", published.location, None, published.version))
    for columns in (["b", "id"], ["id", "b"], ["a", "b", "name"]):
        assert [batch.schema.names for batch in scan_staged(table, staged, columns)] == [columns]


def test_reading_leaves_no_version_behind(graph: Graph) -> None:
    table, staged = stage(graph, docs(c=b"c"), LoadMode.APPEND)
    before = graph.storage.list(f"{table.ref.path}/_versions")
    list(staged_rows(table, staged))
    reader = staged_rows(table, staged)
    next(reader)
    reader.close()  # type: ignore[attr-defined]
    assert graph.storage.list(f"{table.ref.path}/_versions") == before
    assert table.dataset.latest_version == table.ref.version
