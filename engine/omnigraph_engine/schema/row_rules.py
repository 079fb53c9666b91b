"""The rules that one row can break on its own: required, enum, ``@range``, ``@check`` and finite vectors. Pure, over Arrow.

Rules over several rows or tables (keys, ``@unique``, endpoints, ``@card``) need the graph and are checked elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from omnigraph_engine.compute import numpy_type, pc
from omnigraph_engine.schema.model import Check, Range, TableType, Vector

Rule = Literal["required", "enum", "range", "check", "finite", "key", "type", "length"]


@dataclass(frozen=True)
class Demand:
    """What a rule asks of a value: its name for programs, and words that complete "Person.age ..." for people."""

    rule: Rule
    text: str


@dataclass(frozen=True)
class Breach:
    """A demand that some rows do not meet: their offending values and their ids."""

    property: str
    demand: Demand
    values: pa.Array[Any]
    ids: pa.Array[Any]


def breaches(batch: pa.RecordBatch, table: TableType) -> Iterator[Breach]:
    """Every rule of ``table`` that rows of the conformed ``batch`` break, each once with all of these rows."""
    for name, demand, broken in _broken(batch, table):
        if pc.any(broken).as_py():
            yield Breach(name, demand, batch.column(name).filter(broken), batch.column("id").filter(broken))
    for prop in table.properties:
        if isinstance(prop.type.scalar, Vector):
            yield from _gaps(batch, prop.name, prop.type.scalar.size)


def _broken(batch: pa.RecordBatch, table: TableType) -> Iterator[tuple[str, Demand, pa.Array[Any]]]:
    """Each rule about a property, and which rows break it."""
    for field in batch.schema:
        if not field.nullable:
            yield field.name, Demand("required", "must not be null"), batch.column(field.name).is_null()
    for prop in table.properties:
        allowed = prop.type.enum_values
        if allowed is not None:
            column = batch.column(prop.name)
            member = pc.is_in(column, value_set=pa.array(allowed, pa.string()))
            demand = Demand("enum", f"must be one of {', '.join(allowed)}")
            yield prop.name, demand, pc.and_(column.is_valid(), pc.invert(member))
    for constraint in table.constraints:
        if isinstance(constraint, Range):
            outside = _outside(batch.column(constraint.property), constraint)
            yield constraint.property, _range_demand(constraint), outside
        elif isinstance(constraint, Check):
            matched = pc.match_substring_regex(batch.column(constraint.property), constraint.pattern)
            yield constraint.property, Demand("check", f"must match {constraint.pattern!r}"), pc.invert(matched)


def _gaps(batch: pa.RecordBatch, name: str, size: int) -> Iterator[Breach]:
    """Vectors with a null, NaN or infinite element; the values are the first such element of each."""
    vectors = batch.column(name)
    elements = pc.list_flatten(vectors)
    finite = pc.fill_null(pc.is_finite(elements), False).to_numpy(zero_copy_only=False).reshape(-1, size)
    broken = np.flatnonzero(~finite.all(axis=1))
    if len(broken):
        first = elements.take(broken * size + finite[broken].argmin(axis=1))
        ids = batch.column("id").filter(vectors.is_valid()).take(broken)
        yield Breach(name, Demand("finite", "must have finite elements only"), first, ids)


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
