"""Which Arrow types a property accepts: those from which every value arrives unchanged.

Widths, encodings and units may differ; meaning may not. Text is never parsed and a number never becomes a time.
The one rounding allowed is of 64-bit floats into a declared F32.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph_engine.compute import numpy_type, pc
from omnigraph_engine.errors import TypeMismatch
from omnigraph_engine.schema.model import TableType
from omnigraph_engine.schema.row_rules import Demand
from omnigraph_engine.write.checks import violation

_EXACT_INTEGERS: dict[pa.DataType, int] = {pa.float32(): 2**24, pa.float64(): 2**53}


@dataclass(frozen=True)
class Column:
    """A column's place in the graph, to name in errors."""

    table: TableType
    name: str
    declared: str  # the property's type as the schema spells it


def cast_values(values: pa.Array[Any], target: pa.DataType, column: Column) -> pa.Array[Any]:
    """``values`` in exactly the type ``target``, each value unchanged.

    Raises:
        TypeMismatch: The type of ``values`` is not one that the property accepts.
        ConstraintViolation: The type is accepted, but some values do not fit; ``details`` has the first of them.
    """
    if values.type.equals(target, check_metadata=True):
        return values
    if pa.types.is_dictionary(values.type):
        return cast_values(values.cast(values.type.value_type), target, column)
    if pa.types.is_null(values.type):
        return values.cast(target)
    for is_kind, cast in _CASTS:
        if is_kind(target):
            return cast(values, target, column)
    raise _mismatch(values, target, column)


def _to_text(values: pa.Array[Any], target: pa.DataType, column: Column) -> pa.Array[Any]:
    if not (pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type)):
        raise _mismatch(values, target, column)
    return values.cast(target)


def _to_bytes(values: pa.Array[Any], target: pa.DataType, column: Column) -> pa.Array[Any]:
    found = values.type
    if not (pa.types.is_binary(found) or pa.types.is_binary_view(found) or pa.types.is_fixed_size_binary(found)):
        raise _mismatch(values, target, column)
    return values.cast(target)


def _to_integer(values: pa.Array[Any], target: pa.DataType, column: Column) -> pa.Array[Any]:
    limits = np.iinfo(numpy_type(target))
    if pa.types.is_integer(values.type):
        _refuse(values, _beyond(values, int(limits.min), int(limits.max)), column)
    elif pa.types.is_decimal(values.type):
        bounds = [pa.scalar(decimal.Decimal(int(limit)), pa.decimal256(20, 0)) for limit in (limits.min, limits.max)]
        beyond = pc.or_(pc.less(values, bounds[0]), pc.greater(values, bounds[1]))
        _refuse(values, pc.or_(beyond, pc.not_equal(pc.floor(values), values)), column)
    else:
        raise _mismatch(values, target, column)
    return values.cast(target)


def _to_float(values: pa.Array[Any], target: pa.DataType, column: Column) -> pa.Array[Any]:
    if pa.types.is_integer(values.type):
        limit = _EXACT_INTEGERS[target]
        _refuse(values, _beyond(values, -limit, limit), column)
    elif not pa.types.is_floating(values.type):
        raise _mismatch(values, target, column)
    stored = values.cast(target)
    if pa.types.is_floating(values.type):
        _refuse(values, pc.and_(pc.is_finite(values), pc.is_inf(stored)), column)
    return stored


def _to_date(values: pa.Array[Any], target: pa.DataType, column: Column) -> pa.Array[Any]:
    if not pa.types.is_date64(values.type):
        raise _mismatch(values, target, column)
    days = values.cast(target, safe=False)
    _refuse(values, pc.not_equal(days.cast(pa.date64()).cast(pa.int64()), values.cast(pa.int64())), column)
    return days


def _to_datetime(values: pa.Array[Any], target: pa.DataType, column: Column) -> pa.Array[Any]:
    """Milliseconds since the epoch: a time with a zone is an instant, one without is taken as UTC."""
    if pa.types.is_date32(values.type):
        return values.cast(target)
    if not pa.types.is_timestamp(values.type):
        raise _mismatch(values, target, column)
    milliseconds = values.cast(pa.timestamp("ms", values.type.tz), safe=False)
    # Truncated fractions and seconds too large to be milliseconds both fail to come back.
    _refuse(values, pc.not_equal(milliseconds.cast(values.type, safe=False), values), column)
    return milliseconds.view(target)


def _to_vector(values: pa.Array[Any], target: pa.FixedSizeListType[Any, Any], column: Column) -> pa.Array[Any]:
    size = target.list_size
    if pa.types.is_fixed_size_list(values.type) and values.type.list_size != size:
        raise _mismatch(values, target, column)
    lists = _to_list(values, pa.list_(target.value_field), column)
    lengths = pc.list_value_length(lists)
    wrong = pc.fill_null(pc.not_equal(lengths, size), False)
    if pc.any(wrong).as_py():
        raise violation(
            column.table, column.name, Demand("length", f"must have {size} elements"), lengths.filter(wrong)
        )
    return lists.cast(target)


def _to_list(values: pa.Array[Any], target: pa.ListType[Any], column: Column) -> pa.Array[Any]:
    if not (
        pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or pa.types.is_fixed_size_list(values.type)
    ):
        raise _mismatch(values, target, column)
    # Flattening skips what lies under nulls and outside the slice, so that only real elements are looked at.
    elements = cast_values(pc.list_flatten(values), target.value_type, column)
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, elements, type=target, mask=values.is_null())


def _beyond(values: pa.Array[Any], low: int, high: int) -> pa.Array[Any]:
    """Which integers are not within the bounds, compared in their own type."""
    own = np.iinfo(numpy_type(values.type))
    below = pc.less(values, pa.scalar(max(low, int(own.min)), values.type))
    beyond: pa.Array[Any] = pc.or_(below, pc.greater(values, pa.scalar(min(high, int(own.max)), values.type)))
    return beyond


def _refuse(values: pa.Array[Any], unfit: pa.Array[Any], column: Column) -> None:
    if pc.any(unfit).as_py():
        raise violation(column.table, column.name, Demand("type", f"must fit {column.declared}"), values.filter(unfit))


def _mismatch(values: pa.Array[Any], target: pa.DataType, column: Column) -> TypeMismatch:
    return TypeMismatch(
        f"{column.table.name}.{column.name} is {column.declared}: it takes {target}, not {values.type}.",
        details={
            "type": column.table.name,
            "property": column.name,
            "found": str(values.type),
            "expected": str(target),
        },
        hint=_cast_hint(values.type, target),
    )


def _cast_hint(found: pa.DataType, target: pa.DataType) -> str | None:
    if pa.types.is_nested(target):
        return None
    try:
        pa.array([], found).cast(target)
    except pa.ArrowNotImplementedError:
        return None
    return f'If that is what you mean, cast the column yourself: column.cast("{target}").'


_Cast: TypeAlias = "Callable[[pa.Array[Any], Any, Column], pa.Array[Any]]"
_CASTS: tuple[tuple[Callable[[pa.DataType], bool], _Cast], ...] = (
    (pa.types.is_string, _to_text),
    (pa.types.is_integer, _to_integer),
    (pa.types.is_floating, _to_float),
    (pa.types.is_date32, _to_date),
    (pa.types.is_date64, _to_datetime),
    (pa.types.is_fixed_size_list, _to_vector),
    (pa.types.is_list, _to_list),
    (pa.types.is_large_binary, _to_bytes),
)
