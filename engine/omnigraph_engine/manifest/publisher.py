"""The publish: the one moment at which a graph commit becomes visible (FORMAT 3.7).

A publish is one merge-insert into ``__manifest`` that must land as the very next version of it. Whoever loses that race reads
again, checks its expectations against what is there now, and tries once more; expectations that no longer hold are a
conflict, and nothing of the commit is visible.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.optimize import Compaction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from omnigraph_engine.errors import (
    BranchNotFound,
    DuplicateTransaction,
    OmnigraphError,
    OperationUndone,
    PublishContention,
    StorageError,
    VersionConflict,
)
from omnigraph_engine.manifest.dataset import Manifest, branch_path, open_manifest
from omnigraph_engine.manifest.refs import Identifier
from omnigraph_engine.manifest.rows import (
    MAIN,
    Abort,
    AppTransaction,
    GraphCommit,
    GraphHead,
    Row,
    TableVersion,
    to_table,
)
from omnigraph_engine.manifest.state import ManifestState
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import commit_exact, latest_version, one_line, open_guarded
from omnigraph_engine.tables.staged import new_transaction_uuid

_log = logging.getLogger(__name__)

PUBLISH_ATTEMPTS = 100
# Every publish leaves one small fragment. Reading costs a request or two per fragment, so they are folded together once
# this many stand side by side, into fragments of a bounded size: neither reading nor folding grows with history.
FOLD_AT_FRAGMENTS = 8
ROWS_PER_FOLDED_FRAGMENT = 32_768


@dataclass(frozen=True)
class TablePin:
    """A version of a table that somebody read or built on."""

    version: int
    branch: str | None = None


@dataclass(frozen=True)
class Publication:
    """What one graph commit makes visible, and what must still hold when it does."""

    commit_id: str
    branch: str | None  # None is main
    updates: tuple[TableVersion, ...]
    expected: Mapping[str, TablePin]  # by table_key: every table that is updated, as it was before
    actor: str | None = None
    created_at: int = field(default_factory=lambda: time.time_ns() // 1000)  # microseconds
    extra: Mapping[str, Any] = field(default_factory=dict)
    expected_head: str | None = None  # a commit id, for callers whom any newer commit on the branch would invalidate
    operation_id: str | None = None  # whose abort, when it is there, forbids this publish
    branch_identifier: Identifier | None = None  # the life of the branch it was prepared on
    read_set: Mapping[str, TablePin] = field(default_factory=dict)  # tables that validation relied on
    # Looks at a state in which a table of the read set has moved, and raises when that breaks the commit. Without it any
    # such move is a conflict.
    revalidate: Callable[[Manifest], None] | None = None
    app_transaction: AppTransaction | None = None
    merged_commit_id: str | None = None  # a second parent: what a merge brings in
    abort: Abort | None = None  # published with the commit: the operation that it undoes


@dataclass(frozen=True)
class Published:
    """A commit that is visible."""

    commit: GraphCommit
    attempts: int


def publish(
    storage: Storage,
    publication: Publication,
    *,
    start: Manifest | None = None,
    attempts: int = PUBLISH_ATTEMPTS,
    pause: Callable[[], float] | None = None,
) -> Published:
    """The commit is visible in full when this returns; when it raises a conflict, nothing of it is or ever will be.

    Publishing one commit id twice is harmless: the second call finds the first one's commit. That also settles the case
    of an answer that was lost on the way.

    Args:
        storage: Where the graph is.
        publication: What to publish.
        start: The manifest that the commit was prepared on. The first attempt builds on it unread, and finds out by losing
            the race when it is not the newest any more.
        attempts: How often to try against other publishers.
        pause: How many seconds to wait after a defeat; a random time that grows with their number by default.

    Raises:
        VersionConflict: an expectation no longer holds; details have table_key, expected and actual.
        OperationUndone: a recovery has published the operation's abort.
        DuplicateTransaction: the application's transaction is in the graph already.
        PublishContention: others won every attempt. Nothing is visible; the call may be repeated as it is.
        StorageError: the store failed on the last attempt; repeat the call to learn the outcome.
    """
    retrying = Retrying(
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.005, max=0.1) if pause is None else lambda _state: pause(),
        retry=retry_if_exception_type((PublishContention, StorageError)),
        reraise=True,
    )
    try:
        for attempt in retrying:
            with attempt:
                manifest = start or open_manifest(storage, publication.branch)
                start = None
                commit = manifest.find_commit(publication.commit_id)  # an earlier attempt may have landed after all
                if commit is None:
                    check_expectations(manifest, publication)
                    commit = swap_commit(storage, manifest, publication)
                return Published(commit, attempt.retry_state.attempt_number)
    except PublishContention as contention:
        commit = open_manifest(storage, publication.branch).find_commit(publication.commit_id)  # or the last one
        if commit is not None:
            return Published(commit, attempts)
        raise PublishContention(
            f"Other writers kept publishing on '{publication.branch or MAIN}'; "
            f"commit {publication.commit_id} is not visible.",
            details={"branch": publication.branch or MAIN, "commit_id": publication.commit_id},
            hint="Retry, or let fewer jobs commit to this branch at once.",
        ) from contention
    raise AssertionError("unreachable: the last attempt returns or raises")


def check_expectations(manifest: Manifest, publication: Publication) -> None:
    """Raises unless the manifest still is what the publication was built on, as far as it relied on it."""
    state = manifest.state
    if publication.branch_identifier is not None and publication.branch_identifier != manifest.branch_identifier:
        raise BranchNotFound(
            f"The branch '{state.branch_name}' was deleted and created anew; the commit was prepared on the old one.",
            details={"branch": state.branch_name},
        )
    if publication.operation_id in state.aborts:
        raise OperationUndone(
            f"Operation {publication.operation_id} was taken for abandoned and undone.",
            details={"operation_id": publication.operation_id},
            hint="Nothing of it is visible. Retry; give a longer lease where pauses are normal.",
        )
    if publication.expected_head not in (None, state.head.commit_id):
        raise _conflict(f"graph_head:{state.branch_name}", publication.expected_head, state.head.commit_id)
    _check_transaction(state, publication.app_transaction)
    for table_key, pin in publication.expected.items():
        _check_pin(state, table_key, pin)
    moved = {key: pin for key, pin in publication.read_set.items() if pin_of(state, key) != pin}
    if not moved:
        return
    if publication.revalidate is not None:
        publication.revalidate(manifest)
    else:
        for table_key, pin in moved.items():
            _check_pin(state, table_key, pin)


def pin_of(state: ManifestState, table_key: str) -> TablePin | None:
    """The version of a table that a state publishes, or None when it has no such table."""
    table = state.tables.get(table_key)
    return None if table is None else TablePin(table.version, table.branch)


def _check_transaction(state: ManifestState, transaction: AppTransaction | None) -> None:
    applied = None if transaction is None else state.app_transactions.get(transaction.app_id)
    if transaction is not None and applied is not None and applied.version >= transaction.version:
        raise DuplicateTransaction(
            f"Application '{transaction.app_id}' has committed version {applied.version} already, and this is "
            f"{transaction.version}.",
            details={"app_id": transaction.app_id, "version": applied.version, "commit_id": applied.commit_id},
        )


def _check_pin(state: ManifestState, table_key: str, expected: TablePin) -> None:
    actual = pin_of(state, table_key)
    if actual != expected:
        raise _conflict(table_key, expected.version, None if actual is None else actual.version)


def _conflict(table_key: str, expected: int | str | None, actual: int | str | None) -> VersionConflict:
    return VersionConflict(
        f"version conflict on {table_key}: expected {expected}, found {actual}.",
        details={"table_key": table_key, "expected": expected, "actual": actual},
        hint="Another commit changed it first; nothing of this one is visible. Read again and retry.",
    )


def swap_commit(storage: Storage, manifest: Manifest, publication: Publication) -> GraphCommit:
    """The commit stands in the version right after ``manifest``, or nothing of it is visible. Expectations are not checked.

    Raises:
        PublishContention: somebody else's version stands there.
        StorageError: the store failed, and whether the commit stands is for the caller to find out.
    """
    state = manifest.state
    commit = GraphCommit(
        commit_id=publication.commit_id,
        manifest_version=state.version + 1,
        branch=publication.branch,
        created_at=publication.created_at,
        parent_id=state.head.commit_id,
        merged_parent_id=publication.merged_commit_id,
        actor=publication.actor,
        extra=publication.extra,
    )
    marks = [mark for mark in (publication.app_transaction, publication.abort) if mark is not None]
    head = GraphHead(publication.branch, commit.commit_id, commit.parent_id)
    rows = [row.to_row() for row in (*publication.updates, *marks, commit, head)]
    _swap(storage, manifest, rows)
    return commit


def swap_abort(storage: Storage, manifest: Manifest, abort: Abort) -> None:
    """The abort stands in the version right after ``manifest``, or nothing changed; no commit and no table moves.

    It rewrites the branch's head as it is, so that it collides with every publish under way, other engines' too.
    """
    head = manifest.state.head
    rows = [abort.to_row(), GraphHead(manifest.branch, head.commit_id, head.parent_id).to_row()]
    _swap(storage, manifest, rows)


def _swap(storage: Storage, manifest: Manifest, rows: Sequence[Row]) -> None:
    path = branch_path(manifest.branch)
    branch = manifest.state.branch_name
    lost = PublishContention(f"Another publish on '{branch}' was faster.", details={"branch": branch})
    if manifest.is_overtaken():  # costs next to nothing, and a merge in vain costs a lot
        raise lost
    dataset, guard = open_guarded(storage, path, manifest.version)
    merge = dataset.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
    try:
        merge.use_index(False).conflict_retries(0).execute(to_table(rows))
    except Exception as error:
        # Lance refuses some swaps over what landed since in words of its own, before it asks the guard.
        if guard.lost or latest_version(storage, path) != manifest.version:
            raise lost from error
        raise StorageError(f"Publishing on '{branch}' failed: {one_line(error)}") from error
    _fold(storage, path, dataset)


def _fold(storage: Storage, path: str, dataset: LanceDataset) -> None:
    """Folds the manifest's small fragments together when there are many. Rows, ids and answers stay the same.

    The commit before it is visible already, so whatever goes wrong here is somebody else's turn later.
    """
    small = [part for part in dataset.get_fragments() if part.physical_rows < ROWS_PER_FOLDED_FRAGMENT]
    if len(small) < FOLD_AT_FRAGMENTS:
        return
    try:
        # Opened anew: the guard of the publish would refuse this commit, and knows no HEAD to ask for.
        dataset = lance.dataset(storage.uri(path), version=dataset.version, storage_options=storage.options or None)
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": ROWS_PER_FOLDED_FRAGMENT})
        done: list[Any] = [task.execute(dataset) for task in plan.tasks]
        if not done:
            return
        groups = [LanceOperation.RewriteGroup(result.original_fragments, result.new_fragments) for result in done]
        rewrite = LanceOperation.Rewrite(groups, [])
        commit_exact(storage, path, dataset, Transaction(dataset.version, rewrite, uuid=new_transaction_uuid()))
    except (OmnigraphError, OSError, ValueError, RuntimeError) as error:
        _log.info("folding %s at version %s was left to a later commit: %s", path, dataset.version, one_line(error))
