"""Loading rows of several types as one graph commit.

Two halves that may run on different machines: ``Load.stage`` streams rows through conform and the row-local checks into
files that nobody can see; ``Load.commit`` checks the rules between rows on what was staged and hands it to the coordinator.
Nothing is visible before the publish, and a violation raises before any table moves.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from omnigraph_engine.commit.coordinator import CommitPlan, Coordinator, PhaseClock, TableChange
from omnigraph_engine.commit.recovery import Recovery
from omnigraph_engine.commit.sidecar import WriterKind, new_operation_id
from omnigraph_engine.commit.steps import steps_of
from omnigraph_engine.commit.transaction import WriteTransaction, capture, while_it_lives
from omnigraph_engine.errors import (
    DuplicateTransaction,
    OperationUndone,
    PublishContention,
    StorageError,
    VersionConflict,
)
from omnigraph_engine.failpoints import Failpoint, effect
from omnigraph_engine.manifest.dataset import Manifest, open_manifest
from omnigraph_engine.manifest.publisher import TablePin
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.schema.contract import SchemaContract
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.model import NodeType, TableType
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.readback import staged_rows
from omnigraph_engine.tables.stage import MAX_ROWS_PER_FILE, stage_append, stage_overwrite
from omnigraph_engine.tables.staged import StagedWrite, StageKind, combine, new_transaction_uuid
from omnigraph_engine.tables.streams import rows_where
from omnigraph_engine.tables.table import Table
from omnigraph_engine.tables.upsert import UpsertPart, seal_upsert_parts, stage_upsert, stage_upsert_part
from omnigraph_engine.write.checks import check_rows
from omnigraph_engine.write.conform import conform
from omnigraph_engine.write.relations import RelationChecks

StagedType = TypeVar("StagedType")


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
    skipped: int = 0  # edges that were left out because a node they name does not exist


@dataclass(frozen=True)
class CommitReceipt:
    """A commit that is visible, and what it did."""

    commit: GraphCommit | None  # None: there was nothing to do, so nothing was committed
    tables: Mapping[str, TableReceipt] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)  # per phase
    table_seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # the phases that go table by table
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
        self.minted_ids = not isinstance(table, NodeType) or not table.key

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for given in self._source:
                self.minted_ids = self.minted_ids and not _gives_ids(given)
                batch = conform(given, self._accepted, self._table)
                check_rows(batch, self._table)
                yield batch
        except Exception as error:
            self.failure = error
            raise


class Load:
    """One load: captured once, staged anywhere, then checked and committed in one place.

    It may be pickled: workers on other machines ``stage`` against the very versions that it was captured with, and whoever
    unpickles it may ``commit`` what they staged. However many do, and whether they know of each other or not, it becomes one
    commit: that carries ``operation_id``, and who does not commit on the view of the beginning looks for it first. Two who
    look at the same moment meet at the tables, which only one of them moves.
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
        skip_dangling: bool = False,
    ) -> None:
        self.operation_id = new_operation_id()  # names what its workers leave behind until it is committed
        self._storage = storage
        self._contract = contract
        self._branch = branch
        self._actor = actor
        self._message = message
        self._app_transaction = app_transaction
        self._options = options or WriteOptions()
        self._recovery = recovery
        self._max_rows_per_file = max_rows_per_file
        self._skip_dangling = skip_dangling
        self._skipped = Counter[str]()
        self._clock = PhaseClock()
        with self._clock.phase("capture"):
            self._view: WriteTransaction | None = capture(storage, contract, branch)
        self._life = self._view.manifest.info
        self._base = {key: self._view.table(key).ref for key in self._view.state.tables}
        self._replayed = self._replay(self._view)

    def __getstate__(self) -> dict[str, Any]:
        # What this process has open or has seen stays here; the versions that workers stage on travel in ``_base``.
        return {**self.__dict__, "_view": None, "_recovery": None}

    @property
    def accepted(self) -> AcceptedSchema:
        return self._contract.accepted

    def table_type(self, table_key: str) -> TableType:
        return self._types[table_key]

    @property
    def replayed(self) -> CommitReceipt | None:
        """The receipt when the application's transaction is in the graph already: nothing is left to do."""
        return self._replayed

    def stage(self, table_key: str, batches: Iterable[pa.RecordBatch], mode: LoadMode) -> StagedWrite | None:
        """Streams rows into files that nobody can see, or None when they would change nothing. Any worker may call it.

        Raises:
            OmnigraphError: A row does not fit the type or breaks a rule that it can break on its own.
        """
        stage = {
            LoadMode.APPEND: stage_append,
            LoadMode.OVERWRITE: stage_overwrite,
            LoadMode.MERGE: stage_upsert,
        }[mode]
        return self._stage(stage, table_key, batches)

    def stage_part(self, table_key: str, batches: Iterable[pa.RecordBatch], mode: LoadMode) -> str | None:
        """As ``stage``, for one of several workers that stage rows of one table; what they return ``gather`` takes.

        The text is plain data, and its length follows the number of files, never the number of rows.
        """
        part: StagedWrite | UpsertPart | None
        if mode is LoadMode.MERGE:
            part = self._stage(partial(stage_upsert_part, operation_id=self.operation_id), table_key, batches)
        else:
            part = self.stage(table_key, batches, mode)
        return None if part is None else part.to_json()

    def gather(self, table_key: str, parts: Iterable[str], mode: LoadMode) -> StagedWrite | None:
        """One write of what the workers staged of a table. Overwriting with no rows at all empties it."""
        if mode is not LoadMode.MERGE:
            gathered = combine([StagedWrite.from_json(text) for text in parts])
            return self.stage(table_key, (), mode) if gathered is None else gathered
        with self._clock.phase("gather", table_key), effect(Failpoint.STAGE), while_it_lives(self._storage, self._life):
            return seal_upsert_parts(self._table(table_key), [UpsertPart.from_json(text) for text in parts])

    def _stage(self, stage: Callable[..., StagedType], table_key: str, batches: Iterable[pa.RecordBatch]) -> StagedType:
        rows = _Conformed(self._contract, self._types[table_key], batches)
        try:
            with (
                self._clock.phase("stage", table_key),
                effect(Failpoint.STAGE),
                while_it_lives(self._storage, self._life),
            ):
                staged = stage(self._table(table_key), rows, max_rows_per_file=self._max_rows_per_file)
        except StorageError:
            if rows.failure is not None:
                raise rows.failure from None
            raise
        if isinstance(staged, StagedWrite) and rows.minted_ids:
            return replace(staged, minted_ids=True)
        return staged

    def _table(self, table_key: str) -> Table:
        """The version that this load was captured with."""
        return Table(self._storage, self._base[table_key]) if self._view is None else self._view.table(table_key)

    def commit(self, parts: Iterable[StagedWrite]) -> CommitReceipt:
        """All that was staged for this load, by however many workers, is visible as one commit, or none of it is.

        The rules between rows are checked first, on the staged rows as they are in storage. An insert or merge that others
        were faster than is prepared anew on the newer state, with the files it has. A load that is committed already, by
        whoever had it before an answer was lost, is not committed again: its receipt is that of the commit that is there.

        Raises:
            ConstraintViolation: a rule between rows does not hold; nothing has moved.
            VersionConflict, OperationUndone, PublishContention: others were faster, for an overwrite once, for an insert
                or merge until the budget ended. Nothing is visible; the load may be repeated.
            BranchNotFound: the branch was deleted meanwhile; nothing is visible, also where the name has a new life.
            OutcomeUnknown: the store failed while the commit was being decided.
        """
        with while_it_lives(self._storage, self._life):
            return self._committed(parts)

    def _committed(self, parts: Iterable[StagedWrite]) -> CommitReceipt:
        staged = self._combined(parts)
        if self._replayed is not None:
            return self._replayed
        if not staged:
            return self._receipt(None)
        recovery = self._recovery or Recovery(self._storage, wait_limit=self._options.patience)
        deadline = time.monotonic() + self._options.patience
        strict = any(write.kind is StageKind.OVERWRITE for write in staged.values())
        view, checked = self._view, None
        for attempt in range(1, self._options.attempts + 1):
            with self._clock.phase("wait"):
                recovery.barrier(self._branch, frozenset(staged))
            if view is None:
                with self._clock.phase("capture"):
                    view = capture(self._storage, self._contract, self._branch, life=self._life)
                if (done := self._done_before(view, attempt)) is not None:
                    return done
            try:
                staged = {key: self._rebased(write, view) for key, write in staged.items()}
                staged = self._validated(view, staged, checked)
                return self._attempt(view, staged, attempt)
            except (VersionConflict, OperationUndone, PublishContention, DuplicateTransaction):
                if strict or attempt == self._options.attempts or time.monotonic() > deadline:
                    now = capture(self._storage, self._contract, self._branch, life=self._life)
                    if (done := self._done_before(now, attempt)) is not None:
                        return done
                    raise
                view, checked = None, view
                _let_others_go_first(attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _attempt(self, view: WriteTransaction, staged: Mapping[str, StagedWrite], attempt: int) -> CommitReceipt:
        if not staged:
            return self._nothing_left(view)
        # A transaction is of one attempt: no other one, here or elsewhere, may take what it commits for its own.
        staged = {key: replace(write, transaction_uuid=new_transaction_uuid()) for key, write in staged.items()}
        changes = tuple(
            TableChange(key, steps_of(view.table(key), write), write.rows_after(view.published(key).row_count))
            for key, write in staged.items()
        )

        def revalidate(manifest: Manifest) -> None:
            if manifest.find_request(self.operation_id) is not None:
                # Whoever left out other edges touched other types; then the nodes that we read have moved in between.
                raise VersionConflict(f"The load {self.operation_id} has just been committed by somebody else.")
            newer = WriteTransaction(self._storage, manifest, self._contract)
            RelationChecks(newer, staged, since=view).run()

        done = {
            key: {
                "inserted": write.rows_inserted,
                "updated": write.rows_updated,
                "deleted": _deleted(write, view.published(key).row_count),
                "skipped": self._skipped[key],
            }
            for key, write in staged.items()
        }
        for key in self._skipped.keys() - staged.keys():  # nothing of it was left
            done[key] = {"inserted": 0, "updated": 0, "deleted": 0, "skipped": self._skipped[key]}
        plan = CommitPlan(
            kind=WriterKind.LOAD,
            changes=changes,
            actor=self._actor,
            extra={
                **({} if self._message is None else {"message": self._message}),
                "request": self.operation_id,
                "metrics": done,
            },
            app_transaction=self._app_transaction,
            revalidate=revalidate,
        )
        committed = Coordinator(view, plan, lease=self._options.lease, clock=self._clock).run()
        rows_after = {change.table_key: change.rows_after for change in changes}
        tables = {}
        for key, counts in done.items():
            before = view.published(key)
            version = committed.versions.get(key, before.version)
            tables[key] = TableReceipt(version=version, rows=rows_after.get(key, before.row_count), **counts)
        return self._receipt(committed.commit, tables, attempt)

    def _receipt(
        self, commit: GraphCommit | None, tables: Mapping[str, TableReceipt] | None = None, attempts: int = 0
    ) -> CommitReceipt:
        return CommitReceipt(commit, tables or {}, dict(self._clock.seconds), dict(self._clock.tables), attempts)

    def _validated(
        self, view: WriteTransaction, staged: Mapping[str, StagedWrite], checked: WriteTransaction | None
    ) -> dict[str, StagedWrite]:
        """What may be committed: all that is staged, or, where that was asked for, all but its dangling edges."""
        with self._clock.phase("validate"):
            kept = self._without_dangling(view, staged) if self._skip_dangling else dict(staged)
            RelationChecks(view, kept, since=checked).run()
            return kept

    def _without_dangling(self, view: WriteTransaction, staged: Mapping[str, StagedWrite]) -> dict[str, StagedWrite]:
        """The same writes without the edges of which a node does not exist: the files that hold some are written anew."""
        kept = dict(staged)
        for key, lost in RelationChecks(view, staged).dangling().items():
            rows = rows_where(staged_rows(view.table(key), staged[key]), ~lost)
            stage = {StageKind.APPEND: stage_append, StageKind.OVERWRITE: stage_overwrite}.get(staged[key].kind)
            again = (stage or stage_upsert)(view.table(key), rows, max_rows_per_file=self._max_rows_per_file)
            self._skipped[key] += int(lost.sum())
            if again is None:
                del kept[key]
            else:
                kept[key] = again
        return kept

    def _nothing_left(self, view: WriteTransaction) -> CommitReceipt:
        tables = {
            key: TableReceipt(view.published(key).version, view.published(key).row_count, 0, 0, 0, skipped)
            for key, skipped in self._skipped.items()
        }
        return self._receipt(None, tables)

    def _combined(self, parts: Iterable[StagedWrite]) -> dict[str, StagedWrite]:
        by_key: dict[str, list[StagedWrite]] = {}
        for part in parts:
            by_key.setdefault(part.table_key, []).append(part)
        # In the schema's order, nodes before edges, whatever the order of the parts.
        return {key: write for key in self._types if (write := combine(by_key.get(key, ()))) is not None}

    def _rebased(self, write: StagedWrite, view: WriteTransaction) -> StagedWrite:
        """The staged write on the version that ``view`` pins; what it staged for an older one is used again."""
        published = view.published(write.table_key)
        if view.pin(write.table_key) == TablePin(write.base_version, write.line):
            return write
        if write.kind is StageKind.APPEND:
            # New rows name nothing of the table they come to, so their files are good for any version and line of it.
            return replace(write, base_version=published.version)
        if write.kind is StageKind.UPSERT:
            staged_on = Table(
                self._storage, replace(self._base[write.table_key], branch=write.line, version=write.base_version)
            )
            with self._clock.phase("stage", write.table_key), effect(Failpoint.STAGE):
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

    def _done_before(self, view: WriteTransaction, attempt: int) -> CommitReceipt | None:
        """The receipt when this very load, or another run of the application's transaction, is in the graph already."""
        commit = view.manifest.find_request(self.operation_id)
        if commit is None:
            return self._replay(view)
        then = open_manifest(self._storage, commit.branch, commit.manifest_version).state
        tables = {
            key: TableReceipt(version=then.tables[key].version, rows=then.tables[key].row_count, **done)
            for key, done in commit.extra["metrics"].items()
        }
        return self._receipt(commit, tables, attempt)

    @property
    def _types(self) -> dict[str, TableType]:
        return {table.table_key: table for table in self._contract.accepted.catalog.table_types()}


def _gives_ids(batch: pa.RecordBatch) -> bool:
    return "id" in batch.schema.names and batch.column("id").null_count < batch.num_rows


def _deleted(write: StagedWrite, rows_before: int) -> int:
    # Each part of an overwrite deletes the whole table, so their sum says nothing.
    return rows_before if write.kind is StageKind.OVERWRITE else write.rows_deleted


def _let_others_go_first(defeats: int) -> None:
    time.sleep(random.uniform(0, min(0.2, 0.01 * 2 ** min(defeats, 6))))  # noqa: S311 - jitter, not a secret
