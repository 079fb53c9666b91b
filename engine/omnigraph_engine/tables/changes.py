"""Which rows of a table are different in another version of it.

Versions of one table share files, on whatever lines they are, so only what was written since they parted is read: fragments
that both have are passed over, of those with other deletions the rows in question are looked up, and rows that a rewrite
merely moved are recognised by their row id and the version that last changed them.

Memory follows the change, at a few bytes a row: eight for each deleted row, sixteen for each of up to ``MOST_RECOGNISED`` rows
that a rewrite may have moved. Rows themselves are streamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.deletions import deleted_places
from omnigraph_engine.tables.exact import lance_errors
from omnigraph_engine.tables.predicates import Whole
from omnigraph_engine.tables.table import Table, TableRef, fragment_marks

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]

ROW = ("_rowid", "_rowaddr")  # where a row is: its stable id and its present address
_CHANGED_AT = "_row_last_updated_at_version"
LOOKED_UP = 4_096  # rows of a fragment up to which they are looked up one by one
MOST_RECOGNISED = 4_000_000  # moved rows that are recognised by row id; beyond that their values are compared


@dataclass(frozen=True)
class RowChanges:
    """Rows of an earlier version that a later one does not have as they were, and rows that only the later one has.

    A row may be in both and still be the same: whoever needs to know compares the values. It may be pickled, and its shares
    may be read by different workers.
    """

    before: Table
    after: Table
    lost_shares: tuple[_Share, ...]
    came_shares: tuple[_Share, ...]
    standing: Mapping[
        int, int
    ]  # fragments that both versions have: the number in the later one, by that in the earlier

    @property
    def rows(self) -> int:
        """How many rows are read, at most; from metadata alone."""
        return _most_rows(self.before, self.lost_shares) + _most_rows(self.after, self.came_shares)

    def lost(self, columns: Sequence[str], share: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of the earlier version, all of them or one share: these columns and ``ROW``."""
        return _rows(self.before, _chosen(self.lost_shares, share), columns)

    def came(self, columns: Sequence[str], share: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of the later version, all of them or one share: these columns and ``ROW``."""
        return _rows(self.after, _chosen(self.came_shares, share), columns)


@dataclass(frozen=True)
class _Share:
    """Rows of one fragment: all that are alive, those at some places, or all but some."""

    fragment_id: int
    places: Places | None = None  # in the fragment's files
    known: _Known | None = None  # rows that are the same on the other side


@dataclass(frozen=True)
class _Known:
    """Rows by their row id and the version that last changed them, sorted by row id."""

    row_ids: npt.NDArray[np.uint64]
    changed_at: npt.NDArray[np.uint64]

    def holds(self, row_ids: npt.NDArray[np.uint64], changed_at: npt.NDArray[np.uint64]) -> Mask:
        if not len(self.row_ids):
            return np.zeros(len(row_ids), np.bool_)
        places = np.minimum(np.searchsorted(self.row_ids, row_ids), len(self.row_ids) - 1)
        found: Mask = (self.row_ids[places] == row_ids) & (self.changed_at[places] == changed_at)
        return found


def row_changes(before: Table, after: Table) -> RowChanges:
    """What is different, from metadata and the row ids of rewritten fragments alone."""
    if before.ref == after.ref:
        return RowChanges(before, after, (), (), {part.fragment_id: part.fragment_id for part in before.fragments()})
    then, now = _by_files(before), _by_files(after)
    gone = [then[files][0] for files in then.keys() - now.keys()]
    new = [now[files][0] for files in now.keys() - then.keys()]
    lost, came = _told_apart(before, sorted(gone), after, sorted(new))
    standing = {then[files][0]: now[files][0] for files in then.keys() & now.keys()}
    for files in then.keys() & now.keys():
        (number, deletions), (other, other_deletions) = then[files], now[files]
        if deletions != other_deletions:
            was, is_ = _dead(before, number), _dead(after, other)
            lost += _at(number, np.setdiff1d(is_, was, assume_unique=True))
            came += _at(other, np.setdiff1d(was, is_, assume_unique=True))
    return RowChanges(before, after, tuple(lost), tuple(came), standing)


def rows_at(table: Table, addresses: Addresses, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a table at these addresses, which are in order: these columns and ``ROW``."""
    numbers, starts = np.unique(addresses >> np.uint64(32), return_index=True)
    ends = [*starts[1:], len(addresses)]
    for number, start, end in zip(numbers.tolist(), starts, ends, strict=False):
        yield from _addressed(table, number, addresses[start:end], [*columns, *ROW])


def parting(storage: Storage, one: TableRef, other: TableRef) -> int:
    """The newest version that two versions of a table have both come from: up to there they are one history."""
    if one.branch == other.branch:
        return min(one.version, other.version)
    with lance_errors(f"Listing the lines of {one.table_key}"):
        root = lance.dataset(storage.uri(one.location), storage_options=storage.options or None)
        lines: dict[str, Any] = root.branches.list()
    reached = dict(_way_back(one, lines))
    return max((min(version, reached[line]) for line, version in _way_back(other, lines) if line in reached), default=0)


def _way_back(ref: TableRef, lines: Mapping[str, Any]) -> Iterator[tuple[str | None, int]]:
    """The lines that lead to a version, newest first, and up to which version each of them does."""
    line, version = ref.branch, ref.version
    yield line, version
    while line is not None and line in lines:
        line, version = lines[line]["parent_branch"], int(lines[line]["parent_version"])
        yield line, version


def _by_files(table: Table) -> dict[tuple[str, ...], tuple[int, str | None]]:
    """The fragments by their files, which tell what they hold on whatever line: their number and their deletions."""
    return {files: (number, deletions) for number, (files, deletions) in fragment_marks(table.dataset).items()}


def _told_apart(
    before: Table, gone: Sequence[int], after: Table, new: Sequence[int]
) -> tuple[list[_Share], list[_Share]]:
    """The rows of fragments that only one side has, without those that merely moved from one into another."""
    if not gone or not new or _count(before, gone) + _count(after, new) > MOST_RECOGNISED:
        return [_Share(number) for number in gone], [_Share(number) for number in new]
    limit = parting(before.storage, before.ref, after.ref)
    was, is_ = _known(before, gone, limit), _known(after, new, limit)
    return [_Share(number, known=is_) for number in gone], [_Share(number, known=was) for number in new]


def _count(table: Table, fragments: Sequence[int]) -> int:
    rows = {part.fragment_id: part.rows for part in table.fragments()}
    return sum(rows[number] for number in fragments)


def _most_rows(table: Table, shares: Sequence[_Share]) -> int:
    whole = [share.fragment_id for share in shares if share.places is None]
    return _count(table, whole) + sum(len(share.places) for share in shares if share.places is not None)


def _known(table: Table, fragments: Sequence[int], limit: int) -> _Known:
    """Rows that were last changed before the lines parted; afterwards each line gives out the same numbers anew."""
    rows = table.scan(["_rowid", _CHANGED_AT], Whole(f"{_CHANGED_AT} <= {limit}"), fragment_ids=fragments).read_all()
    row_ids, changed_at = rows["_rowid"].to_numpy(), rows[_CHANGED_AT].to_numpy()
    order = np.argsort(row_ids)
    return _Known(row_ids[order], changed_at[order])


def _dead(table: Table, fragment_id: int) -> Places:
    """The places of a fragment's deleted rows. Few of them stand in a file of their own; many are told by who is alive."""
    few = deleted_places(table, fragment_id)
    if few is not None:
        return few
    addresses = table.scan(["_rowaddr"], fragment_ids=[fragment_id]).read_all()["_rowaddr"].to_numpy()
    dead = np.ones(table.dataset.get_fragment(fragment_id).physical_rows, np.bool_)  # type: ignore[union-attr]
    dead[addresses.astype(np.uint32)] = False  # the lower half of an address
    return np.flatnonzero(dead)


def _at(fragment_id: int, places: Places) -> list[_Share]:
    return [_Share(fragment_id, places)] if len(places) else []


def _rows(table: Table, shares: Iterable[_Share], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = [*columns, *ROW]
    for share in shares:
        if share.places is not None:
            yield from _placed(table, share.fragment_id, share.places, wanted)
        elif share.known is None:
            yield from table.scan(wanted, fragment_ids=[share.fragment_id])
        else:
            for batch in table.scan([*wanted, _CHANGED_AT], fragment_ids=[share.fragment_id]):
                same = share.known.holds(batch["_rowid"].to_numpy(), batch[_CHANGED_AT].to_numpy())
                if not same.all():
                    yield batch.select(wanted).filter(pa.array(~same))


def _placed(table: Table, fragment_id: int, places: Places, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    addresses = (np.uint64(fragment_id) << np.uint64(32)) + places.astype(np.uint64)
    yield from _addressed(table, fragment_id, addresses, wanted)


def _addressed(table: Table, fragment_id: int, addresses: Addresses, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a fragment by their addresses. Few are looked up; for many the fragment is read."""
    if len(addresses) <= LOOKED_UP:
        among = ",".join(map(str, addresses.tolist()))
        yield from table.scan(wanted, Whole(f"_rowaddr IN ({among})"), fragment_ids=[fragment_id])
        return
    for batch in table.scan(wanted, fragment_ids=[fragment_id]):
        chosen = np.isin(batch["_rowaddr"].to_numpy(), addresses, assume_unique=True)
        if chosen.any():
            yield batch.filter(pa.array(chosen))


def _chosen(shares: tuple[_Share, ...], share: int | None) -> tuple[_Share, ...]:
    return shares if share is None else shares[share : share + 1]
