"""Staging: files that a later ``commit_staged`` makes visible. Nothing here moves HEAD.

A stage that is never committed is garbage: it is invisible and cleanup collects it. Each function returns None when there
is nothing to commit, because Lance would make a version of an empty operation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph_engine.errors import InvalidArgument, StorageError
from omnigraph_engine.tables.blobs import to_stored
from omnigraph_engine.tables.exact import lance_errors, one_line
from omnigraph_engine.tables.staged import StagedWrite, StageKind, new_transaction_uuid
from omnigraph_engine.tables.streams import in_larger_batches
from omnigraph_engine.tables.table import Table

MAX_ROWS_PER_FILE = 1024 * 1024


def stage_append(
    table: Table, batches: Iterable[pa.RecordBatch], *, max_rows_per_file: int = MAX_ROWS_PER_FILE
) -> StagedWrite | None:
    """Streams new rows into files. The caller has made sure that none of their ids exists in the table's version."""
    fragments = _write(table, batches, "append", max_rows_per_file)
    if not fragments:
        return None
    return _staged(table, StageKind.APPEND, new_fragments=fragments, rows_inserted=_rows(fragments))


def stage_overwrite(
    table: Table, batches: Iterable[pa.RecordBatch], *, max_rows_per_file: int = MAX_ROWS_PER_FILE
) -> StagedWrite:
    """Streams the rows that are to be all of the table. No rows at all is a write like any other: it empties the table."""
    fragments = _write(table, batches, "overwrite", max_rows_per_file)
    return _staged(
        table,
        StageKind.OVERWRITE,
        new_fragments=fragments,
        rows_inserted=_rows(fragments),
        rows_deleted=table.count(),
    )


def stage_replacing(
    table: Table,
    *,
    replacing: Iterable[pa.RecordBatch],
    row_ids: npt.NDArray[np.uint64],
    adding: Iterable[pa.RecordBatch],
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
) -> tuple[str, ...]:
    """Files with the replacing rows, under the given row ids, and then the added ones, which get ids when committed.

    Lance gives a fragment's leading rows the ids that its metadata names, so replacing rows come first.
    """
    fragments = _write(table, chain(replacing, adding), "append", max_rows_per_file)
    start = 0
    for fragment in fragments:
        named = row_ids[start : start + int(fragment.num_rows)]
        start += int(fragment.num_rows)
        if len(named):
            fragment.row_id_meta = RowIdSequence(pa.array(named)).to_inline_metadata()
    return tuple(json.dumps(part.to_json()) for part in fragments)


def stage_removal(table: Table, fragment_id: int, places: npt.NDArray[np.uint64]) -> str | None:
    """The fragment without the rows at these places, which its version has; None when no row is left."""
    with table.reading("Staging deletions in"):
        left: FragmentMetadata | None = table.dataset.get_fragment(fragment_id).delete_rows(places.tolist())  # type: ignore[union-attr]
    return None if left is None else json.dumps(left.to_json())


def stage_delete(table: Table, predicate: str) -> StagedWrite | None:
    """One deletion vector for each fragment that has matching rows, and none for the others."""
    updated: list[FragmentMetadata] = []
    removed: list[int] = []
    deleted = 0
    for fragment in table.dataset.get_fragments():
        before = fragment.metadata
        try:
            after = fragment.delete(predicate)
        except (OSError, ValueError) as error:
            if "not found" in str(error).lower():  # a file, not a column
                raise StorageError(f"Staging a delete in {table.ref.table_key} failed: {one_line(error)}") from error
            raise InvalidArgument(
                f"The predicate {predicate!r} does not work on {table.ref.table_key}: {one_line(error)}"
            ) from error
        if after is None:  # no row left
            removed.append(fragment.fragment_id)
            deleted += before.num_rows
        elif after.num_deletions != before.num_deletions:
            updated.append(after)
            deleted += after.num_deletions - before.num_deletions
    if not deleted:
        return None
    return _staged(
        table, StageKind.DELETE, updated_fragments=updated, removed_fragment_ids=removed, rows_deleted=deleted
    )


def _write(
    table: Table, batches: Iterable[pa.RecordBatch], mode: str, max_rows_per_file: int
) -> list[FragmentMetadata]:
    with lance_errors(f"Staging rows of {table.ref.table_key}"):
        return list(
            write_fragments(
                _reader(table, batches),
                # By handle, not by address: append mode checks rows against this very version's schema and field ids.
                table.dataset,
                mode=mode,
                max_rows_per_file=max_rows_per_file,
                data_storage_version="2.2",
                enable_stable_row_ids=True,
                allow_external_blob_outside_bases=True,
                storage_options=table.storage.options or None,
            )
        )


def _reader(table: Table, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    schema = table.dataset.schema
    return pa.RecordBatchReader.from_batches(schema, (to_stored(batch, schema) for batch in in_larger_batches(batches)))


def _staged(
    table: Table,
    kind: StageKind,
    *,
    new_fragments: Iterable[FragmentMetadata] = (),
    updated_fragments: Iterable[FragmentMetadata] = (),
    removed_fragment_ids: Iterable[int] = (),
    rows_inserted: int = 0,
    rows_updated: int = 0,
    rows_deleted: int = 0,
) -> StagedWrite:
    return StagedWrite(
        table_key=table.ref.table_key,
        kind=kind,
        base_version=table.ref.version,
        transaction_uuid=new_transaction_uuid(),
        line=table.ref.branch,
        new_fragments=tuple(json.dumps(part.to_json()) for part in new_fragments),
        updated_fragments=tuple(json.dumps(part.to_json()) for part in updated_fragments),
        removed_fragment_ids=tuple(removed_fragment_ids),
        rows_inserted=rows_inserted,
        rows_updated=rows_updated,
        rows_deleted=rows_deleted,
    )


def _rows(fragments: Iterable[FragmentMetadata]) -> int:
    return sum(int(part.num_rows) for part in fragments)
