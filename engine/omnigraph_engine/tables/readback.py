"""Reading rows that are staged and not yet committed, for the checks that decide whether they may be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph_engine.tables.exact import lance_errors
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table

_BATCH_ROWS = 64 * 1024


def scan_staged(table: Table, staged: StagedWrite, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Streams columns of every row in the new files of ``staged``: those it inserts and those it updates.

    ``table`` is the version that the write was staged on; the files are no part of it, so they are read one by one.
    """
    for fragment in staged.new_fragments:
        for file in json.loads(fragment)["files"]:
            address = table.storage.uri(f"{table.ref.path}/data/{file['path']}")
            with lance_errors(f"Reading staged rows of {table.ref.table_key}"):
                reader = LanceFileReader(address, table.storage.options or None, list(columns))
                yield from reader.read_all(batch_size=_BATCH_ROWS).to_batches()
