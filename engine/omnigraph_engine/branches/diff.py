"""What is different between two snapshots of a graph, entity by entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from omnigraph_engine.branches.entities import EntityChanges, entity_changes
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.tables.changes import RowChanges, row_changes
from omnigraph_engine.tables.table import Table


class TableDiff:
    """The entities of one type that differ between two snapshots."""

    def __init__(self, before: Table, after: Table) -> None:
        self._before = before
        self._after = after

    @property
    def columns(self) -> list[str]:
        return [name for name in self._before.schema.names if name in self._after.schema.names]

    def row_changes(self) -> RowChanges:
        """The rows in question, for workers that compare them elsewhere."""
        return row_changes(self._before, self._after)

    @cached_property
    def schema(self) -> pa.Schema:
        """``change`` (inserted, updated, deleted), ``id``, and the entity ``before`` and ``after`` where there was one."""
        fields = [self._after.schema.field(name).remove_metadata().with_nullable(True) for name in self.columns]
        entity = pa.struct(fields)
        return pa.schema(
            [
                pa.field("change", pa.string(), nullable=False),
                pa.field("id", pa.string(), nullable=False),
                pa.field("before", entity),
                pa.field("after", entity),
            ]
        )

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The differences as a stream; memory is bounded."""
        for changes in entity_changes(self.row_changes(), self.columns):
            yield from self._told(changes).to_batches()

    def to_arrow(self) -> pa.Table:
        """The differences in memory, in the order of their ids."""
        return pa.Table.from_batches(list(self.to_batches()), self.schema).sort_by("id")

    def _told(self, changes: EntityChanges) -> pa.Table:
        rows = len(changes.ids)
        sides = [self._entity(side, rows) for side in (changes.before, changes.after)]
        told = [pa.array([changes.change.value] * rows), changes.ids.combine_chunks(), *sides]
        return pa.Table.from_arrays(told, schema=self.schema)

    def _entity(self, rows: pa.Table | None, count: int) -> Any:
        kind: Any = self.schema.field("before").type
        if rows is None:
            return pa.array([None] * count, kind)
        fields = [kind.field(position) for position in range(kind.num_fields)]
        values = [rows[field.name].combine_chunks() for field in fields]
        return pa.StructArray.from_arrays(values, fields=fields)


@dataclass(frozen=True)
class GraphDiff:
    """What is different between two snapshots, by table key; only tables that differ are in it, and none is read yet."""

    before: Snapshot
    after: Snapshot
    tables: Mapping[str, TableDiff]

    def table(self, name: str) -> TableDiff:
        """The differences of one type, by its name or its table key; none when it is the same in both."""
        key = self.after.table(name).published.table_key
        if key in self.tables:
            return self.tables[key]
        same = self.after.tables[key].table
        return TableDiff(same, same)


def diff(before: Snapshot, after: Snapshot) -> GraphDiff:
    """Compares the snapshots' pins; rows are read when they are asked for."""
    tables = {
        key: TableDiff(before.tables[key].table, table.table)
        for key, table in after.tables.items()
        if key in before.tables and before.tables[key].ref != table.ref
    }
    return GraphDiff(before, after, tables)
