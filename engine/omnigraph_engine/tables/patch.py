"""Staging a patch: rows that take the place of others, rows that are new and rows that go, wherever they are known to be."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import StorageError
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table
from omnigraph_engine.tables.upsert import NOWHERE, Addresses, UpsertPart, WaitingRows, stage_found

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patch:
    """Rows of all columns of a table, new or in the place of stored ones, and which stored rows go."""

    rows: pa.Table
    row_ids: Addresses  # for each row the row id of the stored row that it replaces, or ``NOWHERE``
    gone: Addresses  # of the stored rows that are replaced, and of those that are removed


def stage_patches(table: Table, patches: Iterable[Patch]) -> tuple[UpsertPart, Addresses] | None:
    """One worker's patches, which touch different rows, in files that nobody can see; and the addresses of the rows that go.

    Memory is bounded but for eight bytes for each row, and eight for each that goes. None when the patches change nothing.
    """
    row_ids, gone = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]

    def rows() -> Iterator[pa.RecordBatch]:
        for patch in patches:
            row_ids.append(patch.row_ids)
            gone.append(patch.gone)
            yield from patch.rows.to_batches()

    with ExitStack() as files:
        waiting = WaitingRows(files, rows())
        part, addresses = stage_found(table, waiting, np.concatenate(row_ids), np.concatenate(gone))
    if not part.rows_inserted + part.rows_updated + part.rows_deleted:
        return None
    return part, addresses


def discard(table: Table, staged: StagedWrite) -> None:
    """Removes the files of a write that will not be committed. What stays is garbage like any other."""
    folder = replace(table.ref, branch=staged.line).path
    paths = []
    for fragment in map(json.loads, (*staged.new_fragments, *staged.updated_fragments)):
        deletions = fragment["deletion_file"]
        if deletions is not None and deletions["base_id"] is None:
            suffix = "arrow" if deletions["file_type"] == "array" else "bin"
            name = f"{fragment['id']}-{deletions['read_version']}-{deletions['id']}.{suffix}"
            paths.append(f"{folder}/_deletions/{name}")
    for fragment in map(json.loads, staged.new_fragments):
        paths += [f"{folder}/data/{file['path']}" for file in fragment["files"]]
    try:
        for path in paths:
            table.storage.delete(path)
    except StorageError as error:
        _log.warning("staged files of %s could not be deleted: %s", table.ref.table_key, error.message)


def locate(table: Table, rows: pa.Table, standing: Mapping[int, int]) -> tuple[Addresses, Addresses]:
    """Row id and address of rows (``id`` and ``ROW``) of an earlier version, all of which this one still has.

    Args:
        table: Where the rows are looked for.
        rows: As the earlier version has them.
        standing: The fragments that both have: the number in this version, by that in the earlier one. What is in them is
            found without a look.
    """
    row_ids = rows["_rowid"].to_numpy().copy()
    was = rows["_rowaddr"].to_numpy()
    addresses = np.full(len(was), NOWHERE, np.uint64)
    numbers = was >> np.uint64(32)
    for number in np.unique(numbers).tolist():
        if number in standing:
            there = numbers == number
            addresses[there] = (np.uint64(standing[number]) << np.uint64(32)) + (was[there] & np.uint64(0xFFFFFFFF))
    moved = np.flatnonzero(addresses == NOWHERE)
    if len(moved):
        row_ids[moved], addresses[moved] = _found(table, rows["id"].take(moved).combine_chunks(), row_ids[moved])
    return row_ids, addresses


def _found(table: Table, ids: pa.Array[Any], guessed: Addresses) -> tuple[Addresses, Addresses]:
    """Row id and address of the stored row of each id, all of which exist.

    A guess is the row id that the row has on a related line, and nearly always right. Where it is not, the table's ids are
    streamed.
    """
    row_ids, addresses = guessed.copy(), np.full(len(ids), NOWHERE, np.uint64)
    with table.reading("Looking up rows of"):
        # Row ids that are not there are left out, and those that others have by now come with another id.
        found: Any = table.dataset._take_rows(guessed.tolist(), columns=["id", "_rowid", "_rowaddr"])  # noqa: SLF001
    _fill(ids, found, row_ids, addresses)
    if (addresses == NOWHERE).any():
        for batch in table.scan(["id", "_rowid", "_rowaddr"]):
            _fill(ids, pa.Table.from_batches([batch]), row_ids, addresses)
    return row_ids, addresses


def _fill(ids: pa.Array[Any], stored: pa.Table, row_ids: Addresses, addresses: Addresses) -> None:
    place = pc.index_in(stored["id"].combine_chunks(), value_set=ids)
    hits = stored.filter(place.is_valid())
    places = place.drop_null().to_numpy(zero_copy_only=False)
    row_ids[places] = hits["_rowid"].to_numpy()
    addresses[places] = hits["_rowaddr"].to_numpy()
