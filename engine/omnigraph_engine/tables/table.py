"""One version of one table, opened for reading or as the base of a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset

from omnigraph_engine.arguments import whole_number
from omnigraph_engine.errors import (
    InvalidArgument,
    ObjectNotFound,
    OmnigraphError,
    SnapshotGone,
    StorageError,
    UnknownProperty,
    did_you_mean,
)
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.blobs import logical_schema
from omnigraph_engine.tables.exact import manifest_path, one_line
from omnigraph_engine.tables.predicates import check_filter

# Columns that Lance computes for every row; they may be asked for by name and are never part of ``schema``.
VIRTUAL_COLUMNS = ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")
_STORE_FAILED = "LanceError(IO)"  # in Lance's text when a file, and not what was asked of it, is the trouble

_IDS = ("id", "src", "dst")
SMALL_ROWS_AT_A_TIME = 64 * 1024
BATCH_BYTES = 2 * 1024 * 1024  # of rows whose size is not known
IO_BUFFER_BYTES = 32 * 1024 * 1024  # read ahead of who consumes a scan; Lance's own limit is gigabytes


@dataclass(frozen=True)
class FragmentInfo:
    """A part of a table that one worker can scan alone."""

    fragment_id: int
    rows: int


@dataclass(frozen=True)
class TableDelta:
    """What a later version of a table has that an earlier one had not."""

    changed: tuple[int, ...]  # fragments that hold all rows which have come; they may hold older rows too
    lost: bool  # whether rows of the earlier version may be gone


@dataclass(frozen=True)
class TableRef:
    """Which version of which table: all that is needed to open it, anywhere."""

    table_key: str
    location: str  # relative to the graph root
    branch: str | None  # the table's own Lance branch; None is its main line
    version: int

    @property
    def path(self) -> str:
        """Where this line of the table lives, relative to the graph root."""
        return self.location if self.branch is None else f"{self.location}/tree/{self.branch}"


class Table:
    """One version of one table. It never moves: what it shows is what that version holds, for ever."""

    def __init__(self, storage: Storage, ref: TableRef) -> None:
        self.storage = storage
        self.ref = ref

    def __getstate__(self) -> dict[str, Any]:
        return {"storage": self.storage, "ref": self.ref}  # what is open stays in this process

    @cached_property
    def dataset(self) -> LanceDataset:
        """The Lance dataset, opened on first use; for this package and its executors only."""
        with self.reading("Opening"):
            return lance.dataset(
                self.storage.uri(self.ref.path), version=self.ref.version, storage_options=self.storage.options or None
            )

    @property
    def schema(self) -> pa.Schema:
        """The columns in stored order, blobs as plain binary."""
        return logical_schema(self.dataset.schema)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word that pyarrow, Lance and Spark users know
        limit: int | None = None,
        fragment_ids: Sequence[int] | None = None,
    ) -> pa.RecordBatchReader:
        """Streams the rows that match ``filter``, in stored order; memory is bounded by a few batches.

        What goes wrong while the stream is consumed is raised there, as the same errors.

        Raises:
            SnapshotGone: the version, or something of it, is not in storage any more.
            InvalidArgument: the filter does not work on the rows.
            StorageError: the store failed.
        """
        self._check_columns(columns)
        if limit is not None:
            whole_number("limit", limit, least=0)
        check_filter(self.dataset, filter, self.ref.table_key)
        fragments: Any = (
            None if fragment_ids is None else [self.dataset.get_fragment(number) for number in fragment_ids]
        )
        with self.reading("Reading", filter):
            scanner = self.dataset.scanner(
                columns=None if columns is None else list(columns),
                filter=filter,
                limit=limit,
                fragments=fragments,
                io_buffer_size=IO_BUFFER_BYTES,
                **self._batches(columns),
                blob_handling="all_binary",
            )
            reader = scanner.to_reader()
        return pa.RecordBatchReader.from_batches(reader.schema, self._consumed(reader, filter))

    def count(self, filter: str | None = None) -> int:  # noqa: A002
        """How many rows there are; without a filter the answer comes from metadata alone."""
        check_filter(self.dataset, filter, self.ref.table_key)
        with self.reading("Counting", filter):
            return int(self.dataset.count_rows(filter))

    def fragments(self) -> list[FragmentInfo]:
        """The parts of the table, from metadata alone."""
        return [FragmentInfo(part.fragment_id, part.count_rows()) for part in self.dataset.get_fragments()]

    def delta_since(self, before: Table) -> TableDelta:
        """What has changed since an earlier version of the same line, from metadata alone."""
        then, now = fragment_marks(before.dataset), fragment_marks(self.dataset)
        changed = tuple(number for number, (files, _) in now.items() if number not in then or then[number][0] != files)
        lost = any(number not in now or now[number] != mark for number, mark in then.items())
        return TableDelta(changed, lost)

    @property
    def _name(self) -> str:
        branch = f" on '{self.ref.branch}'" if self.ref.branch else ""
        return f"{self.ref.table_key} version {self.ref.version}{branch}"

    def _batches(self, columns: Sequence[str] | None) -> dict[str, Any]:
        """Many rows at a time where each is known to be small, because every batch has a price of its own; of others as
        many as memory has room for.
        """
        stored = self.dataset.schema
        wide = [name for name in columns or stored.names if name not in (*_IDS, *VIRTUAL_COLUMNS)]
        small = all(pa.types.is_primitive(stored.field(name).type) for name in wide)
        return {"batch_size": SMALL_ROWS_AT_A_TIME} if small else {"batch_size_bytes": BATCH_BYTES}

    def _check_columns(self, columns: Sequence[str] | None) -> None:
        known = [*self.dataset.schema.names, *VIRTUAL_COLUMNS]
        for name in columns or ():
            if name not in known:
                raise UnknownProperty(
                    f"{self.ref.table_key} has no column '{name}'.",
                    details={"table_key": self.ref.table_key, "column": name},
                    hint=did_you_mean(name, known) or f"Columns: {', '.join(self.dataset.schema.names)}.",
                )

    @contextmanager
    def reading(self, doing: str, filter: str | None = None) -> Iterator[None]:  # noqa: A002
        """Whatever Lance raises inside the block becomes a typed error that says what was being done to this version."""
        try:
            yield
        except OmnigraphError:
            raise
        except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
            raise self._failure(doing, filter, error) from error

    def _consumed(self, batches: pa.RecordBatchReader, filter: str | None) -> Iterator[pa.RecordBatch]:  # noqa: A002
        with self.reading("Reading", filter):
            yield from batches

    def _failure(self, doing: str, filter: str | None, error: Exception) -> OmnigraphError:  # noqa: A002
        gone = self.gone(error)
        if gone is not None:
            return gone
        if filter is not None and not _misses(error) and _STORE_FAILED not in str(error):
            return InvalidArgument(
                f"The filter {filter!r} does not work on {self.ref.table_key}: {one_line(error)}",
                hint="Filters are SQL expressions over the table's columns, e.g. \"age > 30 AND name = 'Ada'\".",
            )
        return StorageError(f"{doing} {self._name} failed: {one_line(error)}")

    def gone(self, error: Exception) -> SnapshotGone | None:
        """What to raise instead of the error, when it misses a file and the store itself says that the version is gone."""
        if not _misses(error) or not self._is_gone():
            return None
        return SnapshotGone(
            f"{self._name} is not in storage any more ('{self.storage.uri(self.ref.path)}').",
            details={"table_key": self.ref.table_key, "line": self.ref.branch, "version": self.ref.version},
            hint="Its branch was deleted, or the version was cleaned up; read a newer snapshot.",
        )

    def _is_gone(self) -> bool:
        """Whether the store itself says that something of this version is not there. Raises when it does not answer.

        A store that shows nothing at all, such as a disk that is not mounted, says nothing about one version.
        """
        if not self.storage.list(limit=1):
            return False
        if not self._has(manifest_path(self.ref.path, self.ref.version)):
            return True
        opened: LanceDataset | None = self.__dict__.get("dataset")  # else there was only the manifest to be found
        return opened is not None and not all(self._has(path) for path in self._files(opened))

    def _files(self, dataset: LanceDataset) -> Iterator[str]:
        """Every data and deletion file that the version names."""
        for part in dataset.get_fragments():
            for file in part.metadata.files:
                yield f"{self.folder(file.base_id)}/data/{file.path}"
            deletions = part.deletion_file()
            if deletions is not None:
                yield f"{self.folder(part.metadata.to_json()['deletion_file']['base_id'])}/{deletions}"

    def folder(self, base: int | None) -> str:
        """The line of the table that a file belongs to, by the number of its base path, relative to the graph root."""
        if base is None:
            return self.ref.path
        bases: dict[int, Any] = self.dataset.base_paths()
        path = str(bases[base].path).rstrip("/")
        return path[path.index(self.ref.location) :]

    def _has(self, path: str) -> bool:
        try:
            self.storage.size(path)
        except ObjectNotFound:
            return False
        return True


def _misses(error: Exception) -> bool:
    return "not found" in str(error).lower()


def fragment_marks(dataset: LanceDataset) -> dict[int, tuple[tuple[str, ...], str | None]]:
    """Per fragment its data files and what says which of its rows are deleted: equal marks mean equal rows."""
    return {
        part.fragment_id: (tuple(file.path for file in part.metadata.files), _file_name(part.deletion_file()))
        for part in dataset.get_fragments()
    }


def _file_name(path: str | None) -> str | None:
    """Without the folder: a fork names the same file by another one."""
    return None if path is None else path.rsplit("/", 1)[-1]
