"""One text per row that is equal exactly when the row's values are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from omnigraph_engine.compute import pc


def unique_text(columns: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """A text for each row; two rows have the same one if and only if all their values are equal. No value may be null."""
    texts = [_text(column) for column in columns]
    if len(texts) == 1:
        return texts[0]
    # Lengths first: no value can pretend to be two.
    parts = [pc.binary_join_element_wise(pc.binary_length(text).cast(pa.string()), text, ":") for text in texts]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*parts, ",")
    return joined


def _text(column: pa.Array[Any]) -> pa.Array[Any]:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))  # both zeros are one value
    if pa.types.is_date64(kind):
        return column.view(pa.int64()).cast(pa.string())
    if pa.types.is_date32(kind):
        return column.view(pa.int32()).cast(pa.string())
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        # Arrow has no text of a list; Python's own values of some elements would hide part of them.
        elements = iter(_text(pc.list_flatten(column)).to_pylist())
        lengths = pc.list_value_length(column).to_pylist()
        return pa.array([repr([next(elements) for _ in range(length)]) for length in lengths], pa.string())
    return column.cast(pa.string())
