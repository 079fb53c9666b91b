"""What the tests of the commit protocol share: writers that die at a named point, and what must hold once all is settled."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from omnigraph_engine import failpoints
from omnigraph_engine.commit.recovery import Recovery
from omnigraph_engine.commit.sidecar import RECOVERY, Sidecar
from omnigraph_engine.commit.sidecar_reader import read_sidecar
from omnigraph_engine.errors import StorageError
from omnigraph_engine.failpoints import Failpoint, Handler, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.lifecycle import open_graph
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.storage import Storage
from omnigraph_engine.write.load import WriteOptions

BEFORE, AFTER = Moment.BEFORE, Moment.AFTER


class Crash(BaseException):
    """The death of a process: nothing in the engine may catch it."""


def at(point: Failpoint, moment: Moment, action: Callable[[], None], nth: int = 1) -> Handler:
    """Does something once, when a failpoint is reached for the n-th time."""
    left = [nth]

    def handle(reached: Failpoint, now: Moment) -> None:
        if (reached, now) == (point, moment):
            left[0] -= 1
            if left[0] == 0:
                action()

    return handle


def die() -> None:
    raise Crash


def fail() -> None:
    raise StorageError("the store did not answer")


@contextmanager
def dying(point: Failpoint, moment: Moment, nth: int = 1) -> Iterator[None]:
    """The block's writer dies at the point, and leaves behind exactly what a dead process would."""
    with failpoints.installed(at(point, moment, die, nth)), pytest.raises(Crash):
        yield


class Faulty(Storage):
    """A store that fails whenever ``fails`` says so of a verb and a path."""

    def __init__(self, like: Storage, fails: Callable[[str, str], bool] = lambda _verb, _path: False) -> None:
        super().__init__(like.root, like.options)
        self.fails = fails
        self.asked: list[tuple[str, str]] = []

    @contextmanager
    def _asked(self, verb: str, path: str) -> Iterator[None]:
        self.asked.append((verb, path))
        if self.fails(verb, path):
            raise StorageError(f"{verb} of '{path}': no answer")
        with super()._asked(verb, path):
            yield


def graph_on(storage: Storage, options: WriteOptions | None = None) -> Graph:
    """A read-write handle on this very store object, without the sweep of an open."""
    options = options or WriteOptions()
    contract, _ = open_graph(storage)
    return Graph(storage, contract, "rw", options, Recovery(storage, wait_limit=options.patience))


def reopened(storage: Storage) -> Graph:
    return Graph.open(storage.root, storage_options=storage.options)


def people(*names: str, age: int | None = None) -> pa.Table:
    return pa.table({"name": names, "age": pa.array([age] * len(names), pa.int32())})


def companies(*names: str) -> pa.Table:
    return pa.table({"name": names})


def edges(*pairs: tuple[str, str]) -> pa.Table:
    """Edges whose ids say what they join."""
    return pa.table(
        {
            "id": [f"{source}-{target}" for source, target in pairs],
            "src": [source for source, _ in pairs],
            "dst": [target for _, target in pairs],
        }
    )


def content(storage: Storage) -> dict[str, list[dict[str, Any]]]:
    """Every row that a reader sees now."""
    tables = Graph.open(storage.root, "ro", storage_options=storage.options).snapshot().tables
    return {key: sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) for key, table in tables.items()}


def names(storage: Storage, table: str = "node:Person") -> list[str]:
    return [row["id"] for row in content(storage)[table]]


def dataset(storage: Storage, table_key: str, version: int | None = None) -> lance.LanceDataset:
    location = open_manifest(storage).state.tables[table_key].location
    return lance.dataset(storage.uri(location), version=version, storage_options=storage.options or None)


def heads(storage: Storage) -> dict[str, int]:
    """The newest stored version of every table, published or not."""
    return {key: dataset(storage, key).version for key in open_manifest(storage).state.tables}


def pins(storage: Storage) -> dict[str, int]:
    """The version of every table that the manifest publishes."""
    return {key: table.version for key, table in open_manifest(storage).state.tables.items()}


def sidecar_paths(storage: Storage) -> list[str]:
    return storage.list(RECOVERY)


def left_behind(storage: Storage) -> Sidecar:
    """The one sidecar that is there."""
    (path,) = sidecar_paths(storage)
    return read_sidecar(path, storage.get(path))


def rewrite(storage: Storage, path: str, **changes: Any) -> None:
    """Changes top-level members of a sidecar."""
    storage.put(path, json.dumps({**json.loads(storage.get(path)), **changes}).encode())


def abandon(storage: Storage) -> None:
    """From now on every sidecar counts as unchanged for longer than its lease, at first sight."""
    for path in sidecar_paths(storage):
        document = json.loads(storage.get(path))
        rewrite(storage, path, spark={**document["spark"], "lease_seconds": 0})


def assert_at_rest(storage: Storage) -> None:
    """Nothing is left to settle: no sidecar, and every table's newest version is the published one."""
    assert sidecar_paths(storage) == []
    assert heads(storage) == pins(storage)


def delete_version(storage: Storage, table_key: str, version: int) -> None:
    """Removes a table's version by hand."""
    location = open_manifest(storage).state.tables[table_key].location
    storage.delete(f"{location}/_versions/{2**64 - 1 - version:020d}.manifest")


def new_local_graph(folder: Path, schema: str, options: WriteOptions | None = None) -> Graph:
    return Graph.create(folder / "graph.omni", schema, options=options)
