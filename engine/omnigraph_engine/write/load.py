"""Loading rows of several types as one graph commit.

Two halves that may run on different machines: ``Load.stage`` streams rows through conform and the row-local checks into
files that nobody can see, ``Load.commit`` checks the rules between rows on what was staged, commits and publishes. Nothing is
visible before the publish, and a violation raises before any table moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
from ulid import ULID

from omnigraph_engine.errors import InvalidArgument, StorageError
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.manifest.publisher import Publication, TablePin, publish
from omnigraph_engine.manifest.rows import MAIN, GraphCommit, TableVersion
from omnigraph_engine.manifest.state import ManifestState, PublishedTable
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.model import TableType
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.heads import commit_staged
from omnigraph_engine.tables.readback import scan_staged
from omnigraph_engine.tables.stage import stage_append, stage_overwrite, stage_upsert
from omnigraph_engine.tables.staged import StagedWrite, StageKind, combine
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


class _Conformed:
    """Rows on their way to files, in the table's schema and with the row-local checks passed.

    Lance reports whatever goes wrong in its input as a failure of its own, so the cause is kept here.
    """

    def __init__(self, accepted: AcceptedSchema, table: TableType, source: Iterable[pa.RecordBatch]) -> None:
        self._accepted = accepted
        self._table = table
        self._source = source
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for given in self._source:
                batch = conform(given, self._accepted, self._table)
                check_rows(batch, self._table)
                yield batch
        except Exception as error:
            self.failure = error
            raise


class Load:
    """One load: captured once, staged anywhere, then checked and committed in one place.

    It is plain data and may be pickled: workers on other machines ``stage`` against the very state that ``commit`` builds on.
    """

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
        staged = [self.stage(table_key, inputs[table_key]) for table_key in self._types if table_key in inputs]
        return self.commit([write for write in staged if write is not None], actor=actor, message=message)

    def stage(self, table_key: str, batches: Iterable[pa.RecordBatch]) -> StagedWrite | None:
        """Streams rows into files that nobody can see, or None when they would change nothing. Any worker may call it.

        Raises:
            OmnigraphError: A row does not fit the type or breaks a rule that it can break on its own.
        """
        table = self._open(table_key)
        rows = _Conformed(self._accepted, self._types[table_key], batches)
        try:
            if self._mode is LoadMode.APPEND:
                return stage_append(table, rows)
            if self._mode is LoadMode.OVERWRITE:
                return stage_overwrite(table, rows)
            return stage_upsert(table, rows)
        except StorageError:
            if rows.failure is not None:
                raise rows.failure from None
            raise

    def commit(
        self, parts: Iterable[StagedWrite], *, actor: str | None = None, message: str | None = None
    ) -> CommitReceipt:
        """All that was staged for this load, by however many workers, is visible as one commit, or none of it is.

        The rules between rows are checked first, on the staged rows as they are in storage.
        """
        by_key: dict[str, list[StagedWrite]] = {}
        for part in parts:
            by_key.setdefault(part.table_key, []).append(part)
        # In the schema's order, nodes before edges, whatever the order of the parts.
        staged = {key: write for key in self._types if (write := combine(by_key.get(key, ()))) is not None}
        read = self._check(staged)
        if not staged:
            return CommitReceipt(None, {})
        return self._commit(staged, read, actor, message)

    def _check(self, staged: Mapping[str, StagedWrite]) -> set[str]:
        """All rules between rows; returns the tables that were read to decide them."""
        read: set[str] = set()
        for table_key, write in staged.items():
            ids = self._staged_column(write, "id")
            check_distinct(table_key, ids)
            if self._mode is LoadMode.APPEND:
                check_new(table_key, ids, self._column(table_key, "id"))
        for table in self._accepted.catalog.edges.values():
            loaded = staged.get(table.table_key)
            for role, node_type in (("src", table.from_type), ("dst", table.to_type)):
                node_key = f"node:{node_type}"
                shrunk = self._mode is LoadMode.OVERWRITE and node_key in staged
                if loaded is None and not shrunk:
                    continue
                read |= {node_key} if loaded is not None else {node_key, table.table_key}
                ends = self._column(table.table_key, role) if loaded is None else self._staged_column(loaded, role)
                check_endpoints(table.table_key, role, ends, self._ids_after(node_key, staged), node_type)
        return read

    def _ids_after(self, node_key: str, staged: Mapping[str, StagedWrite]) -> pa.ChunkedArray[Any]:
        """The ids that the node table will hold once this load is committed."""
        loaded = self._staged_column(staged[node_key], "id") if node_key in staged else _TEXT
        if self._mode is LoadMode.OVERWRITE and node_key in staged:
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
            # Each part of an overwrite deletes the whole table, so their sum says nothing.
            deleted = before.row_count if write.kind is StageKind.OVERWRITE else write.rows_deleted
            receipts[table_key] = TableReceipt(landed.version, count, write.rows_inserted, write.rows_updated, deleted)
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

    @property
    def _types(self) -> dict[str, TableType]:
        return {table.table_key: table for table in self._accepted.catalog.table_types()}

    def _published(self, table_key: str) -> PublishedTable:
        return self._state.tables[table_key]

    def _open(self, table_key: str) -> Table:
        pin = self._published(table_key)
        return Table(self._storage, TableRef(table_key, pin.location, pin.branch, pin.version))

    def _column(self, table_key: str, name: str) -> pa.ChunkedArray[Any]:
        return self._open(table_key).scan([name]).read_all().column(name)

    def _staged_column(self, staged: StagedWrite, name: str) -> pa.ChunkedArray[Any]:
        batches = scan_staged(self._open(staged.table_key), staged, [name])
        return pa.chunked_array([batch.column(0) for batch in batches], pa.string())
