"""Whether values are the same, column by column, for every type that a table can hold. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.compute import pc

Mask = npt.NDArray[np.bool_]


def rows_differ(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> Mask:
    """Per row whether any of the columns differs between two tables of equal length."""
    differ = np.zeros(left.num_rows, np.bool_)
    for name in columns:
        differ |= values_differ(left[name], right[name])
    return differ


def values_differ(left: pa.ChunkedArray[Any], right: pa.ChunkedArray[Any]) -> Mask:
    """Per row whether two values differ. Null is null, NaN is NaN, and both zeros are one."""
    return _differ(_whole(left), _whole(right))


def _differ(left: pa.Array[Any], right: pa.Array[Any]) -> Mask:
    nulls: Mask = left.is_null().to_numpy(zero_copy_only=False)
    other_nulls: Mask = right.is_null().to_numpy(zero_copy_only=False)
    differ: Mask = nulls != other_nulls
    present = np.flatnonzero(~nulls & ~other_nulls)
    if len(present):
        left, right = left.take(present), right.take(present)
        kind = left.type
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        differ[present] = _lists_differ(left, right) if lists else _scalars_differ(left, right)
    return differ


def _scalars_differ(left: pa.Array[Any], right: pa.Array[Any]) -> Mask:
    differ: Mask = pc.not_equal(left, right).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(left.type):
        both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right)).to_numpy(zero_copy_only=False)
        differ = differ & ~both_nan
    return differ


def _lists_differ(left: pa.Array[Any], right: pa.Array[Any]) -> Mask:
    lengths = pc.list_value_length(left).to_numpy(zero_copy_only=False)
    differ: Mask = lengths != pc.list_value_length(right).to_numpy(zero_copy_only=False)
    same = np.flatnonzero(~differ)
    owners = np.repeat(same, lengths[same])
    elements = _differ(pc.list_flatten(left.take(same)), pc.list_flatten(right.take(same)))
    differ[owners[elements]] = True
    return differ


def _whole(values: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    whole = values.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
