"""What a merge does to each table of the target: nothing, adopt the source's version, or merge by entity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph_engine.branches.conflicts import ConflictList
from omnigraph_engine.branches.table_merge import MergePart, TableWork
from omnigraph_engine.branches.three_way import Granularity, Resolution
from omnigraph_engine.commit.coordinator import TableAdoption, TableChange
from omnigraph_engine.commit.sidecar import new_operation_id
from omnigraph_engine.commit.steps import steps_of
from omnigraph_engine.commit.transaction import WriteTransaction
from omnigraph_engine.manifest.dataset import Manifest
from omnigraph_engine.manifest.publisher import pin_of
from omnigraph_engine.schema.model import TableType
from omnigraph_engine.tables.changes import RowChanges, row_changes, rows_at
from omnigraph_engine.tables.patch import discard
from omnigraph_engine.tables.readback import scan_staged
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table, TableRef
from omnigraph_engine.tables.upsert import Addresses, forget_addresses, left_addresses, seal_upsert


class TableAction(str, Enum):
    ADOPTED = "adopted"  # the target shows the source's version; no row was read
    MERGED = "merged"


@dataclass(frozen=True)
class TableMerge:
    """What a merge does to one table of the target."""

    action: TableAction
    rows: int  # afterwards
    inserted: int | None = None  # None: not counted, because nothing was read
    updated: int | None = None
    deleted: int | None = None


class MergePlan:
    """The tables that a merge changes, and what stands against it.

    It may be pickled: what was captured travels; which rows differ is looked up again where that is needed.
    """

    def __init__(
        self,
        view: WriteTransaction,
        *,
        base: Manifest,
        source: Manifest,
        resolutions: Mapping[str, Resolution],
        granularity: Granularity,
    ) -> None:
        self.view = view
        self._base = base
        self._source = source
        self._resolutions = resolutions
        self.granularity = granularity
        self.types: dict[str, TableType] = {table.table_key: table for table in view.accepted.catalog.table_types()}
        self.conflicts = ConflictList()
        self.adopted: dict[str, TableAdoption] = {}
        self.merging: list[str] = []  # the tables that both sides changed
        self.staged: dict[str, StagedWrite] = {}  # what merging them does, once it is sealed; nothing for some
        self.mixed: set[str] = set()  # those of them in which a row has properties of both sides
        self._gone: dict[str, Addresses] = {}  # of the target's rows that are replaced or removed
        self._row_changes: dict[tuple[str, str], RowChanges] = {}
        self._operation_id = new_operation_id()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_row_changes": {}}

    def make(self) -> None:
        """Adopts what only the source changed, and finds what both did. Tables that are the same are not opened.

        What a manifest shows of a table is its row with the greatest version, whatever the line. So a version that is not
        above the target's own, as when the source took many commits of the target in with one of its own, is not adopted.
        """
        for key in self.types:
            base, source = pin_of(self._base.state, key), pin_of(self._source.state, key)
            target = self.view.pin(key)
            if source is None or source in (base, target):
                continue
            if target == base and source.version > base.version:
                self.adopted[key] = TableAdoption(key, source, self._source.state.tables[key].row_count)
                continue
            self.view.read(key)
            self.merging.append(key)

    def work(self, key: str) -> TableWork:
        """What there is to do to merge a table by entity, here or elsewhere."""
        return TableWork.of(
            self.by_source(key),
            self.by_target(key),
            self.types[key],
            resolution=self._resolutions[key],
            granularity=self.granularity,
            operation_id=self._operation_id,
        )

    def stage(self, key: str) -> None:
        """Merges a table by entity in this process."""
        work = self.work(key)
        part, gone = work.entities.stage(work.pairs())
        self._seal(key, [(part, gone)])

    def seal(self, key: str, parts: Iterable[MergePart]) -> None:
        """Takes over what workers elsewhere have staged of a table's ``work``."""
        table = self.view.table(key)
        found = [
            (part, np.empty(0, np.uint64) if part.staged is None else left_addresses(table, part.staged))
            for part in parts
        ]
        self._seal(key, found)
        forget_addresses(table, [part.staged for part, _ in found if part.staged is not None])

    def _seal(self, key: str, parts: Sequence[tuple[MergePart, Addresses]]) -> None:
        for part, _ in parts:
            self.conflicts.extend(part.conflicts)
            if part.mixed:
                self.mixed.add(key)
        staged = {part.staged: gone for part, gone in parts if part.staged is not None}
        if staged:
            write = seal_upsert(self.view.table(key), list(staged), staged.__getitem__)
            assert write is not None  # noqa: S101 - there is a part
            self.staged[key] = write
            self._gone[key] = np.sort(np.concatenate(list(staged.values())))

    def put(self, key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows that merging a table by entity puts into the target."""
        if key not in self.staged:
            return iter(())
        return scan_staged(self.view.table(key), self.staged[key], columns)

    def gone(self, key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the target that merging a table by entity replaces or removes, as they are."""
        if key not in self.staged:
            return iter(())
        return rows_at(self.view.table(key), self._gone[key], columns)

    def discard(self) -> None:
        """Removes what was staged: the plan will not be carried out."""
        for key, write in self.staged.items():
            discard(self.view.table(key), write)

    def changes(self) -> tuple[TableChange, ...]:
        return tuple(
            TableChange(key, steps_of(self.view.table(key), write), write.rows_after(self._rows(key)))
            for key, write in self.staged.items()
        )

    def adoptions(self) -> tuple[TableAdoption, ...]:
        return tuple(self.adopted.values())

    def told(self) -> dict[str, TableMerge]:
        told = {
            key: TableMerge(
                TableAction.MERGED,
                write.rows_after(self._rows(key)),
                write.rows_inserted,
                write.rows_updated,
                write.rows_deleted,
            )
            for key, write in self.staged.items()
        }
        told |= {key: TableMerge(TableAction.ADOPTED, table.rows_after) for key, table in self.adopted.items()}
        return dict(sorted(told.items()))

    def by_source(self, key: str) -> RowChanges:
        """What the source did to a table since the base."""
        return self._changes("source", key, _table(self._source, key))

    def by_target(self, key: str) -> RowChanges:
        """What the target did to a table since the base."""
        return self._changes("target", key, self.view.read(key))

    def against(self, other: Manifest, key: str) -> tuple[RowChanges, RowChanges] | None:
        """What the source and the target did to a table since another base; None where that makes no difference."""
        same_base = pin_of(other.state, key) == pin_of(self._base.state, key)
        if same_base or pin_of(self._source.state, key) == self.view.pin(key):
            return None
        base = _table(other, key)
        return row_changes(base, _table(self._source, key)), row_changes(base, self.view.read(key))

    def sides(self, key: str) -> RowChanges:
        """How the target differs from the source."""
        return row_changes(_table(self._source, key), self.view.read(key))

    def _changes(self, side: str, key: str, after: Table) -> RowChanges:
        if (side, key) not in self._row_changes:
            self._row_changes[side, key] = row_changes(_table(self._base, key), after)
        return self._row_changes[side, key]

    def table_after(self, key: str) -> Table:
        """The version that a table's merge starts from: the source's where it is adopted, else the target's."""
        return _table(self._source, key) if key in self.adopted else self.view.read(key)

    def _rows(self, key: str) -> int:
        return self.view.published(key).row_count


def _table(manifest: Manifest, key: str) -> Table:
    published = manifest.state.tables[key]
    return Table(manifest.storage, TableRef(key, published.location, published.branch, published.version))
