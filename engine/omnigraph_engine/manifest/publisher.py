"""The publish: the one moment at which a graph commit becomes visible (FORMAT 3.7).

A publish is one merge-insert into ``__manifest`` that must land as the very next version of it. Whoever loses that race reads
again, checks its expectations against what is there now, and tries once more; expectations that no longer hold are a
conflict, and nothing of the commit is visible.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.optimize import Compaction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from omnigraph_engine.errors import CommitNotFound, OmnigraphError, PublishContention, StorageError, VersionConflict
from omnigraph_engine.manifest.dataset import branch_path, open_manifest
from omnigraph_engine.manifest.rows import GraphCommit, GraphHead, TableVersion, to_table
from omnigraph_engine.manifest.state import ManifestState, find_commit
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import ExactHead, commit_exact, latest_version, one_line, open_guarded
from omnigraph_engine.tables.staged import new_transaction_uuid

_log = logging.getLogger(__name__)

PUBLISH_ATTEMPTS = 10
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
    expected: Mapping[str, TablePin]  # by table_key: everything that is updated, and everything validation relied on
    actor: str | None = None
    created_at: int = field(default_factory=lambda: time.time_ns() // 1000)  # microseconds
    extra: Mapping[str, Any] = field(default_factory=dict)
    expected_head: str | None = None  # a commit id, for callers whom any newer commit on the branch would invalidate


@dataclass(frozen=True)
class Published:
    """A commit that is visible."""

    commit: GraphCommit
    attempts: int


def publish(storage: Storage, publication: Publication, *, attempts: int = PUBLISH_ATTEMPTS) -> Published:
    """The commit is visible in full when this returns; when it raises a conflict, nothing of it is or ever will be.

    Publishing one commit id twice is harmless: the second call finds the first one's commit. That also settles the case
    of an answer that was lost on the way.

    Raises:
        VersionConflict: an expectation no longer holds; details have table_key, expected and actual.
        PublishContention: others won every attempt. Nothing is visible; the call may be repeated as it is.
        StorageError: the store failed on the last attempt; repeat the call to learn the outcome.
    """
    retrying = Retrying(
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.01, max=0.5),
        retry=retry_if_exception_type((PublishContention, StorageError)),
        reraise=True,
    )
    for attempt in retrying:
        with attempt:
            manifest = open_manifest(storage, publication.branch)
            commit = find_commit(manifest.rows, publication.commit_id)  # an earlier attempt may have landed after all
            if commit is None:
                check_expectations(manifest.state, publication)
                commit = _swap(storage, manifest.state, publication)
            return Published(commit, attempt.retry_state.attempt_number)
    raise AssertionError("unreachable: the last attempt returns or raises")


def check_expectations(state: ManifestState, publication: Publication) -> None:
    """Raises ``VersionConflict`` unless every pinned table, and the head when given, is what the publication was built on."""
    for table_key, pin in publication.expected.items():
        table = state.tables.get(table_key)
        if table is None or TablePin(table.version, table.branch) != pin:
            actual = None if table is None else table.version
            raise _conflict(table_key, pin.version, actual)
    if publication.expected_head is not None and publication.expected_head != state.head.commit_id:
        raise _conflict(f"graph_head:{state.branch_name}", publication.expected_head, state.head.commit_id)


def _conflict(table_key: str, expected: int | str, actual: int | str | None) -> VersionConflict:
    return VersionConflict(
        f"version conflict on {table_key}: expected {expected}, found {actual}.",
        details={"table_key": table_key, "expected": expected, "actual": actual},
        hint="Another commit changed it first; nothing of this one is visible. Read again and retry.",
    )


def _swap(storage: Storage, state: ManifestState, publication: Publication) -> GraphCommit:
    commit = GraphCommit(
        commit_id=publication.commit_id,
        manifest_version=state.version + 1,
        branch=publication.branch,
        created_at=publication.created_at,
        parent_id=state.head.commit_id,
        actor=publication.actor,
        extra=publication.extra,
    )
    head = GraphHead(publication.branch, commit.commit_id, commit.parent_id)
    rows = to_table([*(update.to_row() for update in publication.updates), commit.to_row(), head.to_row()])
    path = branch_path(publication.branch)
    dataset, guard = open_guarded(storage, path, state.version)
    merge = dataset.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
    try:
        merge.use_index(False).conflict_retries(0).execute(rows)
    except Exception as error:
        if not _landed(storage, commit):
            raise _failure(storage, state, commit, guard, error) from error
    else:
        _fold(storage, path, dataset)
    return commit


def _landed(storage: Storage, commit: GraphCommit) -> bool:
    """Whether a commit whose answer was lost is visible: its own id stands in the version it was to make."""
    try:
        manifest = open_manifest(storage, commit.branch, commit.manifest_version)
    except CommitNotFound:
        return False
    return find_commit(manifest.rows, commit.commit_id) is not None


def _failure(
    storage: Storage, state: ManifestState, commit: GraphCommit, guard: ExactHead, error: Exception
) -> PublishContention | StorageError:
    """The typed error for a swap that did not land: contention when somebody was faster, else a storage failure."""
    # Lance refuses some swaps over what landed since in words of its own, before it asks the guard.
    if guard.lost or latest_version(storage, branch_path(commit.branch)) != state.version:
        return PublishContention(
            f"Other writers kept publishing on '{state.branch_name}'; commit {commit.commit_id} is not visible.",
            details={"branch": state.branch_name, "commit_id": commit.commit_id},
            hint="Retry, or let fewer jobs commit to this branch at once.",
        )
    return StorageError(f"Publishing on '{state.branch_name}' failed: {one_line(error)}")


def _fold(storage: Storage, path: str, dataset: LanceDataset) -> None:
    """Folds the manifest's small fragments together when there are many. Rows, ids and answers stay the same.

    The commit before it is visible already, so whatever goes wrong here is somebody else's turn later.
    """
    small = [part for part in dataset.get_fragments() if part.physical_rows < ROWS_PER_FOLDED_FRAGMENT]
    if len(small) < FOLD_AT_FRAGMENTS:
        return
    try:
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": ROWS_PER_FOLDED_FRAGMENT})
        done: list[Any] = [task.execute(dataset) for task in plan.tasks]
        if not done:
            return
        groups = [LanceOperation.RewriteGroup(result.original_fragments, result.new_fragments) for result in done]
        rewrite = LanceOperation.Rewrite(groups, [])
        commit_exact(storage, path, dataset, Transaction(dataset.version, rewrite, uuid=new_transaction_uuid()))
    except (OmnigraphError, OSError, ValueError, RuntimeError) as error:
        _log.info("folding %s at version %s was left to a later commit: %s", path, dataset.version, one_line(error))
