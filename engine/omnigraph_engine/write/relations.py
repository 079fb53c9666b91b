"""Rules that need more than one row: ids are distinct, new ids are new, and edges end at nodes that exist."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import DuplicateKey, MissingEndpoint

SHOWN = 20


def check_distinct(table_key: str, ids: pa.ChunkedArray[Any]) -> None:
    """Raises ``DuplicateKey`` when an id occurs twice among the rows to be written."""
    counted = pc.value_counts(ids)
    repeated = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    if len(repeated):
        raise DuplicateKey(
            f"{table_key}: {len(repeated)} id(s) occur more than once in the data: {_shown(repeated)}.",
            details={"table_key": table_key, "rule": "key", "count": len(repeated), "values": _first(repeated)},
            hint="Keep one row per id before loading.",
        )


def check_new(table_key: str, ids: pa.ChunkedArray[Any], existing: pa.ChunkedArray[Any]) -> None:
    """Raises ``DuplicateKey`` when an id to be inserted exists already."""
    taken = ids.filter(pc.is_in(ids, value_set=existing.combine_chunks()))
    if len(taken):
        raise DuplicateKey(
            f"{table_key}: {len(taken)} id(s) exist already: {_shown(taken)}.",
            details={"table_key": table_key, "rule": "key", "count": len(taken), "values": _first(taken)},
            hint='Load with mode="merge" to replace existing rows.',
        )


def check_endpoints(
    table_key: str, role: str, ends: pa.ChunkedArray[Any], nodes: pa.ChunkedArray[Any], node_type: str
) -> None:
    """Raises ``MissingEndpoint`` when an edge's ``src`` or ``dst`` is not the id of a node of the type it must be of."""
    missing = pc.unique(ends.filter(pc.invert(pc.is_in(ends, value_set=nodes.combine_chunks()))))
    if len(missing):
        raise MissingEndpoint(
            f"{table_key}.{role}: {len(missing)} value(s) are not the id of any {node_type}: {_shown(missing)}.",
            details={"table_key": table_key, "rule": role, "count": len(missing), "values": _first(missing)},
            hint=f"Load the {node_type} rows first, or in the same call.",
        )


def _first(values: Any) -> list[Any]:
    return list(values.slice(0, SHOWN).to_pylist())


def _shown(values: Any) -> str:
    more = ", ..." if len(values) > SHOWN else ""
    return ", ".join(repr(value) for value in _first(values)) + more
