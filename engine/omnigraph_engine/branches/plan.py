"""What a merge does to each table of the target: nothing, adopt the source's version, or merge by entity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph_engine.branches.conflicts import ConflictList
from omnigraph_engine.branches.entities import row_schema
from omnigraph_engine.branches.three_way import Granularity, Outcome, Resolution, Side, three_way
from omnigraph_engine.commit.coordinator import LaterStep, Step, TableAdoption, TableChange
from omnigraph_engine.commit.transaction import WriteTransaction
from omnigraph_engine.compute import pc
from omnigraph_engine.manifest.dataset import Manifest
from omnigraph_engine.manifest.publisher import pin_of
from omnigraph_engine.schema.model import TableType
from omnigraph_engine.tables.buckets import pair_up
from omnigraph_engine.tables.changes import RowChanges, row_changes
from omnigraph_engine.tables.fold import fold_limit_after, stage_fold
from omnigraph_engine.tables.patch import Patch, discard, locate, stage_patches
from omnigraph_engine.tables.staged import StagedWrite, new_transaction_uuid
from omnigraph_engine.tables.table import Table, TableRef

_CAME = pa.field("came", pa.bool_())


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


@dataclass
class Moved:
    """What merging a table by entity takes from the target, for the rules between rows."""

    removed: list[pa.Table]  # rows that go
    replaced: list[pa.Table]  # rows that others take the place of, as they were
    mixed: bool = False  # whether a row has properties of both sides


class MergePlan:
    """The tables that a merge changes, and what stands against it."""

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
        self.staged: dict[str, StagedWrite] = {}
        self.adopted: dict[str, TableAdoption] = {}
        self._row_changes: dict[tuple[str, str], RowChanges] = {}
        self.moved: dict[str, Moved] = defaultdict(lambda: Moved([], []))

    def make(self) -> None:
        """Adopts what only the source changed and stages what both did. Tables that are the same are not opened.

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
            staged = stage_patches(self.view.read(key), self._patches(key))
            if staged is not None:
                self.staged[key] = staged

    def discard(self) -> None:
        """Removes what was staged: the plan will not be carried out."""
        for key, write in self.staged.items():
            discard(self.view.table(key), write)

    def changes(self) -> tuple[TableChange, ...]:
        return tuple(
            TableChange(key, _steps(self.view.table(key), write), write.rows_after(self._rows(key)))
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

    def _patches(self, key: str) -> Iterator[Patch]:
        table = self.view.table(key)
        names = table.schema.names
        schema = row_schema(table.schema, names)
        tagged = schema.append(_CAME)
        source, target = self.by_source(key), self.by_target(key)
        for given, stream in pair_up(_tagged(source, names, tagged), _tagged(target, names, tagged), tagged, tagged):
            ids = given["id"].combine_chunks()
            met = [batch.filter(pc.is_in(batch["id"], value_set=ids)) for batch in stream]
            outcome = three_way(
                self.types[key].name,
                names,
                _side(given),
                _side(pa.Table.from_batches(met, tagged)),
                resolution=self._resolutions[key],
                granularity=self.granularity,
                conflicts=self.conflicts,
            )
            yield self._patch(table, key, _side(given), outcome)

    def _patch(self, table: Table, key: str, source: Side, outcome: Outcome) -> Patch:
        """Where each row of the outcome goes: entities that the target has not touched have kept their row ids in it."""
        base_ids = source.lost["id"].combine_chunks()
        place = pc.index_in(outcome.put["id"].combine_chunks(), value_set=base_ids)
        updating, adding = outcome.put.filter(place.is_valid()), outcome.put.filter(place.is_null())
        was = source.lost.take(place.drop_null())
        row_ids, addresses = _find(table, was)
        _, removed = _find(table, outcome.remove)
        moved = self.moved[key]
        moved.removed += [outcome.remove, outcome.remove_over]
        moved.replaced += [was, outcome.replaced]
        moved.mixed = moved.mixed or outcome.mixed.num_rows > 0
        columns = table.schema.names
        return Patch(
            replacing=pa.concat_tables([updating, outcome.put_over]).select(columns),
            row_ids=np.concatenate([row_ids, outcome.put_over["_rowid"].to_numpy()]),
            replaced=np.concatenate([addresses, outcome.put_over["_rowaddr"].to_numpy()]),
            adding=pa.concat_tables([adding, outcome.put_back]).select(columns),
            removed=np.concatenate([removed, outcome.remove_over["_rowaddr"].to_numpy()]),
        )


def _steps(table: Table, write: StagedWrite) -> tuple[Step, ...]:
    limit = fold_limit_after(table, write)
    if limit is None:
        return (write,)
    return (write, LaterStep(new_transaction_uuid(), partial(stage_fold, limit=limit)))


def _find(table: Table, rows: pa.Table) -> tuple[Any, Any]:
    if not rows.num_rows:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    return locate(table, rows["id"].combine_chunks(), rows["_rowid"].to_numpy())


def _table(manifest: Manifest, key: str) -> Table:
    published = manifest.state.tables[key]
    return Table(manifest.storage, TableRef(key, published.location, published.branch, published.version))


def _tagged(changes: RowChanges, names: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = list(names)
    for came, batches in ((False, changes.lost(columns)), (True, changes.came(columns))):
        for batch in batches:
            arrays = [batch[field.name].cast(field.type) for field in schema if field.name != _CAME.name]
            tag = pa.array(np.full(batch.num_rows, came))
            yield pa.RecordBatch.from_arrays([*arrays, tag], schema=schema)


def _side(rows: pa.Table) -> Side:
    came = rows[_CAME.name]
    rest = rows.drop_columns([_CAME.name])
    return Side(lost=rest.filter(pc.invert(came)), came=rest.filter(came))
