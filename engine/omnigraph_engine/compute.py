"""``pyarrow.compute``, untyped: its stubs refuse calls that pyarrow documents, such as comparing an array with a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """NumPy's name for a number type. Arrow's own way to it wants pandas, in some releases."""
    return np.dtype("float32" if kind == pa.float32() else "float64" if kind == pa.float64() else str(kind))
