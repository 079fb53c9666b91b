"""Reclaiming what operations left behind: whatever no version of any line names, and lines that no branch shows.

No version of anything is removed: what a commit of a branch shows, it shows afterwards. What an operation has staged looks the
same whether it lives or died, so nothing is touched that is younger than a grace period, by the store's own clock; nothing
of a table that an operation is committing to; and what seems left over is looked at again right before it is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from omnigraph_engine.commit.shown import lines_in_common, shown_lines, sidecars
from omnigraph_engine.commit.sidecar import new_operation_id
from omnigraph_engine.errors import InvalidArgument, ObjectNotFound, OmnigraphError, StorageError
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.storage import Storage, StoredObject
from omnigraph_engine.tables.files import (
    FileKind,
    Folder,
    Name,
    TableFile,
    contents,
    forgotten,
    line_parents,
    named,
)
from omnigraph_engine.tables.heads import drop_line
from omnigraph_engine.tables.table import TableRef
from omnigraph_engine.tables.upsert import STAGED, staged_path, staging_operation

_log = logging.getLogger(__name__)

GRACE = timedelta(days=7)


@dataclass(frozen=True)
class Amount:
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True)
class TableLeftovers:
    """What of a table is left over."""

    lines: Mapping[str, Amount] = field(
        default_factory=dict
    )  # lines that no branch shows, by name, with all their files
    files: Mapping[FileKind, Amount] = field(default_factory=dict)  # of other lines, by kind


@dataclass(frozen=True)
class StagedLeftovers:
    """What an operation put down for its own commit and never took up again."""

    operation_id: str
    amount: Amount
    age: timedelta  # of the newest of it


@dataclass(frozen=True)
class CleanupReport:
    """What a cleanup would reclaim, or has."""

    confirmed: bool  # whether it is gone; else nothing was changed
    older_than: timedelta
    tables: Mapping[str, TableLeftovers]  # by table key; those that have some
    staged: tuple[StagedLeftovers, ...]
    skipped: Mapping[str, str]  # table keys that were left alone, and why
    warnings: tuple[str, ...] = ()  # what could not be deleted; the next cleanup tries again

    @property
    def total(self) -> Amount:
        found = [amount for table in self.tables.values() for amount in (*table.lines.values(), *table.files.values())]
        return sum([*found, *(left.amount for left in self.staged)], Amount())


class _LeftAlone(Exception):
    """The table is not cleaned this time."""


@dataclass
class _Survey:
    """What of a table seems left over, as far as its versions up to ``read`` tell."""

    folder: Folder
    lines: list[str]  # that may go, in the order in which they may
    left: dict[Name, list[TableFile]]  # files that no version has been found to name
    unnamed: list[TableFile]  # files that none ever names
    read: dict[str | None, int]  # the newest version read of each line that stays

    def files(self) -> list[TableFile]:
        """All that is left over outside the lines that go."""
        found = [*(file for files in self.left.values() for file in files), *self.unnamed]
        return [file for file in found if file.line not in self.lines]


class Cleanup:
    """One cleanup of a graph: a survey of every table and, when that is confirmed, a second look at each and its deletions."""

    def __init__(self, storage: Storage, *, older_than: timedelta, confirm: bool) -> None:
        if not isinstance(older_than, timedelta) or older_than < timedelta(0):
            raise InvalidArgument(f"older_than is {older_than!r}.", hint="Give a timedelta that is not negative.")
        self._storage = storage
        self._older_than = older_than
        self._confirm = confirm
        self._warnings: list[str] = []
        self._now = _store_time(storage, self._warn)
        self._before = self._now - older_than

    def run(self) -> CleanupReport:
        """What is reported is gone when this returns, if that was confirmed; else nothing has changed.

        A table of which anything is in doubt is left alone, and the report says why.
        """
        tables: dict[str, TableLeftovers] = {}
        skipped: dict[str, str] = {}
        published = open_manifest(self._storage).state.tables
        for key, table in published.items():
            try:
                found = self._table(key, table.location)
            except (_LeftAlone, OmnigraphError) as reason:
                skipped[key] = str(reason)
                continue
            if found.lines or found.files:
                tables[key] = found
        staged = self._staged()
        return CleanupReport(self._confirm, self._older_than, tables, staged, skipped, tuple(self._warnings))

    def _table(self, key: str, location: str) -> TableLeftovers:
        self._check_idle(key)
        survey = self._survey(location, self._shown_at_first)
        if not self._confirm or not (survey.lines or survey.left or survey.unnamed):
            return _leftovers(survey, survey.lines, survey.files())
        # Operations first, then manifests: an operation that is gone by now is in a manifest. And a line must have been nobody's
        # at the first look too. A merge that adopts one makes sure, once its sidecar is armed, that the line's branch stands:
        # so it was somebody's then, or the sidecar is there now, or the merge is visible.
        self._check_idle(key)
        shown = shown_lines(self._storage)
        survey = self._survey(location, shown, earlier=survey)
        standing = [line for line in survey.lines if not self._drop(key, location, line)]
        dropped = [line for line in survey.lines if line not in standing]
        sizes = _leftovers(survey, dropped, ())
        if standing:
            survey = self._survey(location, {*shown, *standing}, earlier=survey)
        deleted = [file for file in survey.files() if self._delete(file.stored)]
        return TableLeftovers(sizes.lines, _leftovers(survey, (), deleted).files)

    @cached_property
    def _shown_at_first(self) -> set[str | None]:
        return shown_lines(self._storage)

    def _check_idle(self, key: str) -> None:
        busy = sorted(sidecar.operation_id for sidecar in sidecars(self._storage) if key in sidecar.table_keys)
        if busy:
            raise _LeftAlone(
                f"operation {', '.join(busy)} is under way, or its writer died and nobody has written since"
            )

    def _survey(self, location: str, shown: Collection[str | None], earlier: _Survey | None = None) -> _Survey:
        """What seems left over now. After an earlier survey only what has come since is read, and only what it found stays."""
        storage = self._storage
        folder = contents(location, storage.objects(location))
        if folder.strange:
            raise _LeftAlone(f"'{folder.strange[0]}' is of a form that this release does not know")
        empty = [line for line, found in folder.lines.items() if line in {None, *shown} and not found.versions]
        if empty:
            raise _LeftAlone(f"'{TableRef('', location, empty[0], 0).path}' has no version")
        parents = line_parents(storage, location)
        kept = set(shown)
        lines = forgotten(folder, parents, kept, self._before)
        if lines:
            kept |= lines_in_common(storage)
        if earlier is not None:
            kept |= {line for line in lines if line not in earlier.lines}
        lines = forgotten(folder, parents, kept, self._before)
        survey = earlier or _begun(folder, self._before)
        survey.folder = folder
        while named_in := self._strike(location, survey, lines):
            # Files in a line that nobody shows are named by one that stays. Lines are forked by refs, so this is strange.
            kept |= named_in
            lines = forgotten(folder, parents, kept, self._before)
        survey.lines = lines
        return survey

    def _strike(self, location: str, survey: _Survey, going: Collection[str]) -> set[str]:
        """Takes from the survey all that versions name that it has not read; returns lines that are going and hold some."""
        held: set[str] = set()
        for line, found in survey.folder.lines.items():
            above = survey.read.get(line, 0)
            unread = {version for version in found.versions if version > above}
            if line in going or not unread:
                continue
            path = TableRef("", location, line, 0).path
            for names, versions in named(self._storage, path, above):
                unread -= versions
                struck = [file for name in names for file in survey.left.pop(name, ())]
                held |= {file.line for file in struck if file.line in going and file.line is not None}
            if unread:
                raise _LeftAlone(f"version {min(unread)} of '{self._storage.uri(path)}' could not be read")
            survey.read[line] = max(found.versions)
        return held

    def _drop(self, key: str, location: str, line: str) -> bool:
        ref = TableRef(key, location, line, 0)
        drop_line(self._storage, ref)
        gone = line not in line_parents(self._storage, location) and not self._storage.list(ref.path, limit=1)
        if not gone:
            self._warn(f"the line '{line}' of {key} is still there, at least in part")
        return gone

    def _staged(self) -> tuple[StagedLeftovers, ...]:
        found: dict[str, list[StoredObject]] = {}
        for stored in self._storage.objects(STAGED):
            if stored.modified <= self._before and (not self._confirm or self._delete(stored)):
                found.setdefault(staging_operation(stored.path), []).append(stored)
        return tuple(
            StagedLeftovers(operation, _amount(objects), self._now - max(stored.modified for stored in objects))
            for operation, objects in sorted(found.items())
        )

    def _delete(self, stored: StoredObject) -> bool:
        try:
            self._storage.delete(stored.path)
        except StorageError as error:
            self._warn(error.message)
            return False
        return True

    def _warn(self, message: str) -> None:
        _log.warning("%s", message)
        self._warnings.append(message)


def _begun(folder: Folder, before: datetime) -> _Survey:
    survey = _Survey(folder, [], {}, [], {})
    for file in folder.files:
        if file.stored.modified > before:
            continue
        if file.belongs_to is None:
            survey.unnamed.append(file)
        else:
            survey.left.setdefault(file.belongs_to, []).append(file)
    return survey


def _leftovers(survey: _Survey, lines: Iterable[str], files: Iterable[TableFile]) -> TableLeftovers:
    by_kind: dict[FileKind, list[StoredObject]] = {}
    for file in files:
        by_kind.setdefault(file.kind, []).append(file.stored)
    found = survey.folder.lines
    return TableLeftovers(
        {line: Amount(found[line].files, found[line].size) for line in lines},
        {kind: _amount(by_kind[kind]) for kind in FileKind if kind in by_kind},
    )


def _amount(objects: Collection[StoredObject]) -> Amount:
    return Amount(len(objects), sum(stored.size for stored in objects))


def _store_time(storage: Storage, warn: Callable[[str], None]) -> datetime:
    """What time it is by the store's own clock. The clock of another machine says nothing of the age of a stored object."""
    path = staged_path(new_operation_id(), "clock")  # where a cleanup that dies leaves it for the next one
    try:
        storage.put(path, b"")
        now = storage.modified(path)
    except ObjectNotFound:  # another cleanup, one without grace, has taken it for a leftover
        return _store_time(storage, warn)
    try:
        storage.delete(path)
    except StorageError as error:
        warn(error.message)
    return now
