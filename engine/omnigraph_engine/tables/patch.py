"""Staging a patch: rows that take the place of others, rows that are new and rows that go, wherever they are known to be."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import StorageError
from omnigraph_engine.tables.stage import stage_removal, stage_replacing
from omnigraph_engine.tables.staged import StagedWrite, StageKind, new_transaction_uuid
from omnigraph_engine.tables.table import Table

_log = logging.getLogger(__name__)

Addresses = npt.NDArray[np.uint64]
NOWHERE = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Patch:
    """Rows of all columns of a table, and the stored rows that they replace; and addresses of rows that go."""

    replacing: pa.Table
    row_ids: Addresses  # of the stored rows that are replaced, in the same order
    replaced: Addresses
    adding: pa.Table
    removed: Addresses


def stage_patches(table: Table, patches: Iterable[Patch]) -> StagedWrite | None:
    """One write of all patches, which touch different rows; None when they change nothing."""
    fragments: list[str] = []
    gone: list[Addresses] = []
    inserted = updated = deleted = 0
    for patch in patches:
        if patch.replacing.num_rows or patch.adding.num_rows:
            fragments += stage_replacing(
                table,
                replacing=patch.replacing.to_batches(),
                row_ids=patch.row_ids,
                adding=patch.adding.to_batches(),
            )
        gone += [patch.replaced, patch.removed]
        inserted += patch.adding.num_rows
        updated += patch.replacing.num_rows
        deleted += len(patch.removed)
    if not inserted + updated + deleted:
        return None
    addresses = np.sort(np.concatenate(gone))
    left: list[str] = []
    emptied: list[int] = []
    numbers, starts, counts = np.unique(addresses >> np.uint64(32), return_index=True, return_counts=True)
    for number, start, count in zip(numbers.tolist(), starts, counts, strict=True):
        rest = stage_removal(table, number, addresses[start : start + count] & np.uint64(0xFFFFFFFF))
        if rest is None:
            emptied.append(number)
        else:
            left.append(rest)
    return StagedWrite(
        table_key=table.ref.table_key,
        kind=StageKind.UPSERT,
        base_version=table.ref.version,
        transaction_uuid=new_transaction_uuid(),
        line=table.ref.branch,
        new_fragments=tuple(fragments),
        updated_fragments=tuple(left),
        removed_fragment_ids=tuple(emptied),
        rows_inserted=inserted,
        rows_updated=updated,
        rows_deleted=deleted,
    )


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


def locate(table: Table, ids: pa.Array[Any], guessed: Addresses) -> tuple[Addresses, Addresses]:
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
