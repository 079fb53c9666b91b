"""Constraints that one row can break on its own: required, enum, ``@range``, ``@check`` and finite vectors.

Constraints over several rows or tables (keys, ``@unique``, endpoints, ``@card``) need the graph and are checked elsewhere.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from omnigraph_engine.compute import numpy_type, pc
from omnigraph_engine.errors import ConstraintViolation
from omnigraph_engine.schema.model import Check, Range, TableType, Vector

SHOWN = 20
"""How many offending values and ids an error carries; its count is always the full one."""

Rule = Literal["required", "enum", "range", "check", "finite", "key", "type", "length"]


@dataclass(frozen=True)
class Demand:
    """What a rule asks of a value: its name for programs, and words that complete "Person.age ..." for people."""

    rule: Rule
    text: str


def check_rows(batch: pa.RecordBatch, table: TableType) -> None:
    """Returns only when every row of the conformed ``batch`` satisfies all row-local constraints of ``table``.

    Raises:
        ConstraintViolation: ``details`` has type, property, rule, count, the first values, and the ids of their rows.
    """
    for field in batch.schema:
        if not field.nullable:
            missing = batch.column(field.name).is_null()
            _refuse(batch, table, field.name, Demand("required", "must not be null"), missing)
    for prop in table.properties:
        column = batch.column(prop.name)
        if prop.type.enum_values is not None:
            member = pc.is_in(column, value_set=pa.array(prop.type.enum_values, pa.string()))
            demand = Demand("enum", f"must be one of {', '.join(prop.type.enum_values)}")
            _refuse(batch, table, prop.name, demand, pc.and_(column.is_valid(), pc.invert(member)))
        elif isinstance(prop.type.scalar, Vector):
            _refuse_gaps(batch, table, prop.name, prop.type.scalar.size)
    for constraint in table.constraints:
        if isinstance(constraint, Range):
            outside = _outside(batch.column(constraint.property), constraint)
            _refuse(batch, table, constraint.property, _range_demand(constraint), outside)
        elif isinstance(constraint, Check):
            unmatched = pc.invert(pc.match_substring_regex(batch.column(constraint.property), constraint.pattern))
            demand = Demand("check", f"must match {constraint.pattern!r}")
            _refuse(batch, table, constraint.property, demand, unmatched)


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


def _refuse(batch: pa.RecordBatch, table: TableType, name: str, demand: Demand, broken: pa.Array[Any]) -> None:
    if pc.any(broken).as_py():
        raise violation(table, name, demand, batch.column(name).filter(broken), batch.column("id").filter(broken))


def _refuse_gaps(batch: pa.RecordBatch, table: TableType, name: str, size: int) -> None:
    """Refuses vectors with a null, NaN or infinite element; the error shows the first such element of each."""
    vectors = batch.column(name)
    elements = pc.list_flatten(vectors)
    finite = pc.fill_null(pc.is_finite(elements), False).to_numpy(zero_copy_only=False).reshape(-1, size)
    broken = np.flatnonzero(~finite.all(axis=1))
    if len(broken):
        first = elements.take(broken * size + finite[broken].argmin(axis=1))
        ids = batch.column("id").filter(vectors.is_valid()).take(broken)
        raise violation(table, name, Demand("finite", "must have finite elements only"), first, ids)


def _outside(column: pa.Array[Any], constraint: Range) -> pa.Array[Any]:
    """Which values are not within the inclusive bounds; NaN never is."""
    low: float = -math.inf if constraint.min is None else constraint.min
    high: float = math.inf if constraint.max is None else constraint.max
    if pa.types.is_integer(column.type):
        # Bounds become whole numbers of the column's own type: comparing with a float would round large integers.
        limits = np.iinfo(numpy_type(column.type))
        if low > limits.max or high < limits.min:
            return column.is_valid()
        low, high = math.ceil(max(low, limits.min)), math.floor(min(high, limits.max))
    else:
        column = column.cast(pa.float64())
    above = pc.greater_equal(column, pa.scalar(low, column.type))
    outside: pa.Array[Any] = pc.invert(pc.and_(above, pc.less_equal(column, pa.scalar(high, column.type))))
    return outside


def _range_demand(constraint: Range) -> Demand:
    low, high = ("" if bound is None else bound for bound in (constraint.min, constraint.max))
    return Demand("range", f"must be within {low}..{high}")
