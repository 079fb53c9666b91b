"""What two branches cannot both have, as data."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import pyarrow as pa


class ConflictKind(str, Enum):
    DIVERGENT_INSERT = "divergent insert"  # both made the same entity, differently
    DIVERGENT_UPDATE = "divergent update"  # both changed it, differently
    DELETE_UPDATE = "delete against update"  # one deleted it, the other changed it
    ORPHAN_EDGE = "orphan edge"  # one deleted a node that an edge of the other needs
    UNIQUE = "unique"  # each gave the same value of a @unique to an entity of its own
    CARDINALITY = "cardinality"  # together they give a source too many or too few edges
    VALUE = "value constraint"  # a row that comes has a value that the schema does not allow


NO_SIDE_RESOLVES = frozenset(
    {ConflictKind.ORPHAN_EDGE, ConflictKind.UNIQUE, ConflictKind.CARDINALITY, ConflictKind.VALUE}
)

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("base", pa.string()),  # the entity as JSON, here and below; null where it was not there
        pa.field("source", pa.string()),
        pa.field("target", pa.string()),
        pa.field("resolution", pa.string()),  # ours, theirs, or null: not resolved
    ]
)

Rows = Sequence[dict[str, Any] | None]


class ConflictList:
    """Conflicts as they are found. They are all kept in memory: whoever merges is told every one."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each conflict, by the columns of ``SCHEMA``; plain data that ``extend`` takes elsewhere."""
        return iter(self._rows)

    def extend(self, conflicts: Iterable[dict[str, Any]]) -> None:
        self._rows += conflicts

    def add(
        self,
        kind: ConflictKind,
        type_name: str,
        ids: pa.Array[Any] | pa.ChunkedArray[Any],
        *,
        base: Rows | None = None,
        source: Rows | None = None,
        target: Rows | None = None,
        resolution: str | None = None,
    ) -> None:
        for place, entity_id in enumerate(ids.to_pylist()):
            self._rows.append(
                {
                    "kind": kind.value,
                    "type": type_name,
                    "id": entity_id,
                    "base": None if base is None else _json(base[place]),
                    "source": None if source is None else _json(source[place]),
                    "target": None if target is None else _json(target[place]),
                    "resolution": resolution,
                }
            )

    def to_arrow(self, *, resolved: bool) -> pa.Table:
        rows = [row for row in self._rows if (row["resolution"] is not None) == resolved]
        rows.sort(key=lambda row: (row["type"], row["id"], row["kind"]))
        return pa.Table.from_pylist(rows, SCHEMA)


def report(conflicts: pa.Table, *, most: int = 20) -> str:
    """The conflicts for people: a line each, the first ``most`` of them."""
    lines = [
        f"{row['type']} '{row['id']}': {row['kind']}"
        f" (base {row['base'] or '-'}, source {row['source'] or '-'}, target {row['target'] or '-'})"
        for row in conflicts.slice(0, most).to_pylist()
    ]
    rest = conflicts.num_rows - len(lines)
    return "\n".join([*lines, *([f"and {rest} more"] if rest else [])])


def entities(rows: pa.Table, columns: Sequence[str]) -> list[dict[str, Any] | None]:
    """Rows as plain values; a date with a time of day keeps it."""
    shown = rows.select(list(columns))
    schema = pa.schema([pa.field(field.name, _with_time(field.type), field.nullable) for field in shown.schema])
    return list(shown.cast(schema).to_pylist())


def _with_time(kind: pa.DataType) -> pa.DataType:
    """Python shows a date64 as a date and drops the time of day."""
    if isinstance(kind, pa.ListType):
        return pa.list_(_with_time(kind.value_type))
    return pa.timestamp("ms") if pa.types.is_date64(kind) else kind


def _json(entity: dict[str, Any] | None) -> str | None:
    return None if entity is None else json.dumps(_plain(entity), ensure_ascii=False, sort_keys=True, allow_nan=False)


def _plain(value: Any) -> Any:
    """The value in JSON's own kinds; what JSON has no word for becomes a text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def way_out(conflicts: pa.Table, choose: str) -> str:
    """What to do about conflicts. To ``choose`` a side is advised only where that resolves something."""
    kinds = {ConflictKind(kind) for kind in conflicts["kind"].to_pylist()}
    beyond = ", ".join(sorted(kind.value for kind in kinds & NO_SIDE_RESOLVES))
    if kinds <= NO_SIDE_RESOLVES:
        return f"Change one of the branches, then merge: taking a side does not resolve {beyond}."
    return f"Change one side, or {choose}." + (f" Taking a side does not resolve {beyond}." if beyond else "")
