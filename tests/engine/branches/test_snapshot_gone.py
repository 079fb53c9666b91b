"""A reader of a version that is not in storage any more is told so; a store that is out of reach is not taken for that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from crash_scene import Faulty, people
from omnigraph_engine.errors import InvalidArgument, SnapshotGone, StorageError
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables.exact import manifest_path
from omnigraph_engine.tables.table import Table


@pytest.fixture
def dev(anywhere: Graph) -> Graph:
    """A branch whose second write put files on the line that its first one forked."""
    anywhere.branches.create("dev")
    for name in ("Cleo", "Dora"):
        anywhere.load({"Person": people(name, age=7)}, branch="dev")
    return anywhere


def person(graph: Graph) -> Table:
    return graph.snapshot(branch="dev").table("Person").table


def test_a_snapshot_of_a_branch_that_was_deleted_before_its_table_was_opened_is_gone(dev: Graph) -> None:
    table = person(dev)
    dev.branches.delete("dev")

    with pytest.raises(SnapshotGone, match="node:Person version 4 on 'dev-") as caught:
        table.scan()

    assert isinstance(caught.value, LookupError)
    assert caught.value.details == {"table_key": "node:Person", "line": table.ref.branch, "version": 4}
    assert not caught.value.retryable


def test_a_snapshot_of_a_branch_that_was_deleted_after_its_table_was_opened_is_gone(dev: Graph) -> None:
    table = person(dev)
    assert table.schema
    dev.branches.delete("dev")

    with pytest.raises(SnapshotGone):
        table.scan(["id"]).read_all()
    with pytest.raises(SnapshotGone):
        list(table.scan(["id"], "age > 1"))
    with pytest.raises(SnapshotGone):
        table.count("age > 1")


def test_a_data_file_that_vanishes_alone_is_told_by_whoever_consumes_the_scan(dev: Graph) -> None:
    table = person(dev)
    assert table.schema
    for path in dev.storage.list(f"{table.ref.path}/data"):
        dev.storage.delete(path)

    with pytest.raises(SnapshotGone):
        table.scan(["id"]).read_all()


def test_a_manifest_that_vanishes_while_it_is_being_opened_is_told_as_gone(dev: Graph) -> None:
    table = person(dev)
    dev.storage.delete(manifest_path(table.ref.path, table.ref.version))

    with pytest.raises(SnapshotGone):
        table.scan(["id"])


@pytest.mark.parametrize(
    "text", ["Generic N/A error: Not found: a/b", "Dataset at path a/b was not found", "NOT FOUND"]
)
def test_what_lance_calls_not_found_is_gone_only_when_the_store_says_so_too(dev: Graph, text: str) -> None:
    table = person(dev)
    with pytest.raises(StorageError, match=r"(?i)not found"), table.reading("Reading"):
        raise OSError(text)
    dev.storage.delete(manifest_path(table.ref.path, table.ref.version))
    with pytest.raises(SnapshotGone), table.reading("Reading"):
        raise OSError(text)


def test_a_store_that_does_not_answer_whether_a_version_is_there_has_failed(graph: Graph) -> None:
    store = Faulty(graph.storage, lambda verb, _path: verb == "head")
    table = Table(store, graph.snapshot().table("Person").ref)
    graph.storage.delete(manifest_path(table.ref.path, table.ref.version))

    with pytest.raises(StorageError, match="no answer"):
        table.scan()


def test_a_root_that_shows_nothing_is_a_store_out_of_reach(graph: Graph) -> None:
    table = graph.snapshot().table("Person").table
    shutil.rmtree(graph.storage.root)
    Path(graph.storage.root).mkdir()

    with pytest.raises(StorageError, match="Opening node:Person version 2 failed"):
        table.scan()


def test_a_damaged_file_is_a_failure_of_the_store_whoever_consumes_the_scan(graph: Graph) -> None:
    table = graph.snapshot().table("Person").table
    for path in graph.storage.list(f"{table.ref.path}/data"):
        graph.storage.put(path, b"")

    for only in (None, "age > 1"):
        with pytest.raises(StorageError, match="Reading node:Person version 2 failed"):
            table.scan(filter=only).read_all()


def test_a_filter_that_fails_on_a_row_is_told_as_such_while_the_scan_is_consumed(graph: Graph) -> None:
    graph.load({"Person": people("Cleo", age=0)})
    table = graph.snapshot().table("Person").table

    with pytest.raises(InvalidArgument, match="Divide by zero"):
        table.scan(filter="1 / age > 1").read_all()


def test_a_scan_is_an_arrow_stream_with_the_tables_schema_and_bounded_batches(graph: Graph) -> None:
    reader = graph.snapshot().table("Person").table.scan(["id"])

    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.names == ["id"]
    assert pa.RecordBatchReader.from_stream(reader).read_all()["id"].to_pylist() == ["Ada", "Bob"]
