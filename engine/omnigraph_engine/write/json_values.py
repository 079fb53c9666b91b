"""JSON values of one property as an Arrow array: nothing is coerced, and what does not fit is refused with its line."""

from __future__ import annotations

import base64
import binascii
import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph_engine.compute import numpy_type, pc
from omnigraph_engine.errors import ConstraintViolation, InvalidInput, OmnigraphError, TypeMismatch
from omnigraph_engine.schema.arrow import arrow_type
from omnigraph_engine.schema.model import PropType, Scalar, Vector

_BASE64 = "base64:"

LineMark = int | str  # which line is meant: its number or, where lines have none, the beginning of its text


def line_words(mark: LineMark) -> str:
    return f"Line {mark}" if isinstance(mark, int) else f"The line '{mark}'"


def line_details(mark: LineMark) -> dict[str, LineMark]:
    return {"line" if isinstance(mark, int) else "text": mark}


@dataclass(frozen=True)
class JsonColumn:
    """One value per row, None where the row has none, and where to find each in the input."""

    type_name: str
    name: str
    prop_type: PropType
    values: Sequence[Any]
    line_of: Callable[[int], LineMark]  # for a position in values

    def fault(self, error: type[OmnigraphError], position: int, reason: str) -> OmnigraphError:
        line = self.line_of(position)
        return error(
            f"{line_words(line)}: {self.type_name}.{self.name} {reason}.",
            details={**line_details(line), "type": self.type_name, "property": self.name},
        )

    def refuse_first(self, error: type[OmnigraphError], demand: str, is_wrong: Callable[[Any], bool]) -> None:
        """Raises for the first value that is there and wrong."""
        for position, value in enumerate(self.values):
            if value is not None and is_wrong(value):
                raise self.fault(error, position, f"{demand}, not {reprlib.repr(value)}")


def json_array(column: JsonColumn) -> pa.Array[Any]:
    """The values in the property's logical Arrow type.

    Raises:
        TypeMismatch: A value is of another JSON type than the property takes.
        InvalidInput: A value is of the right JSON type and cannot be stored: out of range, not finite, not a date.
        ConstraintViolation: A required value is missing, or a vector has the wrong length.
    """
    prop_type = column.prop_type
    if not prop_type.nullable and None in column.values:
        raise column.fault(ConstraintViolation, column.values.index(None), "is required and has no value")
    if isinstance(prop_type.scalar, Vector):
        return _vectors(column, prop_type.scalar.size)
    if prop_type.list:
        _require(column, "a list", list)
        return _lists(column, _READERS[prop_type.scalar])
    return _READERS[prop_type.scalar](column)


def _require(column: JsonColumn, demand: str, *kinds: type) -> None:
    # By exact type: to Python, true is an integer too.
    if not set(map(type, column.values)) <= {*kinds, type(None)}:
        column.refuse_first(TypeMismatch, f"must be {demand}", lambda value: type(value) not in kinds)


def _strings(column: JsonColumn) -> pa.Array[Any]:
    _require(column, "a string", str)
    return pa.array(column.values, pa.string())


def _booleans(column: JsonColumn) -> pa.Array[Any]:
    _require(column, "true or false", bool)
    return pa.array(column.values, pa.bool_())


def _integers(kind: pa.DataType) -> Callable[[JsonColumn], pa.Array[Any]]:
    limits = np.iinfo(numpy_type(kind))
    low, high = int(limits.min), int(limits.max)

    def read(column: JsonColumn) -> pa.Array[Any]:
        _require(column, "a whole number", int)
        try:
            return pa.array(column.values, kind)
        except (OverflowError, pa.ArrowInvalid):
            column.refuse_first(InvalidInput, f"must be within {low}..{high}", lambda value: not low <= value <= high)
            raise

    return read


def _floats(kind: pa.DataType) -> Callable[[JsonColumn], pa.Array[Any]]:
    def read(column: JsonColumn) -> pa.Array[Any]:
        _require(column, "a number", int, float)
        numbers = np.fromiter(map(_as_float, column.values), np.float64, len(column.values))
        with np.errstate(over="ignore"):
            stored = numbers.astype(numpy_type(kind))
        infinite = np.flatnonzero(np.isinf(stored))
        if len(infinite):
            raise column.fault(InvalidInput, int(infinite[0]), f"must be a finite {kind}, and this number is too large")
        # JSON has no NaN, so what is NaN here is a missing value.
        return pa.array(stored, kind, mask=np.isnan(stored))

    return read


def _as_float(value: float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf


def _times(
    parse: Callable[[pa.Array[Any]], pa.Array[Any]], number: pa.DataType, demand: str
) -> Callable[[JsonColumn], pa.Array[Any]]:
    """Reads times that are texts, which ``parse`` turns into Arrow, or numbers in the stored unit."""
    read_numbers = _integers(number)

    def read(column: JsonColumn) -> pa.Array[Any]:
        _require(column, demand, str, int)
        texts = pa.array([value if type(value) is str else None for value in column.values], pa.string())
        numbers = [value if type(value) is int else None for value in column.values]
        try:
            parsed = parse(texts)
        except pa.ArrowInvalid:
            column.refuse_first(InvalidInput, f"must be {demand}", lambda value: not _parses(parse, value))
            raise
        times: pa.Array[Any] = pc.coalesce(parsed, read_numbers(replace(column, values=numbers)).cast(parsed.type))
        return times

    return read


def _parses(parse: Callable[[pa.Array[Any]], pa.Array[Any]], value: str | int) -> bool:
    try:
        parse(pa.array([value if type(value) is str else None], pa.string()))
    except pa.ArrowInvalid:
        return False
    return True


def _parse_dates(texts: pa.Array[Any]) -> pa.Array[Any]:
    return texts.cast(pa.date32())


def _parse_datetimes(texts: pa.Array[Any]) -> pa.Array[Any]:
    """ISO texts as milliseconds; UTC where no zone is given, midnight where no time is."""
    text = pc.replace_substring_regex(texts, r"^(\d{4}-\d\d-\d\d)$", r"\1T00:00:00")
    zoned = pc.match_substring_regex(text, r"\d\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$")
    text = pc.if_else(zoned, text, pc.binary_join_element_wise(text, "Z", ""))
    # Arrow refuses digits beyond the unit, also zeros; only other digits would be lost.
    text = pc.replace_substring_regex(text, r"(\.\d{3})0+(Z|[+-])", r"\1\2")
    times: pa.Array[Any] = text.cast(pa.timestamp("ms", "UTC")).view(pa.date64())
    return times


def _blobs(column: JsonColumn) -> pa.Array[Any]:
    _require(column, f"a string that starts with '{_BASE64}'", str)
    column.refuse_first(
        InvalidInput,
        f"must be text that starts with '{_BASE64}' (external URIs are not supported yet)",
        lambda value: not value.startswith(_BASE64),
    )
    return pa.array([_decode(column, position) for position in range(len(column.values))], pa.large_binary())


def _decode(column: JsonColumn, position: int) -> bytes | None:
    text = column.values[position]
    try:
        return None if text is None else base64.b64decode(text[len(_BASE64) :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise column.fault(InvalidInput, position, f"is not valid base64 ({error})") from error


def _vectors(column: JsonColumn, size: int) -> pa.Array[Any]:
    _require(column, f"a list of {size} numbers", list)
    for position, value in enumerate(column.values):
        if value is not None and len(value) != size:
            raise column.fault(ConstraintViolation, position, f"must have {size} elements, not {len(value)}")
        if value is not None and None in value:
            raise column.fault(TypeMismatch, position, "must have numbers only, not null")
    return _lists(column, _READERS[Scalar.F32]).cast(arrow_type(column.prop_type))


def _lists(column: JsonColumn, read_elements: Callable[[JsonColumn], pa.Array[Any]]) -> pa.Array[Any]:
    offsets = np.cumsum([0, *(len(value or ()) for value in column.values)])

    def line_of_element(position: int) -> LineMark:
        return column.line_of(int(np.searchsorted(offsets, position, side="right")) - 1)

    flat = list(chain.from_iterable(value for value in column.values if value is not None))
    elements = read_elements(replace(column, values=flat, line_of=line_of_element))
    missing = pa.array([value is None for value in column.values], pa.bool_())
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), elements, type=pa.list_(pa.field("item", elements.type)), mask=missing
    )


_READERS: dict[Scalar, Callable[[JsonColumn], pa.Array[Any]]] = {
    Scalar.STRING: _strings,
    Scalar.BOOL: _booleans,
    Scalar.I32: _integers(pa.int32()),
    Scalar.I64: _integers(pa.int64()),
    Scalar.U32: _integers(pa.uint32()),
    Scalar.U64: _integers(pa.uint64()),
    Scalar.F32: _floats(pa.float32()),
    Scalar.F64: _floats(pa.float64()),
    Scalar.DATE: _times(_parse_dates, pa.int32(), "an ISO date or a number of days"),
    Scalar.DATETIME: _times(_parse_datetimes, pa.int64(), "an ISO date and time, to the millisecond, or milliseconds"),
    Scalar.BLOB: _blobs,
}
