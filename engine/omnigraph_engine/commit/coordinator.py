"""The commit of a graph: every table of it becomes visible at once, or none does, whatever dies on the way.

    A  arm      write the sidecar: it owns whatever happens from here on
    B  effects  commit every table, exactly at the version it was staged on
    C  publish  one compare-and-swap on the manifest: the only moment of visibility
    D  disarm   delete the sidecar

An attempt ends in one of three ways. *Committed*: the call returns. *Rejected*: it raises, nothing is visible and nothing is
left that blocks anyone. *Unknown*: the store failed while the fate was being decided (``OutcomeUnknown``); the sidecar stays
and whoever writes next decides it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from ulid import ULID

from omnigraph_engine.commit.lines import new_line, owns
from omnigraph_engine.commit.recovery import Fate, settle
from omnigraph_engine.commit.sidecar import (
    RECOVERY,
    Sidecar,
    TableIntent,
    WriterKind,
    new_operation_id,
    now_micros,
    operation_of,
)
from omnigraph_engine.commit.steps import LaterStep, Step
from omnigraph_engine.commit.transaction import WriteTransaction
from omnigraph_engine.errors import (
    BranchNotFound,
    CommitNotFound,
    ObjectExists,
    OmnigraphError,
    OperationUndone,
    OutcomeUnknown,
    SnapshotGone,
    StorageError,
    VersionConflict,
)
from omnigraph_engine.failpoints import Failpoint, effect
from omnigraph_engine.manifest.dataset import Manifest, open_former, open_manifest
from omnigraph_engine.manifest.publisher import Publication, TablePin, publish
from omnigraph_engine.manifest.refs import read_ref
from omnigraph_engine.manifest.rows import AppTransaction, GraphCommit, TableVersion
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import manifest_path, transaction_uuid
from omnigraph_engine.tables.heads import commit_staged, fork
from omnigraph_engine.tables.readback import check_present
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table

_log = logging.getLogger(__name__)

SECONDS_PER_TURN = 0.02  # about what a publish takes
MOST_TURNS = 20


@dataclass(frozen=True)
class TableChange:
    """What a commit does to one table: usually one step, for some operations a planned chain of them."""

    table_key: str
    steps: tuple[Step, ...]
    rows_after: int


@dataclass(frozen=True)
class TableAdoption:
    """A commit that publishes a version of a table which another branch has made."""

    table_key: str
    version: TablePin
    rows_after: int


@dataclass(frozen=True)
class CommitPlan:
    """Everything that one graph commit does, staged and validated."""

    kind: WriterKind
    changes: tuple[TableChange, ...]
    adoptions: tuple[TableAdoption, ...] = ()
    merged: Manifest | None = None  # what a merge brings in; its branch must live until the commit is visible
    actor: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # of the commit: its message and what else is told of it
    app_transaction: tuple[str, int] | None = None  # application id and its own version number
    # Called when a table that validation read has moved by the time of the publish. It looks at what moved and raises
    # when the plan no longer holds. Without it any such move is a conflict.
    revalidate: Callable[[Manifest], None] | None = None


@dataclass
class PhaseClock:
    """How long each phase of a commit took, in seconds; and what of it was for which table, where that can be told."""

    seconds: dict[str, float] = field(default_factory=dict)
    tables: dict[str, dict[str, float]] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, table_key: str | None = None) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            of_table = [] if table_key is None else [self.tables.setdefault(table_key, {})]
            for seconds in (self.seconds, *of_table):
                seconds[name] = seconds.get(name, 0.0) + spent


@dataclass(frozen=True)
class Committed:
    """A commit that is visible, and the version each table reached."""

    commit: GraphCommit
    versions: Mapping[str, int]


class Coordinator:
    """Runs one attempt of one commit."""

    def __init__(self, transaction: WriteTransaction, plan: CommitPlan, *, lease: float, clock: PhaseClock) -> None:
        self._transaction = transaction
        self._storage: Storage = transaction.storage
        # All writers move tables in one order, so that two of them meet at the first table they share.
        self._changes = sorted(plan.changes, key=lambda change: change.table_key)
        self._plan = plan
        self._clock = clock
        self._lease = lease
        self._held_since = 0.0
        self._operation_id = new_operation_id()
        self._sidecar = self._armed()

    def run(self) -> Committed:
        """The plan is visible in full when this returns.

        Raises:
            VersionConflict: the view it was prepared on no longer holds; nothing is visible.
            OperationUndone: a recovery took it for abandoned; nothing is visible.
            OutcomeUnknown: the store failed while it was being decided.
            ObjectNotFound: what was staged is not there any more; nothing happened.
        """
        self._check_staged()
        self._arm()
        try:
            self._check_merged()
        except OmnigraphError as error:
            # A merge that only adopts is whole as soon as it is armed: somebody may be about to publish it.
            return self._settled(error)
        landed = 0
        try:
            for change, intent in zip(self._changes, self._sidecar.tables, strict=False):
                with self._clock.phase("commit", intent.table_key):
                    if intent.forks:
                        self._hold()
                        with effect(Failpoint.FORK):
                            fork(self._transaction.table(intent.table_key), str(intent.branch))
                    for number, step in enumerate(change.steps):
                        self._hold()
                        self._commit_step(intent, intent.expected_version + number, step)
                        landed += 1
            if any(len(change.steps) > 1 for change in self._changes):
                self._confirm()
            with self._clock.phase("publish"):
                self._hold()
                with effect(Failpoint.PUBLISH):
                    published = publish(
                        self._storage, self._publication(), start=self._transaction.manifest, pause=self._turn
                    )
        except VersionConflict as conflict:
            if landed:
                return self._settled(conflict)
            self._disarm()
            raise
        except OmnigraphError as error:
            return self._settled(error)
        self._disarm()
        return self._committed(published.commit)

    def _armed(self) -> Sidecar:
        transaction, plan = self._transaction, self._plan
        commit_id = str(ULID())
        written = {*(change.table_key for change in plan.changes), *(table.table_key for table in plan.adoptions)}
        return Sidecar(
            operation_id=self._operation_id,
            branch=transaction.state.branch,
            actor=plan.actor,
            writer_kind=plan.kind.value,
            tables=(*map(self._intent, self._changes), *map(self._adopted, plan.adoptions)),
            authority=transaction.authority,
            commit_id=commit_id,
            rollback_commit_id=str(ULID()),
            created_at=now_micros(),
            read_set={key: pin for key, pin in transaction.read_set.items() if key not in written},
            extra=plan.extra,
            app_transaction=None if plan.app_transaction is None else AppTransaction(*plan.app_transaction, commit_id),
            merged_commit_id=None if plan.merged is None else plan.merged.state.head.commit_id,
            lease=self._lease,
        )

    def _intent(self, change: TableChange) -> TableIntent:
        published = self._transaction.published(change.table_key)
        branch = self._transaction.manifest.info
        owned = owns(branch, published.branch)
        return TableIntent(
            table_key=change.table_key,
            identity=published.identity,
            branch=published.branch if owned else new_line(branch, self._operation_id),
            expected_version=published.version,
            transactions=tuple(step.transaction_uuid for step in change.steps),
            rows_after=change.rows_after,
            replaces=None if owned else self._transaction.pin(change.table_key),
        )

    def _adopted(self, adoption: TableAdoption) -> TableIntent:
        return TableIntent(
            table_key=adoption.table_key,
            identity=self._transaction.published(adoption.table_key).identity,
            branch=adoption.version.branch,
            expected_version=adoption.version.version,
            transactions=(),
            rows_after=adoption.rows_after,
            replaces=self._transaction.pin(adoption.table_key),
        )

    def _check_staged(self) -> None:
        for change in self._changes:
            for step in change.steps:
                if isinstance(step, StagedWrite):
                    check_present(self._transaction.table(change.table_key), step)

    def _check_merged(self) -> None:
        """Whoever deletes a branch removes the ref first, and keeps the lines that sidecars name. So once ours is armed, a
        ref that still stands means that the lines we adopt are safe.
        """
        merged = self._plan.merged
        if merged is not None and read_ref(self._storage, merged.info.name) != merged.info:
            raise VersionConflict(
                f"The branch '{merged.info.name}' was deleted while it was being merged.",
                details={"table_key": f"branch:{merged.info.name}", "expected": merged.info.life, "actual": None},
                hint="Nothing of it was merged.",
            )

    def _arm(self) -> None:
        """Phase A. When it fails, nothing has happened; a sidecar that landed after all owns nothing and is removed."""
        self._held_since = time.monotonic()  # before the put: an observer's wait can only start later than ours
        try:
            with self._clock.phase("arm"), effect(Failpoint.ARM):
                self._storage.put_if_absent(self._sidecar.path, self._sidecar.to_json(self._storage))
        except ObjectExists:
            raise  # somebody else's, by an accident that does not happen; it is not ours to remove
        except OmnigraphError:
            self._disarm()
            raise

    def _hold(self) -> None:
        """Stops an attempt whose lease may have run out, and renews one that has used up half of it."""
        held = time.monotonic() - self._held_since
        if held >= self._lease:
            raise OperationUndone(
                f"Operation {self._sidecar.operation_id} paused for {held:.1f} s, longer than its lease of "
                f"{self._lease:g} s.",
                details={"operation_id": self._sidecar.operation_id, "lease": self._lease},
                hint="Nothing of it is visible. Retry; give a longer lease where pauses are normal.",
            )
        if held >= self._lease / 2:
            self._rewrite(self._sidecar.renewed())

    def _confirm(self) -> None:
        """A chain has landed in full: from here on it may be finished by anyone who knows its last version alone."""
        self._hold()
        with self._clock.phase("confirm"), effect(Failpoint.CONFIRM):
            self._rewrite(self._sidecar.confirmed())

    def _rewrite(self, sidecar: Sidecar) -> None:
        self._held_since, self._sidecar = time.monotonic(), sidecar
        self._storage.put(sidecar.path, sidecar.to_json(self._storage))

    def _commit_step(self, intent: TableIntent, base_version: int, step: Step) -> None:
        """One exact commit. An answer that was lost is looked up: our own transaction stands there, or nothing of ours."""
        table = self._table(intent, base_version)
        try:
            staged = step.stage(table) if isinstance(step, LaterStep) else step
            staged = replace(staged, base_version=base_version, transaction_uuid=step.transaction_uuid)
            with effect(Failpoint.COMMIT_TABLE):
                commit_staged(table, staged)
        except StorageError:
            if transaction_uuid(self._storage, table.ref.path, base_version + 1) != step.transaction_uuid:
                raise

    def _table(self, intent: TableIntent, version: int) -> Table:
        if version == intent.expected_version and not intent.forks:
            return self._transaction.table(intent.table_key)
        return Table(self._storage, intent.ref(version))

    def _publication(self) -> Publication:
        sidecar = self._sidecar
        return Publication(
            commit_id=sidecar.commit_id,
            operation_id=sidecar.operation_id,
            branch=sidecar.branch,
            branch_identifier=self._transaction.manifest.branch_identifier,
            updates=tuple(self._update(intent) for intent in sidecar.tables),
            expected={intent.table_key: intent.pin for intent in sidecar.tables},
            read_set=sidecar.read_set,
            revalidate=self._plan.revalidate,
            actor=sidecar.actor,
            created_at=sidecar.created_at,
            extra=sidecar.extra,
            app_transaction=sidecar.app_transaction,
            merged_commit_id=sidecar.merged_commit_id,
        )

    def _turn(self) -> float:
        """How long to stand back after a lost publish: the longer a commit has been under way, the sooner its turn comes.

        Operation ids tell who came first. The order is a courtesy that spares everybody lost work; nothing relies on it.
        """
        ahead = sum(operation_of(path) < self._sidecar.operation_id for path in self._storage.list(RECOVERY))
        return SECONDS_PER_TURN * (min(ahead, MOST_TURNS) + random.random() / 4)  # noqa: S311 - jitter

    def _update(self, intent: TableIntent) -> TableVersion:
        manifest = manifest_path(intent.ref(intent.final_version).path, intent.final_version)
        return TableVersion(
            table_key=intent.table_key,
            identity=intent.identity,
            version=intent.final_version,
            branch=intent.branch,
            row_count=intent.rows_after or 0,
            manifest_path=self._storage.store_path(manifest),
            manifest_size=self._storage.size(manifest),
        )

    def _settled(self, error: OmnigraphError) -> Committed:
        """Something may have landed: the fate is decided in the manifest, by the same rules that a recovery follows."""
        sidecar = self._sidecar
        try:
            with self._clock.phase("settle"):
                fate = settle(self._storage, sidecar, owner=True)
            settled = open_manifest(self._storage, sidecar.branch) if fate is Fate.COMMITTED else None
            former = self._committed_before_deletion() if fate is Fate.DISCARDED else None
        except OmnigraphError as failure:
            raise OutcomeUnknown(
                f"Whether commit {sidecar.commit_id} is visible could not be found out: {failure.message}",
                details={"commit_id": sidecar.commit_id, "operation_id": sidecar.operation_id},
                hint="Once the store answers again, graph.commits.show(commit_id) tells; the next write settles it.",
            ) from error
        if former is not None:
            return self._committed(former)
        if fate is Fate.DISCARDED:
            raise BranchNotFound(
                f"The branch '{sidecar.branch}' was deleted while commit {sidecar.commit_id} was under way.",
                details={"branch": sidecar.branch},
                hint="Nothing of it is visible.",
            ) from error
        if settled is None and isinstance(error, SnapshotGone) and any(intent.forks for intent in sidecar.tables):
            raise OperationUndone(
                f"Operation {sidecar.operation_id} was taken for abandoned and undone.",
                details={"operation_id": sidecar.operation_id},
                hint="Nothing of it is visible. Retry; give a longer lease where pauses are normal.",
            ) from error
        if settled is None:
            raise error
        commit = settled.find_commit(sidecar.commit_id)
        assert commit is not None  # noqa: S101 - settled as committed
        return self._committed(commit)

    def _committed_before_deletion(self) -> GraphCommit | None:
        """The commit when somebody finished it and the branch was deleted after that. It may have been merged elsewhere by
        then, so its writer must not be told that it is nowhere. The versions of a deleted branch stay under its name.
        """
        try:
            for version in count(self._transaction.manifest.version + 1):
                former = open_former(self._storage, self._sidecar.branch, version)
                commit = former.find_commit(self._sidecar.commit_id)
                if commit is not None:
                    return commit
        except CommitNotFound:  # that was the newest
            pass
        return None

    def _committed(self, commit: GraphCommit) -> Committed:
        return Committed(commit, {intent.table_key: intent.final_version for intent in self._sidecar.tables})

    def _disarm(self) -> None:
        """Phase D. The fate is sealed; a sidecar that cannot be deleted is consumed by whoever comes next."""
        try:
            with self._clock.phase("disarm"), effect(Failpoint.DISARM):
                self._storage.delete(self._sidecar.path)
        except StorageError as error:
            _log.warning("the sidecar '%s' could not be deleted: %s", self._sidecar.path, error.message)
