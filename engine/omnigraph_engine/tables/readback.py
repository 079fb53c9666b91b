"""Looking at what is staged and not yet committed, for the checks that decide whether it may be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from lance import LanceDataset
from lance.dataset import LanceOperation
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata

from omnigraph_engine.errors import ObjectNotFound
from omnigraph_engine.tables.at_once import at_once
from omnigraph_engine.tables.exact import lance_errors
from omnigraph_engine.tables.rehome import rehomed
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import BATCH_BYTES, IO_BUFFER_BYTES, Table

_BATCH_ROWS = 64 * 1024


def check_present(table: Table, staged: StagedWrite) -> None:
    """Returns only when every file of the staged rows is there. Lance would commit one that is not, and no read would work.

    Raises:
        ObjectNotFound: one is gone, as when a cleanup took what had been staged for longer than its grace.
    """
    folder = replace(table.ref, branch=staged.line).path
    files = [file for fragment in staged.new_fragments for file in json.loads(fragment)["files"]]
    paths = [f"{folder}/data/{file['path']}" for file in files if file["base_id"] is None]
    for path, size in zip(paths, at_once(partial(_size, table), paths), strict=True):
        if size is None:
            raise ObjectNotFound(
                f"Staged rows of {table.ref.table_key} are not in storage any more ('{table.storage.uri(path)}').",
                details={"table_key": table.ref.table_key, "path": path},
                hint="A cleanup takes what is staged for longer than its grace. Nothing was committed; load again.",
            )


def _size(table: Table, path: str) -> int | None:
    try:
        return table.storage.size(path)
    except ObjectNotFound:
        return None


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
            scanner = view.scanner(
                blob_handling="all_binary", batch_size_bytes=BATCH_BYTES, io_buffer_size=IO_BUFFER_BYTES
            )
            yield from scanner.to_reader()
        finally:
            table.storage.delete(f"{table.ref.path}/_versions/d{view.version}.manifest")
