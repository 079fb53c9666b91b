"""Which rows of a table are different in another version of it.

Versions of one table share files, on whatever lines they are, so only what was written since they parted is read: fragments
that both have are passed over, of those with other deletions the rows in question are looked up, and rows that a rewrite
merely moved are recognised by their row id and the version that last changed them.

Memory follows the change, at a few bytes a row: eight for each deleted row (sixteen where ``loses`` is asked), sixteen for each
of up to ``MOST_RECOGNISED`` rows that a rewrite may have moved. Rows themselves are streamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.at_once import at_once
from omnigraph_engine.tables.deletions import deleted_places
from omnigraph_engine.tables.exact import lance_errors
from omnigraph_engine.tables.predicates import Whole
from omnigraph_engine.tables.table import Table, TableRef, fragment_marks

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.uint32]
Addresses = npt.NDArray[np.uint64]

ROW = ("_rowid", "_rowaddr")  # where a row is: its stable id and its present address
CHANGED_AT = "_row_last_updated_at_version"
_RECOGNISED_BY = ("_rowid", CHANGED_AT)
LOOKED_UP = 4_096  # rows of a fragment up to which they are looked up one by one, and so many at a time
ROWS_PER_SHARE = 64 * 1024  # rows at single addresses that one worker looks up, unless more are of one fragment
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
    standing: Mapping[int, int]  # fragments that both have: the number in the later version, by that in the earlier one

    @property
    def rows(self) -> int:
        """How many rows are read, at most; from metadata alone."""
        return sum(share.most_rows(self.before) for share in self.lost_shares) + self.rows_that_came

    @property
    def rows_that_came(self) -> int:
        """How many of them are the later version's."""
        return sum(share.most_rows(self.after) for share in self.came_shares)

    def lost(self, columns: Sequence[str], share: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of the earlier version, all of them or one share: these columns and ``ROW``."""
        return _rows(self.before, _chosen(self.lost_shares, share), columns)

    def came(self, columns: Sequence[str], share: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of the later version, all of them or one share: these columns and ``ROW``."""
        return _rows(self.after, _chosen(self.came_shares, share), columns)

    def loses(self, rows: pa.RecordBatch) -> Mask:
        """Which of these rows of the earlier version (``ROW`` and ``CHANGED_AT``) are among the lost. Nothing is read."""
        addresses = rows["_rowaddr"].to_numpy()
        numbers = addresses >> np.uint64(32)
        lost = np.zeros(len(addresses), np.bool_)
        if len(self._lost_addresses):
            places = np.searchsorted(self._lost_addresses[:-1], addresses)
            lost = self._lost_addresses[places] == addresses
        for number in np.unique(numbers).tolist():
            if number in self._lost_fragments:
                there, known = numbers == number, self._lost_fragments[number]
                lost[there] = known is None or ~known.holds(*(rows[name].to_numpy()[there] for name in _RECOGNISED_BY))
        return lost

    @cached_property
    def _lost_addresses(self) -> Addresses:
        """In order."""
        found = [share.addresses for share in self.lost_shares if isinstance(share, _Rows)]
        return np.concatenate([np.empty(0, np.uint64), *found])

    @cached_property
    def _lost_fragments(self) -> dict[int, _Known | None]:
        return {share.number: share.known for share in self.lost_shares if isinstance(share, _Fragment)}


@dataclass(frozen=True)
class _Fragment:
    """The rows of a fragment that are alive, but for those that are the same on the other side."""

    number: int
    known: _Known | None = None

    def most_rows(self, table: Table) -> int:
        return table.dataset.get_fragment(self.number).count_rows()  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Rows:
    """Rows at some addresses, in order; those of a fragment are never in two shares."""

    addresses: Addresses

    def most_rows(self, _: Table) -> int:
        return len(self.addresses)


_Share = _Fragment | _Rows


@dataclass(frozen=True)
class _Known:
    """Rows by their row id and the version that last changed them, sorted by row id."""

    row_ids: npt.NDArray[np.uint64]
    changed_at: npt.NDArray[np.uint64]

    def holds(self, row_ids: npt.NDArray[np.uint64], changed_at: npt.NDArray[np.uint64]) -> Mask:
        if not len(self.row_ids):
            return np.zeros(len(row_ids), np.bool_)
        places = np.searchsorted(self.row_ids[:-1], row_ids)
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
    thinned = [(then[files][0], now[files][0]) for files in then.keys() & now.keys() if then[files][1] != now[files][1]]
    apart = at_once(partial(_deleted_apart, before, after), thinned)
    lost += _packed((number, places) for (number, _), (places, _) in zip(thinned, apart, strict=True))
    came += _packed((number, places) for (_, number), (_, places) in zip(thinned, apart, strict=True))
    return RowChanges(before, after, tuple(lost), tuple(came), standing)


def rows_at(table: Table, addresses: Addresses, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a table at these addresses, which are in order: these columns and ``ROW``."""
    yield from _addressed(table, addresses, [*columns, *ROW])


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
        return [_Fragment(number) for number in gone], [_Fragment(number) for number in new]
    limit = parting(before.storage, before.ref, after.ref)
    was, is_ = _known(before, gone, limit), _known(after, new, limit)
    return [_Fragment(number, is_) for number in gone], [_Fragment(number, was) for number in new]


def _count(table: Table, fragments: Sequence[int]) -> int:
    rows = {part.fragment_id: part.rows for part in table.fragments()}
    return sum(rows[number] for number in fragments)


def _known(table: Table, fragments: Sequence[int], limit: int) -> _Known:
    """Rows that were last changed before the lines parted; afterwards each line gives out the same numbers anew."""
    rows = table.scan(_RECOGNISED_BY, Whole(f"{CHANGED_AT} <= {limit}"), fragment_ids=fragments).read_all()
    row_ids, changed_at = (rows[name].to_numpy() for name in _RECOGNISED_BY)
    order = np.argsort(row_ids)
    return _Known(row_ids[order], changed_at[order])


def _deleted_apart(before: Table, after: Table, numbers: tuple[int, int]) -> tuple[Places, Places]:
    """The places of a fragment's rows that only the later version lacks, and of those that only the earlier one does."""
    was, is_ = deleted_places(before, numbers[0]), deleted_places(after, numbers[1])
    return np.setdiff1d(is_, was, assume_unique=True), np.setdiff1d(was, is_, assume_unique=True)


def _packed(found: Iterable[tuple[int, Places]]) -> list[_Share]:
    """Rows by fragment, in shares: those of many fragments together where each has few."""
    shares: list[_Share] = []
    held: list[Addresses] = []
    rows = 0
    for number, places in sorted(found, key=itemgetter(0)):
        if held and rows + len(places) > ROWS_PER_SHARE:
            shares.append(_Rows(np.concatenate(held)))
            held, rows = [], 0
        if len(places):
            held.append((np.uint64(number) << np.uint64(32)) + places.astype(np.uint64))
            rows += len(places)
    return [*shares, _Rows(np.concatenate(held))] if held else shares


def _rows(table: Table, shares: Iterable[_Share], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = [*columns, *ROW]
    for share in shares:
        if isinstance(share, _Rows):
            yield from _addressed(table, share.addresses, wanted)
        elif share.known is None:
            yield from table.scan(wanted, fragment_ids=[share.number])
        else:
            for batch in table.scan(list(dict.fromkeys([*wanted, CHANGED_AT])), fragment_ids=[share.number]):
                same = share.known.holds(*(batch[name].to_numpy() for name in _RECOGNISED_BY))
                if not same.all():
                    yield batch.select(wanted).filter(pa.array(~same))


def _addressed(table: Table, addresses: Addresses, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows by their addresses, which are in order. Where a fragment has few of them they are looked up, those of several
    fragments at once; where it has many, it is read.
    """
    numbers, starts = np.unique(addresses >> np.uint64(32), return_index=True)
    few = np.ones(len(addresses), np.bool_)
    for number, start, end in zip(numbers.tolist(), starts, [*starts[1:], len(addresses)], strict=False):
        if end - start > LOOKED_UP:
            few[start:end] = False
            for batch in table.scan(wanted, fragment_ids=[number]):
                chosen = np.isin(batch["_rowaddr"].to_numpy(), addresses[start:end], assume_unique=True)
                if chosen.any():
                    yield batch.filter(pa.array(chosen))
    left = addresses[few]
    while len(left):
        some, left = left[:LOOKED_UP], left[LOOKED_UP:]
        among = ",".join(map(str, some.tolist()))
        yield from table.scan(
            wanted, Whole(f"_rowaddr IN ({among})"), fragment_ids=np.unique(some >> np.uint64(32)).tolist()
        )


def _chosen(shares: tuple[_Share, ...], share: int | None) -> tuple[_Share, ...]:
    return shares if share is None else shares[share : share + 1]
