"""Loading rows of several types as one graph commit.

Two halves that may run on different machines: ``Load.stage`` streams rows through conform and the row-local checks into
files that nobody can see; ``Load.commit`` checks the rules between rows on what was staged and hands it to the coordinator.
Nothing is visible before the publish, and a violation raises before any table moves.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph_engine.commit.coordinator import CommitPlan, Coordinator, LaterStep, PhaseClock, Step, TableChange
from omnigraph_engine.commit.recovery import Recovery
from omnigraph_engine.commit.sidecar import WriterKind
from omnigraph_engine.commit.transaction import WriteTransaction, capture
from omnigraph_engine.errors import (
    DuplicateTransaction,
    InvalidArgument,
    OperationUndone,
    PublishContention,
    StorageError,
    VersionConflict,
)
from omnigraph_engine.failpoints import Failpoint, effect
from omnigraph_engine.manifest.dataset import Manifest
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.schema.contract import SchemaContract
from omnigraph_engine.schema.model import TableType
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.fold import fold_limit_after, stage_fold
from omnigraph_engine.tables.readback import staged_rows
from omnigraph_engine.tables.stage import MAX_ROWS_PER_FILE, stage_append, stage_overwrite
from omnigraph_engine.tables.staged import StagedWrite, StageKind, combine, new_transaction_uuid
from omnigraph_engine.tables.table import Table
from omnigraph_engine.tables.upsert import stage_upsert
from omnigraph_engine.write.checks import check_rows
from omnigraph_engine.write.conform import conform
from omnigraph_engine.write.relations import RelationChecks


class LoadMode(str, Enum):
    APPEND = "append"  # strict insert: an id that exists is an error
    MERGE = "merge"  # a row whose id exists replaces that row, whole
    OVERWRITE = "overwrite"  # the given types hold these rows and no others


@dataclass(frozen=True)
class TableReceipt:
    """What a commit did to one table."""

    version: int
    rows: int
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True)
class CommitReceipt:
    """A commit that is visible, and what it did."""

    commit: GraphCommit | None  # None: there was nothing to do, so nothing was committed
    tables: Mapping[str, TableReceipt] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)  # per phase
    attempts: int = 0
    replayed: bool = False  # the application's transaction was in the graph already; ``commit`` is the one that did it


@dataclass(frozen=True)
class WriteOptions:
    """How a write behaves when it meets others."""

    lease: float = 30.0  # seconds; a writer that is silent for longer is taken for dead
    attempts: int = 100  # how often an insert or merge is prepared anew when others were faster
    patience: float = 120.0  # seconds after which it is not prepared anew any more


class _Conformed:
    """Rows on their way to files, in the table's schema and with the row-local checks passed.

    Lance reports whatever goes wrong in its input as a failure of its own, so the cause is kept here.
    """

    def __init__(self, contract: SchemaContract, table: TableType, source: Iterable[pa.RecordBatch]) -> None:
        self._accepted = contract.accepted
        self._table = table
        self._source = source
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for given in self._source:
                batch = conform(given, self._accepted, self._table)
                check_rows(batch, self._table)
                yield batch
        except Exception as error:
            self.failure = error
            raise


class Load:
    """One load: captured once, staged anywhere, then checked and committed in one place.

    It may be pickled: workers on other machines ``stage`` against the very versions that it was captured with, and whoever
    unpickles it may ``commit`` what they staged.
    """

    def __init__(
        self,
        storage: Storage,
        contract: SchemaContract,
        branch: str | None,
        *,
        actor: str | None = None,
        message: str | None = None,
        app_transaction: tuple[str, int] | None = None,
        options: WriteOptions | None = None,
        recovery: Recovery | None = None,
        max_rows_per_file: int = MAX_ROWS_PER_FILE,
    ) -> None:
        self._storage = storage
        self._contract = contract
        self._branch = branch
        self._actor = actor
        self._message = message
        self._app_transaction = app_transaction
        self._options = options or WriteOptions()
        self._recovery = recovery
        self._max_rows_per_file = max_rows_per_file
        self._clock = PhaseClock()
        with self._clock.phase("capture"):
            self._view: WriteTransaction | None = capture(storage, contract, branch)
        if branch is not None:
            raise InvalidArgument(
                f"Loading into the branch '{branch}' is not possible yet.", hint="Load into main; branches can be read."
            )
        self._base = {key: self._view.table(key).ref for key in self._view.state.tables}
        self._replayed = self._replay(self._view)

    def __getstate__(self) -> dict[str, Any]:
        # What this process has open or has seen stays here; the versions that workers stage on travel in ``_base``.
        return {**self.__dict__, "_view": None, "_recovery": None}

    @property
    def replayed(self) -> CommitReceipt | None:
        """The receipt when the application's transaction is in the graph already: nothing is left to do."""
        return self._replayed

    def stage(self, table_key: str, batches: Iterable[pa.RecordBatch], mode: LoadMode) -> StagedWrite | None:
        """Streams rows into files that nobody can see, or None when they would change nothing. Any worker may call it.

        Raises:
            OmnigraphError: A row does not fit the type or breaks a rule that it can break on its own.
        """
        table = Table(self._storage, self._base[table_key]) if self._view is None else self._view.table(table_key)
        rows = _Conformed(self._contract, self._types[table_key], batches)
        try:
            with self._clock.phase("stage"), effect(Failpoint.STAGE):
                if mode is LoadMode.APPEND:
                    return stage_append(table, rows, max_rows_per_file=self._max_rows_per_file)
                if mode is LoadMode.OVERWRITE:
                    return stage_overwrite(table, rows, max_rows_per_file=self._max_rows_per_file)
                return stage_upsert(table, rows)
        except StorageError:
            if rows.failure is not None:
                raise rows.failure from None
            raise

    def commit(self, parts: Iterable[StagedWrite]) -> CommitReceipt:
        """All that was staged for this load, by however many workers, is visible as one commit, or none of it is.

        The rules between rows are checked first, on the staged rows as they are in storage. An insert or merge that others
        were faster than is prepared anew on the newer state, with the files it has.

        Raises:
            ConstraintViolation: a rule between rows does not hold; nothing has moved.
            VersionConflict, OperationUndone, PublishContention: others were faster, for an overwrite once, for an insert
                or merge until the budget ended. Nothing is visible; the load may be repeated.
            OutcomeUnknown: the store failed while the commit was being decided.
        """
        staged = self._combined(parts)
        if self._replayed is not None:
            return self._replayed
        if not staged:
            return CommitReceipt(None, seconds=self._clock.seconds)
        recovery = self._recovery or Recovery(self._storage, wait_limit=self._options.patience)
        deadline = time.monotonic() + self._options.patience
        strict = any(write.kind is StageKind.OVERWRITE for write in staged.values())
        view, checked = self._view, None
        for attempt in range(1, self._options.attempts + 1):
            with self._clock.phase("wait"):
                recovery.barrier(self._branch, frozenset(staged))
            if view is None:
                with self._clock.phase("capture"):
                    view = capture(self._storage, self._contract, self._branch)
                if (replayed := self._replay(view)) is not None:
                    return replayed
            try:
                staged = {key: self._rebased(write, view) for key, write in staged.items()}
                with self._clock.phase("validate"):
                    RelationChecks(view, staged, since=checked).run()
                return self._attempt(view, staged, attempt)
            except (VersionConflict, OperationUndone, PublishContention, DuplicateTransaction):
                if strict or attempt == self._options.attempts or time.monotonic() > deadline:
                    if (replayed := self._replay_elsewhere()) is not None:
                        return replayed
                    raise
                view, checked = None, view
                _let_others_go_first(attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _attempt(self, view: WriteTransaction, staged: Mapping[str, StagedWrite], attempt: int) -> CommitReceipt:
        changes = tuple(
            TableChange(key, _steps(view.table(key), write), write.rows_after(view.published(key).row_count))
            for key, write in staged.items()
        )

        def revalidate(manifest: Manifest) -> None:
            newer = WriteTransaction(self._storage, manifest, self._contract)
            RelationChecks(newer, staged, since=view).run()

        plan = CommitPlan(
            kind=WriterKind.LOAD,
            changes=changes,
            actor=self._actor,
            message=self._message,
            app_transaction=self._app_transaction,
            revalidate=revalidate,
        )
        committed = Coordinator(view, plan, lease=self._options.lease, clock=self._clock).run()
        tables = {
            change.table_key: TableReceipt(
                version=committed.versions[change.table_key],
                rows=change.rows_after,
                inserted=staged[change.table_key].rows_inserted,
                updated=staged[change.table_key].rows_updated,
                deleted=_deleted(staged[change.table_key], view.published(change.table_key).row_count),
            )
            for change in changes
        }
        return CommitReceipt(committed.commit, tables, dict(self._clock.seconds), attempt)

    def _combined(self, parts: Iterable[StagedWrite]) -> dict[str, StagedWrite]:
        by_key: dict[str, list[StagedWrite]] = {}
        for part in parts:
            by_key.setdefault(part.table_key, []).append(part)
        # In the schema's order, nodes before edges, whatever the order of the parts.
        return {key: write for key in self._types if (write := combine(by_key.get(key, ()))) is not None}

    def _rebased(self, write: StagedWrite, view: WriteTransaction) -> StagedWrite:
        """The staged write on the version that ``view`` pins; what it staged for an older one is used again."""
        published = view.published(write.table_key)
        if published.version == write.base_version:
            return write
        if write.kind is StageKind.APPEND:
            # New rows name nothing of the table they come to, so their files are good for any version of it.
            return replace(write, base_version=published.version, transaction_uuid=new_transaction_uuid())
        if write.kind is StageKind.UPSERT:
            staged_on = Table(self._storage, replace(self._base[write.table_key], version=write.base_version))
            with self._clock.phase("stage"), effect(Failpoint.STAGE):
                again = stage_upsert(view.table(write.table_key), staged_rows(staged_on, write))
            assert again is not None  # noqa: S101 - it has the rows of ``write``, and that has some
            return again
        raise VersionConflict(
            f"version conflict on {write.table_key}: expected {write.base_version}, found {published.version}.",
            details={
                "table_key": write.table_key,
                "expected": write.base_version,
                "actual": published.version,
            },
            hint="An overwrite replaces what it has seen and nothing newer. Read again and retry.",
        )

    def _replay(self, view: WriteTransaction) -> CommitReceipt | None:
        if self._app_transaction is None:
            return None
        app_id, version = self._app_transaction
        applied = view.state.app_transactions.get(app_id)
        if applied is None or applied.version < version:
            return None
        return CommitReceipt(view.manifest.find_commit(applied.commit_id), replayed=True)

    def _replay_elsewhere(self) -> CommitReceipt | None:
        """The receipt when it was another run of the same transaction that won."""
        if self._app_transaction is None:
            return None
        return self._replay(capture(self._storage, self._contract, self._branch))

    @property
    def _types(self) -> dict[str, TableType]:
        return {table.table_key: table for table in self._contract.accepted.catalog.table_types()}


def _steps(table: Table, write: StagedWrite) -> tuple[Step, ...]:
    """The write itself and, when it leaves too many small fragments, their folding on top of it."""
    limit = fold_limit_after(table, write)
    if limit is None:
        return (write,)
    return (write, LaterStep(new_transaction_uuid(), partial(stage_fold, limit=limit)))


def _deleted(write: StagedWrite, rows_before: int) -> int:
    # Each part of an overwrite deletes the whole table, so their sum says nothing.
    return rows_before if write.kind is StageKind.OVERWRITE else write.rows_deleted


def _let_others_go_first(defeats: int) -> None:
    time.sleep(random.uniform(0, min(0.2, 0.01 * 2 ** min(defeats, 6))))  # noqa: S311 - jitter, not a secret
