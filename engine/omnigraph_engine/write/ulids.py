"""Many new ids at once."""

from __future__ import annotations

import os
import time

import numpy as np
import pyarrow as pa

_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)  # Crockford's base 32
_TIME_CHARS = 10
_RANDOM_CHARS = 16
_CHARS = _TIME_CHARS + _RANDOM_CHARS


def new_ulids(count: int) -> pa.StringArray:
    """``count`` distinct ULIDs, which sort after those of any call made in an earlier millisecond.

    Each has 80 bits of its own randomness, so distinctness needs no coordination between machines.
    """
    digits = np.empty((count, _CHARS), dtype=np.uint8)
    milliseconds = time.time_ns() // 1_000_000
    digits[:, :_TIME_CHARS] = [milliseconds >> 5 * place & 31 for place in reversed(range(_TIME_CHARS))]
    random = np.frombuffer(os.urandom(count * _RANDOM_CHARS), dtype=np.uint8)
    digits[:, _TIME_CHARS:] = random.reshape(count, _RANDOM_CHARS) & 31
    offsets = np.arange(0, (count + 1) * _CHARS, _CHARS, dtype=np.int32)
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(_ALPHABET[digits].tobytes())
    )
