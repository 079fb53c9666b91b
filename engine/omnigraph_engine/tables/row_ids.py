"""Replacing few rows of a large table: the rows come first, and get the row ids of those they replace in a second step.

A row that takes the place of another keeps its row id and the version that created it. Lance is told of the id in the metadata
of the new fragment, and finds the version when it commits, by going through all row ids of all fragments that may hold one of
them: some 14 ms for each million rows of the table, even for a single row that is replaced. So where a write replaces few
rows of many, its rows come in under new row ids, at no such price, and a second commit, of metadata alone, says which rows they
are and when they were created. Readers see the second version only, and cannot tell it from one that was made in a single step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph_engine.errors import StorageError
from omnigraph_engine.tables.staged import StagedWrite, StageKind, new_transaction_uuid
from omnigraph_engine.tables.table import Table

FEW_ROWS = 256 * 1024  # replaced rows whose creation is looked up here
MANY_ROWS = 4_000_000  # rows that Lance goes through in about the time that a second commit takes on an object store

_CREATED_AT = "_row_created_at_version"
_AT_A_TIME = 64 * 1024

_Numbers = npt.NDArray[np.uint64]


def is_named_later(table: Table, staged: StagedWrite) -> bool:
    """Whether rows that were staged on this version of a table are to get their row ids in a step of their own."""
    return 0 < staged.rows_updated <= FEW_ROWS and sum(part.rows for part in table.fragments()) >= MANY_ROWS


def under_new_row_ids(staged: StagedWrite) -> StagedWrite:
    """The same write, as the first step: all of its rows get new row ids."""
    unnamed = tuple(json.dumps({**json.loads(text), "row_id_meta": None}) for text in staged.new_fragments)
    return replace(staged, new_fragments=unnamed)


def stage_row_ids(table: Table, *, before: Table, staged: StagedWrite) -> StagedWrite:
    """The second step, on the version that the first one made: replacing rows have the row ids and the creation version of
    the rows they replace, and were last updated by the first step. No file is written.

    Args:
        table: The version that ``under_new_row_ids(staged)`` made.
        before: The version that it was made on.
        staged: The write, with the row ids that its fragments' leading rows are to have.
    """
    standing = {_files(part.metadata.to_json()): part.metadata for part in table.dataset.get_fragments()}
    rewrites = []
    for named in map(FragmentMetadata.from_json, staged.new_fragments):
        if named.row_id_meta is None:  # all of its rows are new
            continue
        old = standing[_files(named.to_json())]
        row_ids, new = _of(named), _of(old)
        created_here = np.full(len(new) - len(row_ids), table.ref.version, np.uint64)
        created = np.concatenate([*_created_at(before, row_ids), created_here])
        row_ids = np.concatenate([row_ids, new[len(row_ids) :]])
        document = {
            **old.to_json(),
            "id": 0,  # Lance gives it a number of its own
            "row_id_meta": json.loads(RowIdSequence(pa.array(row_ids)).to_inline_metadata().json()),
            "created_at_version_meta": {"inline": list(version_runs(created))},
        }
        rewrites.append(json.dumps({"old": [json.dumps(old.to_json())], "new": [json.dumps(document)]}))
    return StagedWrite(
        table_key=table.ref.table_key,
        kind=StageKind.REWRITE,
        base_version=table.ref.version,
        transaction_uuid=new_transaction_uuid(),
        line=table.ref.branch,
        rewrites=tuple(rewrites),
    )


def version_runs(versions: _Numbers) -> bytes:
    """A version for each row of a fragment, in order, as Lance keeps it in the fragment's metadata: by runs of equal ones.

    The message is ``RowDatasetVersionSequence`` of Lance's ``rowids.proto``.
    """
    starts = np.flatnonzero(np.diff(versions, prepend=versions[:1] + np.uint64(1)))
    ends = np.append(starts[1:], len(versions))
    return b"".join(
        _message(1, _message(1, _message(1, _number(1, start) + _number(2, end))) + _number(2, version))
        for start, end, version in zip(starts.tolist(), ends.tolist(), versions[starts].tolist(), strict=True)
    )


def _message(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return b"" if value == 0 else bytes([field << 3]) + _varint(value)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _files(fragment: dict[str, Any]) -> tuple[str, ...]:
    return tuple(file["path"] for file in fragment["files"])


def _of(fragment: FragmentMetadata) -> _Numbers:
    assert fragment.row_id_meta is not None  # noqa: S101 - rows of our tables have stable row ids
    return RowIdSequence.from_inline_metadata(fragment.row_id_meta).to_pyarrow().to_numpy()


def _created_at(table: Table, row_ids: _Numbers) -> Iterator[_Numbers]:
    """The version that created each of these rows, from metadata alone."""
    columns = ["_rowid", "_rowaddr", _CREATED_AT]  # without the address Lance fails for rows that are not in its order
    for start in range(0, len(row_ids), _AT_A_TIME):
        wanted = row_ids[start : start + _AT_A_TIME]
        with table.reading("Looking up rows of"):
            found: Any = table.dataset._take_rows(wanted.tolist(), columns=columns)  # noqa: SLF001
        if not np.array_equal(found["_rowid"].to_numpy(), wanted):
            raise StorageError(f"{table.ref.table_key} version {table.ref.version} lacks rows that are to be replaced.")
        yield found[_CREATED_AT].to_numpy()
