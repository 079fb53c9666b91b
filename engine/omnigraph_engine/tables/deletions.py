"""Deletion files: which rows of a fragment are deleted, and where that is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from omnigraph_engine.tables.table import Table


def deleted_places(table: Table, fragment_id: int) -> npt.NDArray[np.uint32]:
    """The places of a fragment's deleted rows, in order, from its deletion file.

    A scan tells as much, but it goes through every row that is left.
    """
    fragment: Any = table.dataset.get_fragment(fragment_id)
    name = fragment.deletion_file()
    if name is None:
        return np.empty(0, np.uint32)
    base = fragment.metadata.to_json()["deletion_file"]["base_id"]
    data = table.storage.get(f"{table.folder(base)}/{name}")
    if name.endswith(".bin"):  # where Lance has more than some thousands
        return np.frombuffer(BitMap.deserialize(data).to_array(), np.uint32)
    with pa.ipc.open_file(pa.py_buffer(data)) as file:
        return np.sort(file.read_all().column(0).to_numpy()).astype(np.uint32, copy=False)
