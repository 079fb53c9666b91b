"""Rows that break a rule of their own are refused, with the offending values."""

from __future__ import annotations

import reprlib
from typing import Any

import pyarrow as pa

from omnigraph_engine.errors import ConstraintViolation
from omnigraph_engine.schema.model import TableType
from omnigraph_engine.schema.row_rules import Demand, breaches

SHOWN = 20
"""How many offending values and ids an error carries; its count is always the full one."""


def check_rows(batch: pa.RecordBatch, table: TableType) -> None:
    """Returns only when every row of the conformed ``batch`` satisfies all row-local constraints of ``table``.

    Raises:
        ConstraintViolation: ``details`` has type, property, rule, count, the first values, and the ids of their rows.
    """
    for breach in breaches(batch, table):
        raise violation(table, breach.property, breach.demand, breach.values, breach.ids)


def violation(
    table: TableType, name: str, demand: Demand, offending: pa.Array[Any], ids: pa.Array[Any] | None = None
) -> ConstraintViolation:
    """The error that says what of a property is demanded and not met by the ``offending`` values, one per row."""
    values = readable(offending.slice(0, SHOWN))
    details = {"type": table.name, "property": name, "rule": demand.rule, "count": len(offending), "values": values}
    message = f"{table.name}.{name} {demand.text}; rows that break this: {len(offending)}"
    if any(value is not None for value in values):
        message += f"; first values: {', '.join(map(reprlib.repr, values))}"
    if ids is not None:
        details["ids"] = shown = ids.slice(0, SHOWN).to_pylist()
        message += f"; first ids: {', '.join(map(reprlib.repr, shown))}"
    return ConstraintViolation(f"{message}.", details=details)


def readable(values: pa.Array[Any]) -> list[Any]:
    """Plain Python values; times as text, because Python's own types hide or refuse part of them."""
    if pa.types.is_date64(values.type):
        values = values.view(pa.timestamp("ms"))
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp(values.type.unit)).cast(pa.string())
    return values.to_pylist()
