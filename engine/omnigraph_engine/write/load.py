"""Loading rows of several types as one graph commit.

Rows stream through conform and the row-local checks into staged files; only their ids (and an edge's endpoints) are kept,
for the checks that relate rows to each other. Nothing is visible before the publish, and a violation raises before any
table moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa
from ulid import ULID

from omnigraph_engine.errors import InvalidArgument
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.manifest.publisher import Publication, TablePin, publish
from omnigraph_engine.manifest.rows import MAIN, GraphCommit, TableVersion
from omnigraph_engine.manifest.state import ManifestState, PublishedTable
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.model import EdgeType, TableType
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.heads import commit_staged
from omnigraph_engine.tables.stage import stage_append, stage_overwrite, stage_upsert
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table, TableRef
from omnigraph_engine.write.checks import check_rows
from omnigraph_engine.write.conform import conform
from omnigraph_engine.write.relations import check_distinct, check_endpoints, check_new

_TEXT = pa.chunked_array([], pa.string())


class LoadMode(str, Enum):
    APPEND = "append"  # strict insert: an id that exists is an error
    MERGE = "merge"  # a row whose id exists replaces that row, whole
    OVERWRITE = "overwrite"  # the given types hold these rows and no others


@dataclass(frozen=True)
class TableReceipt:
    """What a commit did to one table."""

    version: int
    rows: int
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True)
class CommitReceipt:
    """A commit that is visible, and what it did."""

    commit: GraphCommit | None  # None: there was nothing to do, so nothing was committed
    tables: Mapping[str, TableReceipt]


@dataclass
class _Batches:
    """The conformed rows of one table on their way to files; remembers what the checks between rows need."""

    accepted: AcceptedSchema
    table: TableType
    source: Iterable[pa.RecordBatch]
    seen: dict[str, list[pa.Array[Any]]] = field(default_factory=lambda: {"id": [], "src": [], "dst": []})

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for given in self.source:
            batch = conform(given, self.accepted, self.table)
            check_rows(batch, self.table)
            for name in ("id", "src", "dst") if isinstance(self.table, EdgeType) else ("id",):
                self.seen[name].append(batch.column(name))
            yield batch

    def column(self, name: str) -> pa.ChunkedArray[Any]:
        return pa.chunked_array(self.seen[name], pa.string())


class Load:
    """One load: captured once, staged, checked, committed."""

    def __init__(self, storage: Storage, accepted: AcceptedSchema, branch: str, mode: LoadMode) -> None:
        if branch != MAIN:
            raise InvalidArgument(
                f"Loading into the branch '{branch}' is not possible yet.", hint="Load into main; branches can be read."
            )
        self._storage = storage
        self._accepted = accepted
        self._mode = mode
        self._state: ManifestState = open_manifest(storage).state

    def run(
        self, inputs: Mapping[str, Iterable[pa.RecordBatch]], *, actor: str | None, message: str | None
    ) -> CommitReceipt:
        """Everything in ``inputs`` (batches by table key) is visible as one commit, or nothing is."""
        types = [table for table in self._accepted.catalog.table_types() if table.table_key in inputs]
        rows = {table.table_key: _Batches(self._accepted, table, inputs[table.table_key]) for table in types}
        staged = {key: write for key, batches in rows.items() if (write := self._stage(key, batches)) is not None}
        read = self._check(rows)
        if not staged:
            return CommitReceipt(None, {})
        return self._commit(staged, read, actor, message)

    def _stage(self, table_key: str, batches: _Batches) -> StagedWrite | None:
        table = self._open(table_key)
        if self._mode is LoadMode.APPEND:
            return stage_append(table, batches)
        if self._mode is LoadMode.OVERWRITE:
            return stage_overwrite(table, batches)
        return stage_upsert(table, batches)

    def _check(self, rows: Mapping[str, _Batches]) -> set[str]:
        """All rules between rows; returns the tables that were read to decide them."""
        read: set[str] = set()
        for table_key, batches in rows.items():
            ids = batches.column("id")
            check_distinct(table_key, ids)
            if self._mode is LoadMode.APPEND:
                check_new(table_key, ids, self._column(table_key, "id"))
        for table in self._accepted.catalog.edges.values():
            loaded = rows.get(table.table_key)
            for role, node_type in (("src", table.from_type), ("dst", table.to_type)):
                node_key = f"node:{node_type}"
                shrunk = self._mode is LoadMode.OVERWRITE and node_key in rows
                if loaded is None and not shrunk:
                    continue
                read |= {node_key} if loaded is not None else {node_key, table.table_key}
                ends = loaded.column(role) if loaded is not None else self._column(table.table_key, role)
                check_endpoints(table.table_key, role, ends, self._ids_after(node_key, rows), node_type)
        return read

    def _ids_after(self, node_key: str, rows: Mapping[str, _Batches]) -> pa.ChunkedArray[Any]:
        """The ids that the node table will hold once this load is committed."""
        loaded = rows[node_key].column("id") if node_key in rows else _TEXT
        if self._mode is LoadMode.OVERWRITE and node_key in rows:
            return loaded
        return pa.chunked_array([*self._column(node_key, "id").chunks, *loaded.chunks], pa.string())

    def _commit(
        self, staged: Mapping[str, StagedWrite], read: set[str], actor: str | None, message: str | None
    ) -> CommitReceipt:
        updates: list[TableVersion] = []
        receipts: dict[str, TableReceipt] = {}
        for table_key, write in staged.items():
            before = self._published(table_key)
            landed = commit_staged(self._open(table_key), write)
            count = write.rows_after(before.row_count)
            updates.append(
                TableVersion(
                    table_key=table_key,
                    identity=before.identity,
                    version=landed.version,
                    branch=before.branch,
                    row_count=count,
                    manifest_path=landed.manifest_path,
                    manifest_size=landed.manifest_size,
                )
            )
            receipts[table_key] = TableReceipt(
                landed.version, count, write.rows_inserted, write.rows_updated, write.rows_deleted
            )
        expected = {
            key: TablePin(self._published(key).version, self._published(key).branch) for key in {*staged, *read}
        }
        published = publish(
            self._storage,
            Publication(
                commit_id=str(ULID()),
                branch=None,
                updates=tuple(updates),
                expected=expected,
                actor=actor,
                extra={} if message is None else {"message": message},
            ),
        )
        return CommitReceipt(published.commit, receipts)

    def _published(self, table_key: str) -> PublishedTable:
        return self._state.tables[table_key]

    def _open(self, table_key: str) -> Table:
        pin = self._published(table_key)
        return Table(self._storage, TableRef(table_key, pin.location, pin.branch, pin.version))

    def _column(self, table_key: str, name: str) -> pa.ChunkedArray[Any]:
        return self._open(table_key).scan([name]).read_all().column(name)
