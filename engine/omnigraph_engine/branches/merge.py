"""Merging one branch into another: by entity, in one commit, or not at all.

The base is the nearest commit that both contain. A table that only the source changed is adopted as the source has it, by
name alone. A table that both changed is merged by entity: what the source did since the base is staged on top of what the
target has. Conflicts are data; as long as one is unresolved nothing is committed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa

from omnigraph_engine.branches.ancestry import by_id, nearest_common
from omnigraph_engine.branches.conflicts import ConflictList, report, way_out
from omnigraph_engine.branches.plan import MergePlan, TableMerge
from omnigraph_engine.branches.rules import check_crosswise, check_together
from omnigraph_engine.branches.three_way import Granularity, Resolution
from omnigraph_engine.commit.coordinator import CommitPlan, Coordinator, PhaseClock
from omnigraph_engine.commit.recovery import Recovery
from omnigraph_engine.commit.sidecar import WriterKind
from omnigraph_engine.commit.transaction import WriteTransaction, capture
from omnigraph_engine.errors import (
    InvalidArgument,
    MergeConflict,
    OperationUndone,
    PublishContention,
    VersionConflict,
)
from omnigraph_engine.manifest.dataset import Manifest, living_manifests, open_former, open_manifest
from omnigraph_engine.manifest.refs import read_ref, stored_branch
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.schema.contract import SchemaContract
from omnigraph_engine.storage import Storage

ATTEMPTS = 20


class MergeOutcome(str, Enum):
    UP_TO_DATE = "already up to date"
    FAST_FORWARD = "fast-forward"
    MERGED = "merged"
    CONFLICTS = "conflicts"  # only of a dry run; otherwise they raise


@dataclass(frozen=True)
class MergeResult:
    """What a merge did, or would do."""

    outcome: MergeOutcome
    source: str
    into: str
    base_commit: str
    source_commit: str
    commit: GraphCommit | None  # None: nothing was committed
    tables: Mapping[str, TableMerge] = field(default_factory=dict)
    conflicts: pa.Table = field(default_factory=lambda: ConflictList().to_arrow(resolved=False))
    resolved: pa.Table = field(default_factory=lambda: ConflictList().to_arrow(resolved=True))
    seconds: Mapping[str, float] = field(default_factory=dict)

    def report(self) -> str:
        """The unresolved conflicts, for people."""
        return report(self.conflicts)


OnConflict = str | Mapping[str, str]
_Choice = TypeVar("_Choice", Resolution, Granularity)


class Merge:
    """One merge: the source's commit is captured once; the target is captured anew for each attempt."""

    def __init__(
        self,
        storage: Storage,
        contract: SchemaContract,
        source: str,
        into: str,
        *,
        actor: str | None,
        message: str | None,
        on_conflict: OnConflict,
        granularity: str,
        lease: float,
        recovery: Recovery,
    ) -> None:
        if source == into:
            raise InvalidArgument(f"'{source}' cannot be merged into itself.")
        self._storage = storage
        self._contract = contract
        self._source = open_manifest(storage, stored_branch(source))
        self._source_name, self._target_name = source, into
        self._actor = actor
        self._message = message
        self._types = {table.table_key: table for table in contract.accepted.catalog.table_types()}
        self._resolutions = self._chosen(on_conflict)
        self._granularity = _option(Granularity, "granularity", granularity)
        self._lease = lease
        self._recovery = recovery
        self._clock = PhaseClock()

    def run(self, *, dry_run: bool) -> MergeResult:
        """The merge is visible as one commit with two parents when this returns, unless there was nothing to do.

        Raises:
            MergeConflict: the sides contradict each other; nothing was committed. ``conflicts`` holds all of it.
            VersionConflict, PublishContention, OperationUndone: the target kept moving; nothing was committed.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt(dry_run=dry_run)
            except (VersionConflict, PublishContention, OperationUndone):  # noqa: PERF203 - each attempt is a commit
                if attempt == ATTEMPTS or self._source_is_gone():
                    raise
                time.sleep(random.uniform(0, min(0.2, 0.01 * 2 ** min(attempt, 6))))  # noqa: S311 - jitter
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _attempt(self, *, dry_run: bool) -> MergeResult:
        branch = stored_branch(self._target_name)
        if not dry_run:
            with self._clock.phase("wait"):
                self._recovery.barrier(branch, frozenset(self._types))
        with self._clock.phase("capture"):
            view = capture(self._storage, self._contract, branch)
            history = self._history(view.manifest)
            source_head, target_head = self._source.state.head.commit_id, view.state.head.commit_id
            base_id, *other_bases = nearest_common(source_head, target_head, history)
        if base_id == source_head:
            return self._result(MergeOutcome.UP_TO_DATE, base_id)
        with self._clock.phase("plan"):
            plan = MergePlan(
                view,
                base=self._manifest_of(base_id, history),
                source=self._source,
                resolutions=self._resolutions,
                granularity=self._granularity,
            )
            plan.make()
            for other in other_bases:
                check_crosswise(plan, self._manifest_of(other, history))
            check_together(plan)
        outcome = MergeOutcome.FAST_FORWARD if base_id == target_head else MergeOutcome.MERGED
        unresolved = plan.conflicts.to_arrow(resolved=False)
        if unresolved.num_rows or dry_run:
            plan.discard()
        if unresolved.num_rows and not dry_run:
            raise MergeConflict(
                f"Merging '{self._source_name}' into '{self._target_name}' has {unresolved.num_rows} conflict(s):\n"
                f"{report(unresolved)}",
                details={"count": unresolved.num_rows, "base": base_id, "source": source_head, "target": target_head},
                hint=way_out(unresolved, 'merge with on_conflict="ours" or "theirs"; dry_run=True gives them as data'),
                conflicts=unresolved,
            )
        if unresolved.num_rows:
            outcome = MergeOutcome.CONFLICTS
        commit = None if dry_run else self._commit(view, plan, base_id)
        return self._result(outcome, base_id, commit=commit, plan=plan)

    def _commit(self, view: WriteTransaction, plan: MergePlan, base_id: str) -> GraphCommit:
        resolved = plan.conflicts.to_arrow(resolved=True)
        told: dict[str, Any] = {
            "source": self._source_name,
            "source_version": self._source.version,
            "base": base_id,
        }
        if resolved.num_rows:
            counted = resolved.group_by(["type", "kind", "resolution"]).aggregate([("id", "count")])
            told["resolved"] = counted.rename_columns(["type", "kind", "resolution", "count"]).to_pylist()
        commit_plan = CommitPlan(
            kind=WriterKind.BRANCH_MERGE,
            changes=plan.changes(),
            adoptions=plan.adoptions(),
            merged=self._source,
            actor=self._actor,
            extra={
                **({} if self._message is None else {"message": self._message}),
                "merge": told,
                "metrics": {key: asdict(table) for key, table in plan.told().items()},
            },
        )
        return Coordinator(view, commit_plan, lease=self._lease, clock=self._clock).run().commit

    def _result(
        self, outcome: MergeOutcome, base_id: str, *, commit: GraphCommit | None = None, plan: MergePlan | None = None
    ) -> MergeResult:
        found = ConflictList() if plan is None else plan.conflicts
        return MergeResult(
            outcome=outcome,
            source=self._source_name,
            into=self._target_name,
            base_commit=base_id,
            source_commit=self._source.state.head.commit_id,
            commit=commit,
            tables={} if plan is None else plan.told(),
            conflicts=found.to_arrow(resolved=False),
            resolved=found.to_arrow(resolved=True),
            seconds=dict(self._clock.seconds),
        )

    def _history(self, target: Manifest) -> dict[str, GraphCommit]:
        """The commits of both sides, and of other branches where something of theirs was merged."""
        known = by_id([*self._source.commits(), *target.commits()])
        if any(commit.merged_parent_id not in (None, *known) for commit in known.values()):
            for manifest in living_manifests(self._storage):
                known |= by_id(manifest.commits())
        return {**_former_commits(known.values()), **known}

    def _manifest_of(self, commit_id: str, history: Mapping[str, GraphCommit]) -> Manifest:
        """The graph as it was at a commit, whose branch may have been deleted since."""
        commit = history[commit_id]
        return open_former(self._storage, commit.branch, commit.manifest_version)

    def _source_is_gone(self) -> bool:
        return read_ref(self._storage, self._source_name) != self._source.info

    def _chosen(self, on_conflict: OnConflict) -> dict[str, Resolution]:
        if isinstance(on_conflict, str):
            return dict.fromkeys(self._types, _option(Resolution, "on_conflict", on_conflict))
        names = {name for table in self._types.values() for name in (table.name, table.table_key)}
        unknown = set(on_conflict) - names
        if unknown:
            raise InvalidArgument(f"on_conflict names types that are not in the schema: {', '.join(sorted(unknown))}.")
        return {
            key: _option(Resolution, "on_conflict", on_conflict.get(table.name, on_conflict.get(key, "fail")))
            for key, table in self._types.items()
        }


def _former_commits(known: Iterable[GraphCommit]) -> dict[str, GraphCommit]:
    """Commits of branches that may have been deleted, as far as the merges that brought them in tell."""
    return {
        merge.merged_parent_id: GraphCommit(
            commit_id=merge.merged_parent_id,
            manifest_version=int(merge.extra["merge"]["source_version"]),
            branch=stored_branch(merge.extra["merge"]["source"]),
            created_at=merge.created_at,
            parent_id=merge.extra["merge"]["base"],
        )
        for merge in known
        if merge.merged_parent_id is not None and "merge" in merge.extra
    }


def _option(kind: type[_Choice], name: str, value: str) -> _Choice:
    try:
        return kind(value)
    except ValueError as error:
        choices = ", ".join(choice.value for choice in kind)
        raise InvalidArgument(f"{name} is '{value}'.", hint=f"Use one of {choices}.") from error
