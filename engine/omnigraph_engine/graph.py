"""The graph, as users hold it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Literal

import pyarrow as pa

from omnigraph_engine.errors import InvalidArgument, ReadOnlyGraph, UnknownType, did_you_mean
from omnigraph_engine.history import Branches, Commits, manifest_at
from omnigraph_engine.lifecycle import create_graph, open_graph
from omnigraph_engine.manifest.rows import MAIN
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.contract import SchemaContract
from omnigraph_engine.schema.diagram import diagram
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.model import Catalog, TableType
from omnigraph_engine.schema.plan import MigrationPlan, plan
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.storage import Storage
from omnigraph_engine.write.jsonl import read_json_lines
from omnigraph_engine.write.load import CommitReceipt, Load, LoadMode

OpenMode = Literal["rw", "ro"]
ArrowData = pa.Table | pa.RecordBatch | pa.RecordBatchReader


class GraphSchema:
    """The schema that the graph accepted."""

    def __init__(self, contract: SchemaContract) -> None:
        self._contract = contract

    @property
    def source(self) -> str:
        """The schema text, exactly as it was given."""
        return self._contract.source

    @property
    def accepted(self) -> AcceptedSchema:
        """The catalog with the identities that the graph gave it."""
        return self._contract.accepted

    @property
    def catalog(self) -> Catalog:
        return self._contract.accepted.catalog

    def diagram(self) -> str:
        """The schema as a drawing in text."""
        return diagram(self.catalog)

    def plan(self, source: str) -> MigrationPlan:
        """What a change to this schema text would do; nothing is applied."""
        return plan(self.accepted, parse_catalog(source))

    def table_type(self, name: str) -> TableType:
        """A node or edge type by its name or its table key."""
        types = {table.name: table for table in self.catalog.table_types()}
        keys = {table.table_key: table for table in self.catalog.table_types()}
        if name in types or name in keys:
            return types.get(name) or keys[name]
        raise UnknownType(
            f"The schema has no node or edge type '{name}'.", details={"type": name}, hint=did_you_mean(name, types)
        )


class Graph:
    """A typed property graph on a disk or an object store.

    Holding one costs nothing and locks nothing: every read and every write looks at the store anew.
    """

    def __init__(self, storage: Storage, contract: SchemaContract, mode: OpenMode) -> None:
        self._storage = storage
        self.mode = mode
        self.schema = GraphSchema(contract)
        self.commits = Commits(storage)
        self.branches = Branches(storage)

    def __repr__(self) -> str:
        return f"Graph({self.uri!r}, mode={self.mode!r})"

    @classmethod
    def create(
        cls, uri: str | os.PathLike[str], schema: str, *, storage_options: Mapping[str, str] | None = None
    ) -> Graph:
        """An empty graph with this schema exists afterwards. Of several creators at one address exactly one succeeds.

        Args:
            uri: A folder that is absent or empty, or a store's URL such as ``s3://bucket/social.omni``.
            schema: The schema's text, in the .pg language.
            storage_options: Credentials and settings of the store, as Lance takes them.
        """
        storage = Storage(uri, storage_options)
        return cls(storage, create_graph(storage, schema), "rw")

    @classmethod
    def open(
        cls, uri: str | os.PathLike[str], mode: OpenMode = "rw", *, storage_options: Mapping[str, str] | None = None
    ) -> Graph:
        """The graph at this address, its format and schema checked. ``mode="ro"`` refuses every write."""
        if mode not in ("rw", "ro"):
            raise InvalidArgument(f"mode is {mode!r}.", hint='Use "rw" to read and write, "ro" to read only.')
        storage = Storage(uri, storage_options)
        contract, _ = open_graph(storage)
        return cls(storage, contract, mode)

    @property
    def uri(self) -> str:
        return self._storage.root

    @property
    def storage(self) -> Storage:
        """Where the graph is; what workers on other machines need to find it."""
        return self._storage

    def snapshot(
        self,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Snapshot:
        """The graph as a branch shows it now (main by default), or as it was at a commit, manifest version or time."""
        manifest = manifest_at(self._storage, branch=branch, commit=commit, version=version, timestamp=timestamp)
        return Snapshot(self._storage, manifest.state)

    def load(
        self,
        data: Mapping[str, ArrowData],
        *,
        mode: LoadMode | str = LoadMode.APPEND,
        branch: str = MAIN,
        actor: str | None = None,
        message: str | None = None,
    ) -> CommitReceipt:
        """Rows of several types, by type name, become visible as one commit, or none of them does."""
        inputs = {self.schema.table_type(name).table_key: _batches(rows) for name, rows in data.items()}
        return self._load(mode, branch).run(inputs, actor=actor, message=message)

    def load_jsonl(
        self,
        lines: str | os.PathLike[str] | Iterable[bytes | str],
        *,
        mode: LoadMode | str = LoadMode.APPEND,
        branch: str = MAIN,
        actor: str | None = None,
        message: str | None = None,
    ) -> CommitReceipt:
        """A file of JSON lines, by its path, or the lines themselves; one file is one commit."""
        load = self._load(mode, branch)
        inputs: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        for table_key, batch in read_json_lines(_lines(lines), self.schema.accepted):
            inputs[table_key].append(batch)
        return load.run(inputs, actor=actor, message=message)

    def _load(self, mode: LoadMode | str, branch: str) -> Load:
        if self.mode == "ro":
            raise ReadOnlyGraph(f"'{self.uri}' is open for reading only.", hint='Open it with mode="rw" to write.')
        try:
            load_mode = LoadMode(mode)
        except ValueError as error:
            raise InvalidArgument(f"There is no load mode '{mode}'.", hint="Use append, merge or overwrite.") from error
        return Load(self._storage, self.schema.accepted, branch, load_mode)


def _batches(data: ArrowData) -> Iterable[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        return data.to_batches()
    return data


def _lines(lines: str | os.PathLike[str] | Iterable[bytes | str]) -> Iterator[bytes | str]:
    if isinstance(lines, str | os.PathLike):
        with open(lines, "rb") as file:
            yield from file
    else:
        yield from lines
