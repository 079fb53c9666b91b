"""Merging one table by entity, in parts that any number of workers make.

The rows that a side has made and those that the source has replaced or removed are read, marked and dealt by their ids, so
that all rows of an entity meet in one place. Which of the latter the target has replaced or removed as well is told by where
they are, so nothing more is read of what the target has lost.
Where they meet, ``EntityMerge`` decides about each entity on its own and stages what follows. In one process the buckets of
``pair_up`` are that place, one after the other; with many workers it is a shuffle. What they staged is sealed in one place.

Memory is bounded by one bucket, eight bytes for each row that is put or goes, and the conflicts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.branches.conflicts import ConflictKind, ConflictList
from omnigraph_engine.branches.entities import row_schema
from omnigraph_engine.branches.three_way import Granularity, Outcome, Resolution, Side, three_way
from omnigraph_engine.compute import pc
from omnigraph_engine.schema.model import TableType
from omnigraph_engine.schema.row_rules import breaches
from omnigraph_engine.tables.buckets import pair_up
from omnigraph_engine.tables.changes import CHANGED_AT, ROW, RowChanges
from omnigraph_engine.tables.key_joins import candidates
from omnigraph_engine.tables.patch import Patch, locate, stage_patches
from omnigraph_engine.tables.table import Table
from omnigraph_engine.tables.upsert import NOWHERE, Addresses, UpsertPart, leave_addresses

_MARK = pa.field("#mark", pa.int8())  # no property can have this name

Pairs = Iterable[tuple[pa.Table, Iterable[pa.RecordBatch]]]  # of rows of the source and of the target


class Origin(IntEnum):
    SOURCE = 0
    TARGET = 1


class Mark(IntEnum):
    """What a row is to the merge."""

    LOST = 0  # the base's; the source does not have it any more
    LOST_BY_BOTH = 1  # the same, and nor has the target
    CAME = 2  # of the side that it was read from


@dataclass(frozen=True)
class Share:
    """Rows that one worker reads: some of those that came to one side, or of those that the source lost."""

    origin: Origin
    came: bool
    number: int


@dataclass(frozen=True)
class MergePart:
    """What one worker staged and found. Plain data, to travel: its size follows its files and its conflicts."""

    staged: UpsertPart | None
    mixed: bool  # whether a row holds properties of both sides
    conflicts: tuple[dict[str, Any], ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> MergePart:
        fields: dict[str, Any] = json.loads(text)
        staged = None if fields["staged"] is None else UpsertPart.from_json(json.dumps(fields["staged"]))
        return cls(staged, fields["mixed"], tuple(fields["conflicts"]))


@dataclass(frozen=True)
class EntityMerge:
    """How the entities of one table are merged: all that a worker needs to stage those that meet where it is. Plain data."""

    table: Table  # as the target has it
    standing: Mapping[int, int]  # the base's fragments that it still has: their numbers there, by those in the base
    kind: TableType
    schema: pa.Schema  # of the rows that meet
    resolution: Resolution
    granularity: Granularity
    operation_id: str  # names what workers leave behind until it is committed

    @property
    def columns(self) -> list[str]:
        """Those of the table, ``id`` first."""
        return [name for name in self.schema.names if name not in (*ROW, _MARK.name)]

    def stage(self, pairs: Pairs) -> tuple[MergePart, Addresses]:
        """Decides about every entity of ``pairs``, and stages it; and the addresses of the target's rows that go."""
        conflicts = ConflictList()
        outcomes: list[bool] = []
        staged = stage_patches(self.table, self._patches(pairs, conflicts, outcomes))
        part, gone = (None, np.empty(0, np.uint64)) if staged is None else staged
        return MergePart(part, any(outcomes), tuple(conflicts)), gone

    def stage_apart(self, pairs: Pairs) -> MergePart:
        """As ``stage``, for one of several workers; what they return is sealed in one place."""
        part, gone = self.stage(pairs)
        if part.staged is None:
            return part
        left = leave_addresses(self.table, part.staged, gone, operation_id=self.operation_id)
        return MergePart(left, part.mixed, part.conflicts)

    def _patches(self, pairs: Pairs, conflicts: ConflictList, mixed: list[bool]) -> Iterator[Patch]:
        for given, stream in pairs:
            if not given.num_rows:
                continue
            met = pa.Table.from_batches(candidates(given["id"], stream), self.schema)
            source = Side(lost=_marked(given, Mark.LOST, Mark.LOST_BY_BOTH), came=_marked(given, Mark.CAME))
            outcome = three_way(
                self.kind.name,
                self.columns,
                source,
                Side(lost=_marked(given, Mark.LOST_BY_BOTH), came=_marked(met, Mark.CAME)),
                resolution=self.resolution,
                granularity=self.granularity,
                conflicts=conflicts,
            )
            mixed.append(outcome.mixed)
            patch = self._patch(source, outcome)
            self._check_values(patch.rows, conflicts)
            yield patch

    def _check_values(self, rows: pa.Table, conflicts: ConflictList) -> None:
        """A merge makes no new values, but what it brings may have been written by another engine, with rules of its own."""
        for batch in rows.combine_chunks().to_batches():
            for breach in breaches(batch, self.kind):
                rule = f"{breach.property} {breach.demand.text}"
                broken = zip(breach.ids.to_pylist(), breach.values.to_pylist(), strict=True)
                told = [{"rule": rule, "id": entity, breach.property: value} for entity, value in broken]
                conflicts.add(ConflictKind.VALUE, self.kind.name, breach.ids, source=told)

    def _patch(self, source: Side, outcome: Outcome) -> Patch:
        """Where each row of the outcome goes: entities that the target has not touched have kept their row ids in it."""
        place = pc.index_in(outcome.put["id"].combine_chunks(), value_set=source.lost["id"].combine_chunks())
        updating, adding = outcome.put.filter(place.is_valid()), outcome.put.filter(place.is_null())
        row_ids, addresses = locate(self.table, source.lost.take(place.drop_null()), self.standing)
        _, removed = locate(self.table, outcome.remove, self.standing)
        over, over_at = outcome.put_over["_rowid"].to_numpy(), outcome.put_over["_rowaddr"].to_numpy()
        new = pa.concat_tables([adding, outcome.put_back])
        return Patch(
            rows=pa.concat_tables([updating, outcome.put_over, new]).select(self.columns),
            row_ids=np.concatenate([row_ids, over, np.full(new.num_rows, NOWHERE)]),
            gone=np.concatenate([addresses, over_at, removed, outcome.remove_over["_rowaddr"].to_numpy()]),
        )


@dataclass(frozen=True)
class TableWork:
    """One table's merge: which rows are to be read, and how their entities are merged. Plain data."""

    by_source: RowChanges
    by_target: RowChanges
    entities: EntityMerge
    rows: int  # that are to be read, at most

    @classmethod
    def of(
        cls,
        by_source: RowChanges,
        by_target: RowChanges,
        kind: TableType,
        *,
        resolution: Resolution,
        granularity: Granularity,
        operation_id: str,
    ) -> TableWork:
        table = by_target.after
        schema = row_schema(table.schema, table.schema.names).append(_MARK)
        entities = EntityMerge(table, by_target.standing, kind, schema, resolution, granularity, operation_id)
        return cls(by_source, by_target, entities, by_source.rows + by_target.rows_that_came)

    @property
    def shares(self) -> list[Share]:
        """All that is to be read, each share for one worker."""
        lost = [Share(Origin.SOURCE, came=False, number=number) for number in range(len(self.by_source.lost_shares))]
        came = [
            Share(origin, came=True, number=number)
            for origin in Origin
            for number in range(len(self._changes(origin).came_shares))
        ]
        return [*lost, *came]

    def read(self, share: Share) -> Iterator[pa.RecordBatch]:
        """The rows of a share, in the schema in which rows meet."""
        columns = self.entities.columns
        if share.came:
            for batch in self._changes(share.origin).came(columns, share.number):
                yield self._shaped(batch, np.full(batch.num_rows, Mark.CAME, np.int8))
        else:
            for batch in self.by_source.lost([*columns, CHANGED_AT], share.number):
                both = self.by_target.loses(batch)
                yield self._shaped(batch, np.where(both, Mark.LOST_BY_BOTH, Mark.LOST).astype(np.int8))

    def _shaped(self, batch: pa.RecordBatch, marks: npt.NDArray[np.int8]) -> pa.RecordBatch:
        schema = self.entities.schema
        arrays = [batch[field.name].cast(field.type) for field in schema if field.name != _MARK.name]
        return pa.RecordBatch.from_arrays([*arrays, pa.array(marks)], schema=schema)

    def pairs(self) -> Pairs:
        """All rows, brought together in this process."""
        schema = self.entities.schema
        return pair_up(self._all(Origin.SOURCE), self._all(Origin.TARGET), schema, schema)

    def _all(self, origin: Origin) -> Iterator[pa.RecordBatch]:
        for share in self.shares:
            if share.origin is origin:
                yield from self.read(share)

    def _changes(self, origin: Origin) -> RowChanges:
        return self.by_source if origin is Origin.SOURCE else self.by_target


def _marked(rows: pa.Table, *marks: Mark) -> pa.Table:
    chosen = pc.is_in(rows[_MARK.name], value_set=pa.array(marks, _MARK.type))
    return rows.filter(chosen).drop_columns([_MARK.name])
