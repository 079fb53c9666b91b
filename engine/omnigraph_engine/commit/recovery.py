"""Finishing or undoing what other writers left behind; and our own, when a commit did not go straight through.

One thing decides the fate of an operation: the manifest. Rolling forward publishes its commit under its own id. Rolling back
publishes its abort first, and only then touches a table: from that moment its writer, should it still live, cannot publish.
Every step can be repeated, by anyone, at any time, also by several at once; the model of the protocol explores all of it.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import partial
from itertools import count
from typing import Any

from omnigraph_engine.commit.classify import Standing, TableFacts, Verdict, classify, decide, landed_steps
from omnigraph_engine.commit.shown import shown_lines
from omnigraph_engine.commit.sidecar import Sidecar, TableIntent, now_micros
from omnigraph_engine.commit.watch import Watch
from omnigraph_engine.errors import (
    BranchNotFound,
    GraphDamaged,
    ObjectNotFound,
    PublishContention,
    SidecarUnreadable,
    StorageError,
    VersionConflict,
    WriterBusy,
)
from omnigraph_engine.failpoints import Failpoint, effect
from omnigraph_engine.manifest.audit import RecoveryKind, RecoveryRecord, TableOutcome, record_recovery
from omnigraph_engine.manifest.dataset import Manifest, living_manifests, open_manifest
from omnigraph_engine.manifest.publisher import Publication, TablePin, swap_abort, swap_commit
from omnigraph_engine.manifest.rows import MAIN, Abort, AbortState, TableVersion
from omnigraph_engine.schema.contract import STATE_FILE, recorded_ir_hash
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import manifest_path, transaction_uuid
from omnigraph_engine.tables.heads import drop_line, head_version, line_exists, restore
from omnigraph_engine.tables.table import Table

_log = logging.getLogger(__name__)

RECOVERY_ACTOR = "omnigraph:recovery"
SETTLE_ATTEMPTS = 50
_LOOKS_BEFORE_ASKING = 3  # a living writer deletes its sidecar within a look or two of its publish
LONGEST_CHAIN = 1026  # versions; nobody plans more commits of one table than this
_UNDO_NAMESPACE = uuid.UUID("6f6d6e69-6772-4170-a875-6e646f000000")


class Fate(str, Enum):
    COMMITTED = "committed"
    UNDONE = "undone"
    DISCARDED = "discarded"  # its branch is gone, and everything it did with it


_KINDS = {
    Fate.COMMITTED: RecoveryKind.ROLLED_FORWARD,
    Fate.UNDONE: RecoveryKind.ROLLED_BACK,
    Fate.DISCARDED: RecoveryKind.ORPHANED_BRANCH_DISCARDED,
}


@dataclass(frozen=True)
class _Standing:
    """An operation and how far it got with every table, against one version of the manifest."""

    manifest: Manifest
    facts: Sequence[TableFacts]
    standings: Sequence[Standing]
    verdict: Verdict
    committed: bool


def settle(storage: Storage, sidecar: Sidecar, *, owner: bool = False) -> Fate:
    """The operation is committed, or undone for good, when this returns, and its sidecars are gone.

    Whoever calls it must own the operation or have found it abandoned; a wrong guess costs a living writer its attempt and
    nothing else.

    Args:
        storage: Where the graph is.
        sidecar: The operation.
        owner: Its own writer is asking, which is no recovery as long as it ends in the commit.

    Raises:
        GraphDamaged: a table is behind what the manifest publishes; the sidecar stays for an operator.
        StorageError: the store kept failing; the sidecar stays, and whoever comes next settles it.
    """
    for attempt in range(SETTLE_ATTEMPTS):
        try:
            fate = _step(storage, sidecar, owner=owner)
        except (PublishContention, VersionConflict):
            _pause(attempt)
            continue
        if fate is not None:
            return fate
    raise StorageError(
        f"Operation {sidecar.operation_id} could not be settled: other writers won {SETTLE_ATTEMPTS} times.",
        details={"operation_id": sidecar.operation_id},
        hint="Nothing is lost; the next write settles it.",
    )


def _step(storage: Storage, sidecar: Sidecar, *, owner: bool) -> Fate | None:
    """One durable step towards the operation's fate, chosen anew from what is true now; None while there are more."""
    try:
        manifest = open_manifest(storage, sidecar.branch)
    except BranchNotFound:
        return _discard(storage, sidecar)
    if sidecar.authority is not None and manifest.branch_identifier != sidecar.authority.branch_identifier:
        return _discard(storage, sidecar)
    found = _stand(storage, sidecar, manifest)
    if found.verdict is Verdict.CLEAN:
        fate = Fate.COMMITTED if found.committed else Fate.UNDONE
        if (owner and fate is Fate.COMMITTED) or _audited(storage, _record(storage, sidecar, fate)):
            _forget(storage, sidecar)
        return fate
    if found.verdict is Verdict.REFUSE:
        raise _impossible(sidecar, found)
    if found.verdict is Verdict.ROLL_FORWARD:
        with effect(Failpoint.ROLL_FORWARD):
            try:
                intended = _intended(storage, sidecar)
            except ObjectNotFound:
                return None  # what it adopts was dropped since we looked, so its writer has given up
            swap_commit(storage, manifest, intended)
    elif found.verdict is Verdict.ROLL_BACK:
        with effect(Failpoint.OWN_UNDO):
            storage.put(sidecar.undo_path, sidecar.to_json(storage))
        with effect(Failpoint.ABORT):
            swap_abort(storage, manifest, Abort(sidecar.operation_id, AbortState.UNDOING))
    else:
        for intent in sidecar.tables:
            _undo(storage, sidecar, intent)
        _converge(storage, sidecar)
    return None


def _stand(storage: Storage, sidecar: Sidecar, manifest: Manifest) -> _Standing:
    committed = manifest.find_commit(sidecar.commit_id) is not None
    abort = manifest.state.aborts.get(sidecar.operation_id)
    decided = committed or abort is not None
    facts = [] if decided else [_facts(storage, manifest, intent) for intent in sidecar.tables]
    standings = [classify(intent, found) for intent, found in zip(sidecar.tables, facts, strict=bool(facts))]
    holds = not decided and _authority_holds(storage, sidecar, manifest)
    verdict = decide(standings, committed=committed, abort=abort, authority_holds=holds)
    committed = committed or (verdict is Verdict.CLEAN and abort is None)
    return _Standing(manifest, facts, standings, verdict, committed)


def _facts(storage: Storage, manifest: Manifest, intent: TableIntent) -> TableFacts:
    published = manifest.state.tables.get(intent.table_key)
    pin = (
        TablePin(published.version, published.branch)
        if published is not None and published.identity == intent.identity
        else None
    )
    head = _head(storage, intent)
    return TableFacts(pin, head, _above(storage, intent, head))


def _head(storage: Storage, intent: TableIntent) -> int:
    """The newest version on the operation's line. A line that it adopts from is not its own and moves as it pleases; one that
    it has not forked yet has not moved.
    """
    ref = intent.ref(intent.expected_version)
    if intent.adopts or (intent.forks and not line_exists(storage, ref)):
        return intent.expected_version
    return head_version(storage, ref)


def _above(storage: Storage, intent: TableIntent, head: int) -> list[str | None]:
    path = intent.ref(head).path
    last = min(head, intent.expected_version + LONGEST_CHAIN)
    return [transaction_uuid(storage, path, version) for version in range(intent.expected_version + 1, last + 1)]


def _authority_holds(storage: Storage, sidecar: Sidecar, manifest: Manifest) -> bool:
    """Whether what the operation relied on is still so."""
    if any(intent.adopts for intent in sidecar.tables) and not _source_is_kept(storage, sidecar):
        return False
    state = manifest.state
    for table_key, pin in sidecar.read_set.items():
        table = state.tables.get(table_key)
        if table is None or TablePin(table.version, table.branch) != pin:
            return False
    transaction = sidecar.app_transaction
    applied = None if transaction is None else state.app_transactions.get(transaction.app_id)
    if transaction is not None and applied is not None and applied.version >= transaction.version:
        return False
    expected = None if sidecar.authority is None else sidecar.authority.schema_ir_hash
    return expected is None or expected == recorded_ir_hash(storage.get(STATE_FILE).decode())


def _source_is_kept(storage: Storage, sidecar: Sidecar) -> bool:
    """Whether the versions that a merge is to adopt are safe: a living branch shows them.

    Who deletes that branch from now on finds the sidecar, and keeps them. Who deleted it before may have looked for sidecars
    before this one was there, and be dropping them in this moment; its writer died before it could find that out.
    """
    merged = sidecar.merged_commit_id
    return merged is not None and any(found.find_commit(merged) is not None for found in living_manifests(storage))


def _intended(storage: Storage, sidecar: Sidecar) -> Publication:
    """The commit that the operation was to become."""
    return Publication(
        commit_id=sidecar.commit_id,
        branch=sidecar.branch,
        updates=tuple(_published_as(storage, intent, intent.final_version) for intent in sidecar.tables),
        expected={intent.table_key: intent.pin for intent in sidecar.tables},
        actor=sidecar.actor,
        created_at=sidecar.created_at,
        extra=sidecar.extra,
        app_transaction=sidecar.app_transaction,
        operation_id=sidecar.operation_id,
        merged_commit_id=sidecar.merged_commit_id,
    )


def _published_as(storage: Storage, intent: TableIntent, version: int, row_count: int | None = None) -> TableVersion:
    ref = intent.ref(version)
    if row_count is None:
        row_count = Table(storage, ref).count() if intent.rows_after is None else intent.rows_after
    manifest = manifest_path(ref.path, version)
    return TableVersion(
        table_key=intent.table_key,
        identity=intent.identity,
        version=version,
        branch=intent.branch,
        row_count=row_count,
        manifest_path=storage.store_path(manifest),
        manifest_size=storage.size(manifest),
    )


def undo_uuid(sidecar: Sidecar, intent: TableIntent) -> str:
    """The transaction that undoes an operation on a table. Every recoverer derives the same, so each knows the others'."""
    return str(uuid.uuid5(_UNDO_NAMESPACE, f"{sidecar.operation_id}:{intent.table_key}"))


def _undo(storage: Storage, sidecar: Sidecar, intent: TableIntent) -> None:
    """The table holds what it held before the operation, and no later commit of the operation can land on it.

    Also a table that the operation had not reached is moved, to the same content: its writer may be about to commit there.
    A line of the operation's own is just dropped: nothing that lands on it can ever be named.
    """
    if intent.adopts:
        return
    if intent.forks:
        drop_line(storage, intent.ref(intent.expected_version))
        return
    head = _head(storage, intent)
    above = _above(storage, intent, head)
    mark = undo_uuid(sidecar, intent)
    if mark in above:
        return
    if landed_steps(intent, above) < len(above):
        return  # somebody else's version stands where the operation's was to be: it can never land here
    with effect(Failpoint.RESTORE):
        restore(Table(storage, intent.ref(head)), intent.expected_version, mark)


def _converge(storage: Storage, sidecar: Sidecar) -> None:
    """Publishes the undone tables as they are now: what the manifest pins is HEAD again."""
    manifest = open_manifest(storage, sidecar.branch)
    if manifest.state.aborts.get(sidecar.operation_id) is AbortState.DONE:
        return
    updates = []
    for intent in sidecar.tables:
        published = manifest.state.tables.get(intent.table_key)
        if published is None or TablePin(published.version, published.branch) != intent.pin:
            continue
        undone = _undone_version(storage, sidecar, intent)
        if undone is not None:
            updates.append(_published_as(storage, intent, undone, published.row_count))
    done = Abort(sidecar.operation_id, AbortState.DONE)
    with effect(Failpoint.CONVERGE):
        if not updates:
            swap_abort(storage, manifest, done)
            return
        rollback = Publication(
            commit_id=sidecar.rollback_commit_id,
            branch=sidecar.branch,
            updates=tuple(updates),
            expected={update.table_key: TablePin(update.version, update.branch) for update in updates},
            actor=RECOVERY_ACTOR,
            extra={"message": f"undo of operation {sidecar.operation_id}"},
            abort=done,
        )
        swap_commit(storage, manifest, rollback)


def _undone_version(storage: Storage, sidecar: Sidecar, intent: TableIntent) -> int | None:
    head = _head(storage, intent)
    above = _above(storage, intent, head)
    mark = undo_uuid(sidecar, intent)
    return intent.expected_version + 1 + above.index(mark) if mark in above else None


def _record(storage: Storage, sidecar: Sidecar, fate: Fate) -> RecoveryRecord:
    tables = []
    for intent in sidecar.tables if fate is not Fate.DISCARDED else ():
        target = intent.final_version if fate is Fate.COMMITTED else _undone_version(storage, sidecar, intent)
        tables.append(TableOutcome(intent.table_key, intent.expected_version, target or intent.expected_version))
    return RecoveryRecord(
        operation_id=sidecar.operation_id,
        kind=_KINDS[fate],
        commit_id=sidecar.rollback_commit_id if fate is Fate.UNDONE else sidecar.commit_id,
        actor=sidecar.actor,
        writer_kind=sidecar.writer_kind,
        tables=tuple(tables),
        created_at=datetime.now(timezone.utc),
    )


def _audited(storage: Storage, record: RecoveryRecord) -> bool:
    """Whether the record is in the audit trail. The operation is settled either way; its sidecar asks for another try."""
    try:
        with effect(Failpoint.AUDIT):
            record_recovery(storage, record)
    except StorageError as error:
        _log.warning("the audit row of operation %s is left to the next writer: %s", record.operation_id, error.message)
        return False
    _log.warning(
        "recovery: %s %s of %s (operation %s)",
        record.kind.value,
        record.writer_kind,
        record.actor or "an unnamed actor",
        record.operation_id,
    )
    return True


def _discard(storage: Storage, sidecar: Sidecar) -> Fate:
    """The branch is gone: nothing of the operation can become visible any more.

    A line that it forked may be shown elsewhere all the same, if it was published before, and adopted.
    """
    lines = [intent.ref(intent.expected_version) for intent in sidecar.tables if intent.forks]
    try:
        shown = shown_lines(storage, but=sidecar.operation_id) if lines else set()
        for line in lines:
            if line.branch not in shown:
                drop_line(storage, line)
    except (SidecarUnreadable, WriterBusy) as error:  # nobody knows which lines are shown, so none is dropped
        _log.warning("lines of operation %s stay: %s", sidecar.operation_id, error.message)
    if _audited(storage, _record(storage, sidecar, Fate.DISCARDED)):
        _forget(storage, sidecar)
    return Fate.DISCARDED


def _forget(storage: Storage, sidecar: Sidecar) -> None:
    """Nobody needs the sidecars any more; what cannot be deleted is consumed by whoever comes next."""
    try:
        with effect(Failpoint.CLEAN):
            storage.delete(sidecar.path)
            storage.delete(sidecar.undo_path)
    except StorageError as error:
        _log.warning("the sidecars of operation %s could not be deleted: %s", sidecar.operation_id, error.message)


def _impossible(sidecar: Sidecar, found: _Standing) -> GraphDamaged:
    tables = [
        intent.table_key
        for intent, standing in zip(sidecar.tables, found.standings, strict=True)
        if standing is Standing.IMPOSSIBLE
    ]
    return GraphDamaged(
        f"{', '.join(tables)}: the newest stored version is older than the published one.",
        details={"operation_id": sidecar.operation_id, "table_keys": tables, "sidecar": sidecar.path},
        hint="Versions were deleted by hand or a backup was mixed in. Restore the tables; the sidecar was left in place.",
    )


def _pause(attempt: int) -> None:
    """Lets others go first: a random time that grows with the number of defeats."""
    time.sleep(random.uniform(0, min(0.5, 0.005 * 2 ** min(attempt, 8))))  # noqa: S311 - jitter, not a secret


def _looks_old(sidecar: Sidecar) -> bool:
    """Whether its writer should long be done, going by the clocks of two machines: good enough to forget what is decided."""
    return now_micros() - sidecar.created_at > sidecar.lease * 1e6


class Recovery:
    """The barrier before writes and the sweep at open."""

    def __init__(self, storage: Storage, *, wait_limit: float) -> None:
        self._storage = storage
        self._watch = Watch(storage)
        self._wait_limit = wait_limit

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Recovery, wait_limit=self._wait_limit), (self._storage,)  # what was seen stays in this process

    def barrier(self, branch: str | None, table_keys: frozenset[str]) -> None:
        """No unsettled operation on these tables of this branch stands in the way when this returns.

        A living writer is waited for; one that has been silent for its lease is settled. Without sidecars it costs one
        listing.

        Raises:
            WriterBusy: a living operation on the same tables outlasted the wait.
            SidecarUnreadable: one that concerns this branch cannot be read, so nobody knows what it owns.
        """
        there = set()
        for sighting in self._watch.look():
            if sighting.concerns(branch, table_keys):
                if sighting.unreadable is not None:
                    raise sighting.unreadable
                there.add(sighting.operation_id)
        self._work_off(there, skip_living=False)

    def sweep(self) -> None:
        """Settles every abandoned operation of the graph; those whose writers show that they live are left to them.

        What cannot be read is left to the writes that it concerns: they refuse, and everybody else goes on.
        """
        there = set()
        for sighting in self._watch.look():
            if sighting.unreadable is not None:
                _log.warning("%s", sighting.unreadable)
            else:
                there.add(sighting.operation_id)
        self._work_off(there, skip_living=True)

    def _work_off(self, there: set[str], *, skip_living: bool) -> None:
        """Waits for these operations to end, or ends them. Those that come later are rivals, not obstacles."""
        deadline = time.monotonic() + self._wait_limit
        for look in count():
            if not there:
                return
            waiting: dict[str, Sidecar] = {}
            for sighting in self._watch.look():
                sidecar = sighting.sidecar
                if sidecar is None or sidecar.operation_id not in there:
                    continue
                decided = look >= _LOOKS_BEFORE_ASKING and self._is_decided(sidecar)
                if sighting.abandoned or (decided and _looks_old(sidecar)):
                    settle(self._storage, sidecar)
                    there.discard(sidecar.operation_id)
                elif not decided and not (skip_living and sighting.changed):
                    waiting[sidecar.operation_id] = sidecar
            there &= waiting.keys()
            if there and time.monotonic() > deadline:
                raise self._busy(list(waiting.values()))
            if there and look == _LOOKS_BEFORE_ASKING:
                self._say(list(waiting.values()))
            time.sleep(random.uniform(0.5, 1) * min(0.1, 0.002 * 1.5 ** min(look, 10)) if there else 0)  # noqa: S311 - jitter

    def _is_decided(self, sidecar: Sidecar) -> bool:
        """Whether only the sidecar itself is left of an operation: nothing of it will move any more."""
        try:
            manifest = open_manifest(self._storage, sidecar.branch)
        except BranchNotFound:
            return False
        return (
            manifest.find_commit(sidecar.commit_id) is not None
            or manifest.state.aborts.get(sidecar.operation_id) is AbortState.DONE
        )

    def _say(self, waiting: Sequence[Sidecar]) -> None:
        for sidecar in waiting:
            _log.info(
                "waiting for operation %s of %s on '%s' (at most %s s when its writer is gone)",
                sidecar.operation_id,
                sidecar.actor or "an unnamed actor",
                sidecar.branch or MAIN,
                sidecar.lease,
            )

    def _busy(self, waiting: Sequence[Sidecar]) -> WriterBusy:
        names = [sidecar.operation_id for sidecar in waiting]
        return WriterBusy(
            f"Operation {', '.join(names)} on the same tables was still under way after {self._wait_limit:g} s.",
            details={"operations": names, "tables": sorted(key for sidecar in waiting for key in sidecar.table_keys)},
            hint="Its writer lives and renews its lease. Retry later.",
        )
