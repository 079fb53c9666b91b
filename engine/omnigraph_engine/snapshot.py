"""Reading a graph: one snapshot, pinned for its whole life."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from omnigraph_engine.errors import UnknownType, did_you_mean
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.manifest.state import ManifestState, PublishedTable
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.table import FragmentInfo, Table, TableRef


class SnapshotTable:
    """One table as the snapshot shows it; later commits do not change what it returns."""

    def __init__(self, storage: Storage, published: PublishedTable) -> None:
        self.published = published
        self.ref = TableRef(published.table_key, published.location, published.branch, published.version)
        self.table = Table(storage, self.ref)

    def __repr__(self) -> str:
        return f"SnapshotTable({self.published.table_key!r}, version={self.published.version})"

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word that pyarrow, Lance and Spark users know
        limit: int | None = None,
    ) -> pa.Table:
        """The matching rows in memory. Use ``to_batches`` for tables that do not fit."""
        return self.table.scan(columns, filter, limit).read_all()

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The matching rows as a stream of batches, in stored order."""
        yield from self.table.scan(columns, filter, limit)

    def count(self, filter: str | None = None) -> int:  # noqa: A002
        """How many rows match; without a filter the manifest knows, and no table is opened."""
        return self.published.row_count if filter is None else self.table.count(filter)

    def fragments(self) -> list[FragmentInfo]:
        """The parts that workers can scan independently."""
        return self.table.fragments()


class Snapshot:
    """The whole graph at one commit. Immutable: a reader holding it is undisturbed by whatever is committed later."""

    def __init__(self, storage: Storage, state: ManifestState) -> None:
        self._storage = storage
        self._state = state

    def __repr__(self) -> str:
        return f"Snapshot({self.id})"

    @property
    def id(self) -> str:
        return f"manifest:{self.branch}:v{self.version}"

    @property
    def branch(self) -> str:
        return self._state.branch_name

    @property
    def version(self) -> int:
        """The version of the branch's manifest."""
        return self._state.version

    @property
    def commit(self) -> GraphCommit:
        """The newest commit that the snapshot contains."""
        return self._state.head

    @cached_property
    def tables(self) -> Mapping[str, SnapshotTable]:
        """Every table by its key (``node:Person``, ``edge:Knows``), sorted."""
        return {key: SnapshotTable(self._storage, table) for key, table in self._state.tables.items()}

    def table(self, name: str) -> SnapshotTable:
        """A table by its key, or by its type's name alone."""
        for key in (name, f"node:{name}", f"edge:{name}"):
            if key in self.tables:
                return self.tables[key]
        raise UnknownType(
            f"The snapshot has no table '{name}'.",
            details={"table": name},
            hint=did_you_mean(name, [*self.tables, *(key.split(":", 1)[1] for key in self.tables)]),
        )
