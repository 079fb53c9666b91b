"""What happened to entities between two versions of a table: inserted, updated, deleted. Nothing that looks the same shows up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.tables.buckets import pair_up
from omnigraph_engine.tables.changes import ROW, RowChanges
from omnigraph_engine.tables.equality import rows_differ


class Change(str, Enum):
    INSERTED = "inserted"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True)
class EntityChanges:
    """Changes of one kind. ``before`` and ``after`` are rows of the same entities in the same order, where there are both."""

    change: Change
    before: pa.Table | None
    after: pa.Table | None

    @property
    def ids(self) -> pa.ChunkedArray[pa.StringScalar]:
        rows = self.after if self.after is not None else self.before
        assert rows is not None  # noqa: S101 - a change has at least one side
        return rows["id"]


def entity_changes(changes: RowChanges, columns: Sequence[str]) -> Iterator[EntityChanges]:
    """Every entity that is different, once, with these columns (``id`` is the first) and ``ROW``; memory is bounded."""
    schema = row_schema(changes.before.schema, columns)
    lost = (_shaped(batch, schema) for batch in changes.lost(columns))
    came = (_shaped(batch, schema) for batch in changes.came(columns))
    for before, stream in pair_up(lost, came, schema, schema):
        returned = np.zeros(before.num_rows, np.bool_)
        ids = before["id"].combine_chunks()
        for batch in stream:
            place = pc.index_in(batch["id"], value_set=ids)
            after = pa.Table.from_batches([batch])
            new = after.filter(place.is_null())
            if new.num_rows:
                yield EntityChanges(Change.INSERTED, None, new)
            places = place.drop_null().to_numpy(zero_copy_only=False)
            returned[places] = True
            was, is_ = before.take(places), after.filter(place.is_valid())
            differ = pa.array(rows_differ(was, is_, [name for name in columns if name != "id"]))
            if pc.any(differ).as_py():
                yield EntityChanges(Change.UPDATED, was.filter(differ), is_.filter(differ))
        if not returned.all():
            yield EntityChanges(Change.DELETED, before.filter(pa.array(~returned)), None)


def row_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """These columns of a table, ``id`` first, and ``ROW``."""
    fields = [schema.field(name).remove_metadata() for name in ("id", *(name for name in columns if name != "id"))]
    return pa.schema([*fields, *(pa.field(name, pa.uint64()) for name in ROW)])


def _shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch[field.name].cast(field.type) for field in schema], schema=schema)
