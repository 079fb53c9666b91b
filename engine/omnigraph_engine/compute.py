"""``pyarrow.compute``, untyped: its stubs refuse calls that pyarrow documents, such as comparing an array with a number."""

from __future__ import annotations

from typing import Any

import pyarrow.compute

pc: Any = pyarrow.compute
