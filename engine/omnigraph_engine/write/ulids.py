"""Many new ids at once."""

from __future__ import annotations

import os
import time

import numpy as np
import pyarrow as pa

_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)  # Crockford's base 32
_PAIRS = np.stack([np.repeat(_ALPHABET, 32), np.tile(_ALPHABET, 32)], axis=1).view(np.uint16).ravel()  # of any ten bits
_TIME_CHARS = 10
_RANDOM_PAIRS = 8
_CHARS = _TIME_CHARS + 2 * _RANDOM_PAIRS


def new_ulids(count: int) -> pa.StringArray:
    """``count`` distinct ULIDs, which sort after those of any call made in an earlier millisecond.

    Each has 80 bits of its own randomness, so distinctness needs no coordination between machines.
    """
    milliseconds = time.time_ns() // 1_000_000
    chars = np.empty((count, _CHARS), dtype=np.uint8)
    chars[:, :_TIME_CHARS] = _ALPHABET[[milliseconds >> 5 * place & 31 for place in reversed(range(_TIME_CHARS))]]
    random = np.frombuffer(os.urandom(count * 2 * _RANDOM_PAIRS), dtype=np.uint16).reshape(count, _RANDOM_PAIRS)
    chars[:, _TIME_CHARS:] = _PAIRS[random & 1023].view(np.uint8)
    offsets = np.arange(0, (count + 1) * _CHARS, _CHARS, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets.data), pa.py_buffer(chars.data))
