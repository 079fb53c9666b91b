"""The text of an ``id`` that a ``@key`` defines (FORMAT 6.3): one spelling per key, for every writer, for ever.

The spelling is the one Rust and serde_json give the same values, because ids written by either engine must meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import ConstraintViolation

_SHORT_ESCAPES = {"\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
_CONTROL_ESCAPES = {chr(code): _SHORT_ESCAPES.get(chr(code), f"\\u{code:04x}") for code in range(0x20)}
_SCIENTIFIC = r"^(?P<sign>-?)(?P<whole>\d)\.?(?P<fraction>\d*)e\+?(?P<exponent>-?\d+)$"


def key_ids(columns: Sequence[pa.Array[Any]]) -> pa.StringArray:
    """Equal keys give equal ids and different keys different ids; a key with a null member gives null.

    Args:
        columns: The key members in identity order, in their stored Arrow types.

    Raises:
        ConstraintViolation: A floating point member is NaN or infinite.
    """
    texts = [_scalar_text(column) for column in columns]
    if len(texts) == 1:
        return texts[0]
    return _concat("[", pc.binary_join_element_wise(*map(_json_string, texts), ","), "]")


def _scalar_text(column: pa.Array[Any]) -> pa.StringArray:
    if pa.types.is_floating(column.type):
        return _float_text(column)
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_date64(column.type):
        column = column.cast(pa.int64())
    text: pa.StringArray = pc.cast(column, pa.string())
    return text


def _float_text(column: pa.Array[Any]) -> pa.StringArray:
    """The shortest digits that read back as the same float of the same width, never with an exponent."""
    refused = column.filter(pc.invert(pc.is_finite(column)))
    if len(refused):
        raise ConstraintViolation(
            "A key must be a finite number: NaN and infinities have no id.",
            details={"rule": "key", "count": len(refused), "values": refused.slice(0, 20).to_pylist()},
        )
    # Adding zero turns -0.0 into 0.0 and changes nothing else.
    text = pc.cast(pc.add(column, pa.scalar(0, column.type)), pa.string())
    scientific = pc.fill_null(pc.match_substring(text, "e"), False)
    positional: pa.StringArray = pc.replace_with_mask(text, scientific, _positional(text.filter(scientific)))
    return positional


def _positional(scientific: pa.Array[Any]) -> pa.StringArray:
    """``1.5e-7`` as ``0.00000015``, ``1.5e+20`` as ``150000000000000000000``."""
    sign, whole, fraction, exponent_text = pc.extract_regex(scientific, _SCIENTIFIC).flatten()
    digits = _concat(whole, fraction)
    exponent = exponent_text.cast(pa.int32())
    missing = pc.subtract(exponent, pc.binary_length(fraction))

    below_one = _concat("0.", _zeros(pc.subtract(-1, exponent)), digits)
    integral = _concat(digits, _zeros(missing))
    text = pc.if_else(pc.less(exponent, 0), below_one, integral)

    # Where the point falls inside the digits there are no more exponents than a float has digits.
    inside = pc.and_(pc.greater_equal(exponent, 0), pc.less(missing, 0))
    for places in pc.unique(exponent.filter(inside)).to_pylist():
        pointed = pc.replace_substring_regex(digits, rf"^(\d{{{places + 1}}})", r"\1.")
        text = pc.if_else(pc.and_(inside, pc.equal(exponent, places)), pointed, text)
    return _concat(sign, text)


def _zeros(counts: pa.Array[Any]) -> pa.StringArray:
    zeros: pa.StringArray = pc.binary_repeat("0", pc.max_element_wise(counts, 0))
    return zeros


def _json_string(text: pa.StringArray) -> pa.StringArray:
    """As serde_json writes it: only quote, backslash and control characters are escaped."""
    escaped = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for character, escape in _CONTROL_ESCAPES.items():
            escaped = pc.replace_substring(escaped, character, escape)
    return _concat('"', escaped, '"')


def _concat(*parts: pa.StringArray | str) -> pa.StringArray:
    joined: pa.StringArray = pc.binary_join_element_wise(*parts, "")
    return joined
