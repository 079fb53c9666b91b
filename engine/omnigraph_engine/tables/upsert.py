"""Staging an upsert: rows whose id exists take the place of that row, the others are new.

Any number of workers stage parts, each for rows of its own: it looks up which of their ids exist, and writes files in which
the replacing rows come first, under the row ids of those they replace. Which stored rows a part replaces is told by their
addresses. Then one place seals the parts: it writes the deletions of each touched fragment, once, whoever touched it.

Memory is bounded: rows wait in a file while their ids are looked up, ids meet in buckets on disk, and addresses are gathered
for a few fragments at a time.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import StorageError
from omnigraph_engine.tables.at_once import at_once
from omnigraph_engine.tables.buckets import pair_up
from omnigraph_engine.tables.key_joins import candidates
from omnigraph_engine.tables.predicates import among
from omnigraph_engine.tables.stage import MAX_ROWS_PER_FILE, stage_removal, stage_replacing
from omnigraph_engine.tables.staged import StagedWrite, StageKind, new_transaction_uuid
from omnigraph_engine.tables.streams import PLACED, placed_keys, rows_where
from omnigraph_engine.tables.table import Table

_log = logging.getLogger(__name__)

Addresses = npt.NDArray[np.uint64]  # of rows: the fragment's number in the upper half, the row's place in the lower

STAGED = "__staged"  # where parts of writes under way leave what is too large for a message, named by operation

PUSHED_IDS = 256  # up to this many ids are looked up in the table; for more its ids are streamed
ROWS_IN_MEMORY = 100_000
BYTES_IN_MEMORY = 64 * 1024 * 1024
MOST_ADDRESSES = 16_000_000  # gathered at a time

NOWHERE = np.uint64(2**64 - 1)
_KEY = pa.schema([pa.field("key", pa.string())])
_STORED = _KEY.append(pa.field("_rowid", pa.uint64())).append(pa.field("_rowaddr", pa.uint64()))


@dataclass(frozen=True)
class UpsertPart:
    """What one worker staged: new files, and how many rows of which fragments they replace. Plain data, to travel."""

    table_key: str
    base_version: int
    new_fragments: tuple[str, ...]
    rows_inserted: int
    rows_updated: int
    replaced: tuple[tuple[int, int], ...]  # fragment number and how many of its rows
    addresses: str | None = None  # the object that holds the addresses of the replaced rows, once they were put there
    rows_deleted: int = 0  # of the replaced: those that nothing takes the place of

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> UpsertPart:
        fields: dict[str, Any] = json.loads(text)
        replaced = tuple((int(number), int(rows)) for number, rows in fields["replaced"])
        return cls(**{**fields, "new_fragments": tuple(fields["new_fragments"]), "replaced": replaced})


def stage_upsert(
    table: Table, batches: Iterable[pa.RecordBatch], *, max_rows_per_file: int = MAX_ROWS_PER_FILE
) -> StagedWrite | None:
    """Rows whose id exists replace that row and keep its row id and creation version; the others are new.

    The ids of the input must be distinct; the checks between rows see to that.
    """
    staged = _stage_part(table, batches, max_rows_per_file)
    if staged is None:
        return None
    part, addresses = staged
    return seal_upsert(table, [part], lambda _: addresses)


def stage_upsert_part(
    table: Table,
    batches: Iterable[pa.RecordBatch],
    *,
    operation_id: str,
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
) -> UpsertPart | None:
    """One worker's rows, in files that nobody can see; None when there is no row. Others stage the other rows."""
    staged = _stage_part(table, batches, max_rows_per_file)
    if staged is None:
        return None
    return leave_addresses(table, *staged, operation_id=operation_id)


def leave_addresses(table: Table, part: UpsertPart, addresses: Addresses, *, operation_id: str) -> UpsertPart:
    """The part, for another process to seal: the addresses are in an object of their own, named by the operation."""
    if not len(addresses):
        return part
    path = staged_path(operation_id, f"{new_transaction_uuid()}.addresses")
    table.storage.put(path, addresses.astype("<u8").tobytes())
    return replace(part, addresses=path)


def left_addresses(table: Table, part: UpsertPart) -> Addresses:
    """The addresses of a part that were left in an object; none when it replaces nothing."""
    if part.addresses is None:
        return np.empty(0, np.uint64)
    return np.frombuffer(table.storage.get(part.addresses), "<u8").astype(np.uint64, copy=False)


def seal_upsert_parts(table: Table, parts: Sequence[UpsertPart]) -> StagedWrite | None:
    """One write of what many workers staged with ``stage_upsert_part``."""
    staged = seal_upsert(table, parts, lambda part: left_addresses(table, part))
    forget_addresses(table, parts)
    return staged


def staged_path(operation_id: str, name: str) -> str:
    """Where an operation leaves something. One folder for all: on a disk a folder of its own would outlive its files."""
    return f"{STAGED}/{operation_id}.{name}"


def staging_operation(path: str) -> str:
    """The operation that left an object below ``STAGED``."""
    return path.removeprefix(f"{STAGED}/").split(".", 1)[0]


def forget_addresses(table: Table, parts: Iterable[UpsertPart]) -> None:
    """What they said is in the deletions now. One that cannot be deleted is garbage and harms nobody."""
    for path in (part.addresses for part in parts if part.addresses is not None):
        try:
            table.storage.delete(path)
        except StorageError as error:  # noqa: PERF203 - each deletion stands for itself
            _log.warning("the object '%s' could not be deleted: %s", path, error.message)


def _stage_part(
    table: Table, batches: Iterable[pa.RecordBatch], max_rows_per_file: int
) -> tuple[UpsertPart, Addresses] | None:
    with ExitStack() as files:
        rows = WaitingRows(files, batches)
        if not rows.count:
            return None
        row_ids, addresses = _look_up(table, rows)
        return stage_found(table, rows, row_ids, addresses[row_ids != NOWHERE], max_rows_per_file)


def stage_found(
    table: Table,
    rows: WaitingRows,
    row_ids: npt.NDArray[np.uint64],
    replaced: Addresses,
    max_rows_per_file: int = MAX_ROWS_PER_FILE,
) -> tuple[UpsertPart, Addresses]:
    """One worker's rows, where it is known which of them take the place of others, and of which.

    Args:
        table: The version to stage on.
        rows: All that it puts there.
        row_ids: For each of them the row id of the stored row that it replaces, or ``NOWHERE``.
        replaced: The addresses of these stored rows, and of others that just go. They are returned in order.
        max_rows_per_file: A new file begins after so many rows.
    """
    matched = row_ids != NOWHERE
    new_fragments: tuple[str, ...] = ()
    if rows.count:
        new_fragments = stage_replacing(
            table,
            replacing=rows.where(matched),
            row_ids=row_ids[matched],
            adding=rows.where(~matched),
            max_rows_per_file=max_rows_per_file,
        )
    replaced = np.sort(replaced)
    updated = int(matched.sum())
    part = UpsertPart(
        table_key=table.ref.table_key,
        base_version=table.ref.version,
        new_fragments=new_fragments,
        rows_inserted=rows.count - updated,
        rows_updated=updated,
        replaced=_count_by_fragment(replaced),
        rows_deleted=len(replaced) - updated,
    )
    return part, replaced


def seal_upsert(
    table: Table, parts: Sequence[UpsertPart], addresses_of: Callable[[UpsertPart], Addresses]
) -> StagedWrite | None:
    """One write of all parts: the deletions of every touched fragment are written here, once."""
    if not parts:
        return None
    updated: list[str] = []
    removed: list[int] = []
    counts = Counter[int]()
    for part in parts:
        counts.update(dict(part.replaced))
    for group in _groups(counts):
        gathered = [
            _of_fragments(addresses_of(part), group)
            for part in parts
            if any(number in group for number, _ in part.replaced)
        ]
        left = at_once(partial(_without, table, np.unique(np.concatenate(gathered))), group)
        removed += [number for number, text in zip(group, left, strict=True) if text is None]
        updated += [text for text in left if text is not None]
    return StagedWrite(
        table_key=table.ref.table_key,
        kind=StageKind.UPSERT,
        base_version=table.ref.version,
        transaction_uuid=new_transaction_uuid(),
        line=table.ref.branch,
        new_fragments=tuple(text for part in parts for text in part.new_fragments),
        updated_fragments=tuple(updated),
        removed_fragment_ids=tuple(removed),
        rows_inserted=sum(part.rows_inserted for part in parts),
        rows_updated=sum(part.rows_updated for part in parts),
        rows_deleted=sum(part.rows_deleted for part in parts),
    )


def _without(table: Table, addresses: Addresses, number: int) -> str | None:
    return stage_removal(table, number, _of_fragments(addresses, [number]) & np.uint64(0xFFFFFFFF))


def _look_up(table: Table, rows: WaitingRows) -> tuple[npt.NDArray[np.uint64], Addresses]:
    """For each waiting row the row id and address of the stored row with its id, or ``NOWHERE``."""
    row_ids = np.full(rows.count, NOWHERE, np.uint64)
    addresses = np.full(rows.count, NOWHERE, np.uint64)
    few = rows.ids() if rows.count <= PUSHED_IDS else []
    stored = table.scan(["id", "_rowid", "_rowaddr"], among("id", few))
    for given, existing in pair_up(rows.placed_ids(), _renamed(stored), PLACED, _STORED):
        hits = pa.Table.from_batches(candidates(given["key"], existing), _STORED)
        if not hits.num_rows:
            continue
        found = pc.index_in(given["key"].combine_chunks(), value_set=hits["key"].combine_chunks())
        places = given["place"].filter(found.is_valid()).to_numpy()
        row_ids[places] = hits["_rowid"].take(found.drop_null()).to_numpy()
        addresses[places] = hits["_rowaddr"].take(found.drop_null()).to_numpy()
    # A second row for one id counts as a new one, so that the files hold every row and the checks find them all.
    repeated = np.setdiff1d(np.arange(rows.count), np.unique(row_ids, return_index=True)[1], assume_unique=True)
    row_ids[repeated] = NOWHERE
    return row_ids, addresses


def _renamed(stored: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in stored:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=_STORED)


def _count_by_fragment(addresses: Addresses) -> tuple[tuple[int, int], ...]:
    numbers, counts = np.unique(addresses >> np.uint64(32), return_counts=True)
    return tuple(zip(numbers.tolist(), counts.tolist(), strict=True))


def _of_fragments(addresses: Addresses, fragments: Sequence[int]) -> Addresses:
    """Those of the sorted addresses that lie in these fragments, whose numbers are sorted too."""
    first, last = np.uint64(fragments[0]) << np.uint64(32), (np.uint64(fragments[-1]) + np.uint64(1)) << np.uint64(32)
    start, end = np.searchsorted(addresses, [first, last])
    return addresses[start:end]


def _groups(counts: Mapping[int, int]) -> Iterator[list[int]]:
    """The touched fragments in order, in groups with few enough addresses to gather at a time."""
    group: list[int] = []
    rows = 0
    for number in sorted(counts):
        if group and rows + counts[number] > MOST_ADDRESSES:
            yield group
            group, rows = [], 0
        group.append(number)
        rows += counts[number]
    if group:
        yield group


class WaitingRows:
    """Rows that can be gone through again and again; many of them wait on disk."""

    def __init__(self, files: ExitStack, batches: Iterable[pa.RecordBatch]) -> None:
        self.count = 0
        self._held: list[pa.RecordBatch] = []
        self._path: str | None = None
        writer: Any = None
        held = 0
        for batch in batches:
            self.count += batch.num_rows
            held += batch.nbytes
            if writer is not None:
                writer.write_batch(batch)
                continue
            self._held.append(batch)
            if self.count > ROWS_IN_MEMORY or held > BYTES_IN_MEMORY:
                folder = files.enter_context(tempfile.TemporaryDirectory(prefix="omnigraph-"))
                self._path = os.path.join(folder, "rows.arrow")
                writer = files.enter_context(pa.ipc.new_stream(self._path, batch.schema))
                while self._held:
                    writer.write_batch(self._held.pop(0))
        if writer is not None:
            writer.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._path is None:
            yield from self._held
            return
        # Not mapped into memory, where pages that were read would count as ours.
        with pa.OSFile(self._path, "rb") as file, pa.ipc.open_stream(file) as reader:
            yield from reader

    def ids(self) -> list[str]:
        return [str(value) for batch in self for value in batch.column("id").to_pylist()]

    def placed_ids(self) -> Iterator[pa.RecordBatch]:
        return placed_keys(batch.select(["id"]) for batch in self)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
        return rows_where(self, chosen)
