"""Reading rows that are staged and not yet committed, for the checks that decide whether they may be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from lance import LanceDataset
from lance.dataset import LanceOperation
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata

from omnigraph_engine.tables.exact import lance_errors
from omnigraph_engine.tables.rehome import rehomed
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table

_BATCH_ROWS = 64 * 1024


def scan_staged(table: Table, staged: StagedWrite, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Streams columns of every row in the new files of ``staged``: those it inserts and those it updates.

    The files are no part of any version of the table, so they are read one by one, from the line they were staged on.
    """
    folder = replace(table.ref, branch=staged.line).path
    for fragment in staged.new_fragments:
        for file in json.loads(fragment)["files"]:
            address = table.storage.uri(f"{folder}/data/{file['path']}")
            with lance_errors(f"Reading staged rows of {table.ref.table_key}"):
                reader = LanceFileReader(address, table.storage.options or None, list(columns))
                yield from reader.read_all(batch_size=_BATCH_ROWS).to_batches()


def staged_rows(table: Table, staged: StagedWrite) -> Iterator[pa.RecordBatch]:
    """Streams every column of the rows in the new files of ``staged``, blobs as plain bytes.

    Blobs live in files of their own that only a dataset can find, so one is made of the fragments: a detached version, which
    is no version of the table and is removed again.
    """
    if staged.line != table.ref.branch:
        staged = rehomed(table, staged)
    fragments = [FragmentMetadata.from_json(text) for text in staged.new_fragments]
    with lance_errors(f"Reading staged rows of {table.ref.table_key}"):
        view = LanceDataset.commit(
            table.dataset,
            LanceOperation.Overwrite(table.dataset.schema, fragments),
            read_version=table.ref.version,
            detached=True,
            storage_options=table.storage.options or None,
        )
        try:
            yield from view.scanner(blob_handling="all_binary", batch_size=_BATCH_ROWS).to_reader()
        finally:
            table.storage.delete(f"{table.ref.path}/_versions/d{view.version}.manifest")
