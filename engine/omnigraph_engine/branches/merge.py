"""Merging one branch into another: by entity, in one commit, or not at all.

The base is the nearest commit that both contain. A table that only the source changed is adopted as the source has it, by
name alone. A table that both changed is merged by entity: what the source did since the base is staged on top of what the
target has. Conflicts are data; as long as one is unresolved nothing is committed.

``Merge.run`` does all of it in this process. With ``begin`` and ``go_on`` workers elsewhere merge the entities of large tables.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa

from omnigraph_engine.branches.ancestry import ancestors, by_id, nearest_common
from omnigraph_engine.branches.branches import Branches
from omnigraph_engine.branches.conflicts import ConflictList, report, way_out
from omnigraph_engine.branches.plan import MergePlan, TableMerge
from omnigraph_engine.branches.rules import check_crosswise, check_together
from omnigraph_engine.branches.table_merge import MergePart, TableWork
from omnigraph_engine.branches.three_way import Granularity, Resolution
from omnigraph_engine.commit.coordinator import CommitPlan, Coordinator, PhaseClock
from omnigraph_engine.commit.recovery import Recovery
from omnigraph_engine.commit.sidecar import WriterKind
from omnigraph_engine.commit.transaction import WriteTransaction, capture, while_it_lives
from omnigraph_engine.errors import (
    CommitNotFound,
    InvalidArgument,
    MergeConflict,
    OperationUndone,
    PublishContention,
    VersionConflict,
)
from omnigraph_engine.manifest.dataset import Manifest, living_manifests, open_former, open_manifest
from omnigraph_engine.manifest.refs import BranchInfo, read_ref, stored_branch
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.schema.contract import SchemaContract
from omnigraph_engine.schema.model import TableType
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
_Step = TypeVar("_Step")
_MOVED = (VersionConflict, PublishContention, OperationUndone)  # others were faster: what was planned holds no more


@dataclass(frozen=True)
class _Attempt:
    """What one attempt was captured with."""

    plan: MergePlan
    base_id: str
    target_head: str
    other_bases: tuple[Manifest, ...]


@dataclass(frozen=True)
class MergeOptions:
    """What is asked of a merge; ``Graph.merge`` says what each means."""

    actor: str | None = None
    message: str | None = None
    dry_run: bool = False
    delete_branch: bool = False
    on_conflict: OnConflict = "fail"
    granularity: str = "row"


class Merge:
    """One merge: the source's commit is captured once; the target is captured anew for each attempt.

    It may be pickled between two steps: whoever unpickles it may take the next one.
    """

    def __init__(
        self,
        storage: Storage,
        contract: SchemaContract,
        source: str,
        into: str,
        options: MergeOptions,
        *,
        lease: float,
        recovery: Recovery,
    ) -> None:
        if source == into:
            raise InvalidArgument(f"'{source}' cannot be merged into itself.")
        self._storage = storage
        self._contract = contract
        self._source = open_manifest(storage, stored_branch(source))
        self.source = self._source.info
        self._source_name, self._target_name = source, into
        self._target_life: BranchInfo | None = None  # as the first attempt found it
        self._options = options
        self._resolutions = self._chosen(options.on_conflict)
        self._granularity = _option(Granularity, "granularity", options.granularity)
        self._lease = lease
        self._recovery = recovery
        self._clock = PhaseClock()
        self._attempts = 0
        self._under_way: _Attempt | None = None
        if options.delete_branch:
            self._branches.check_deletable(source)

    def run(self) -> MergeResult:
        """The merge is visible as one commit with two parents when this returns, unless there was nothing to do.

        Raises:
            MergeConflict: the sides contradict each other; nothing was committed. ``conflicts`` holds all of it.
            BranchNotFound: one of the branches was deleted meanwhile; nothing was committed.
            VersionConflict, PublishContention, OperationUndone: the target kept moving; nothing was committed.
        """
        return self._concluded(self._persist(lambda: self._prepare() or self._finish({})))

    def begin(self, *, elsewhere: int) -> MergeResult | dict[str, TableWork]:
        """As ``run``, if of no table so many rows are to be read as ``elsewhere`` says. Otherwise nothing has happened yet.

        Returns:
            The result; or, by table key, what workers elsewhere are to do. The parts that they make ``go_on`` takes.
        """
        return self._concluded(self._persist(lambda: self._prepare() or self._works(elsewhere) or self._finish({})))

    def go_on(self, parts: Mapping[str, Sequence[MergePart]], *, elsewhere: int) -> MergeResult | dict[str, TableWork]:
        """The merge, with these parts. When the target has moved meanwhile they are void, and this is as ``begin``."""
        try:
            result = self._finish(parts)
        except _MOVED as error:
            self._give_way(error)
            return self.begin(elsewhere=elsewhere)
        return self._concluded(result)

    def _concluded(self, step: _Step) -> _Step:
        if isinstance(step, MergeResult) and self._options.delete_branch and not self._options.dry_run:
            self._branches.delete_merged(self.source, step.source_commit)
        return step

    def _persist(self, attempt: Callable[[], _Step]) -> _Step:
        while True:
            try:
                return attempt()
            except _MOVED as error:  # noqa: PERF203 - each attempt is a commit
                self._give_way(error)

    def _give_way(self, error: Exception) -> None:
        """Lets others go first, or raises when that has no end or no point."""
        if self._attempts >= ATTEMPTS or self._source_is_gone():
            raise error
        time.sleep(random.uniform(0, min(0.2, 0.01 * 2 ** min(self._attempts, 6))))  # noqa: S311 - jitter

    def _prepare(self) -> MergeResult | None:
        """Captures what the next attempt is made on. Returns the result when there is nothing to merge."""
        self._attempts += 1
        branch = stored_branch(self._target_name)
        if not self._options.dry_run:
            with self._clock.phase("wait"):
                self._recovery.barrier(branch, frozenset(self._types))
        with self._clock.phase("capture"):
            view = capture(self._storage, self._contract, branch, life=self._target_life)
        self._target_life = view.manifest.info
        with self._while_both_live(view):
            with self._clock.phase("capture"):
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
                others = tuple(self._manifest_of(other, history) for other in other_bases)
        self._under_way = _Attempt(plan, base_id, target_head, others)
        return None

    @contextmanager
    def _while_both_live(self, view: WriteTransaction) -> Iterator[None]:
        with while_it_lives(self._storage, self.source), while_it_lives(self._storage, view.manifest.info):
            yield

    def _works(self, elsewhere: int) -> dict[str, TableWork]:
        """What there is to do for the tables of which so many rows are to be read, or more."""
        assert self._under_way is not None  # noqa: S101 - it was prepared
        plan = self._under_way.plan
        with self._clock.phase("plan"), self._while_both_live(plan.view):
            works = {key: plan.work(key) for key in plan.merging}
        return {key: work for key, work in works.items() if work.rows >= elsewhere}

    def _finish(self, parts: Mapping[str, Sequence[MergePart]]) -> MergeResult:
        """Merges the tables of which there are no parts, holds all of it against the rules, and commits it."""
        assert self._under_way is not None  # noqa: S101 - it was prepared
        attempt, self._under_way = self._under_way, None
        with self._while_both_live(attempt.plan.view):
            return self._finished(attempt, parts)

    def _finished(self, attempt: _Attempt, parts: Mapping[str, Sequence[MergePart]]) -> MergeResult:
        plan = attempt.plan
        with self._clock.phase("plan"):
            for key in plan.merging:
                if key in parts:
                    plan.seal(key, parts[key])
                else:
                    plan.stage(key)
            for other in attempt.other_bases:
                check_crosswise(plan, other)
            check_together(plan)
        unresolved = plan.conflicts.to_arrow(resolved=False)
        if unresolved.num_rows or self._options.dry_run:
            plan.discard()
        if unresolved.num_rows and not self._options.dry_run:
            raise self._refusal(unresolved, attempt)
        outcome = MergeOutcome.FAST_FORWARD if attempt.base_id == attempt.target_head else MergeOutcome.MERGED
        if unresolved.num_rows:
            outcome = MergeOutcome.CONFLICTS
        commit = None if self._options.dry_run else self._commit(plan, attempt.base_id)
        return self._result(outcome, attempt.base_id, commit=commit, plan=plan)

    def _refusal(self, unresolved: pa.Table, attempt: _Attempt) -> MergeConflict:
        count = unresolved.num_rows
        return MergeConflict(
            f"Merging '{self._source_name}' into '{self._target_name}' has {count} conflict(s):\n{report(unresolved)}",
            details={
                "count": count,
                "base": attempt.base_id,
                "source": self._source.state.head.commit_id,
                "target": attempt.target_head,
            },
            hint=way_out(unresolved, 'merge with on_conflict="ours" or "theirs"; dry_run=True gives them as data'),
            conflicts=unresolved,
        )

    def _commit(self, plan: MergePlan, base_id: str) -> GraphCommit:
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
            actor=self._options.actor,
            extra={
                **({} if self._options.message is None else {"message": self._options.message}),
                "merge": told,
                "metrics": {key: asdict(table) for key, table in plan.told().items()},
            },
        )
        return Coordinator(plan.view, commit_plan, lease=self._lease, clock=self._clock).run().commit

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
        return self._with_former(known, target.state.head.commit_id)

    def _with_former(self, known: dict[str, GraphCommit], target_head: str) -> dict[str, GraphCommit]:
        """The same with the commits of deleted branches. What such a branch had is read where only one side contains it: a
        commit that both have on ways of their own may be hidden there, and what both share as a whole is common anyway.
        """
        read: set[str] = set()
        while True:
            history = {**_former_commits(known.values()), **known}
            source_head = self._source.state.head.commit_id
            apart = ancestors(source_head, history) ^ ancestors(target_head, history)
            unread = {
                merge.merged_parent_id: merge.extra["merge"]
                for merge in map(history.get, apart)
                if merge is not None and merge.merged_parent_id is not None and "merge" in merge.extra
            }
            unread = {merged: told for merged, told in unread.items() if merged not in known and merged not in read}
            if not unread:
                return history
            for merged, told in unread.items():
                read.add(merged)
                try:
                    former = open_former(self._storage, stored_branch(told["source"]), int(told["source_version"]))
                    known = {**by_id(former.commits()), **known}
                except CommitNotFound:  # it was cleaned up; what the merge itself tells must do
                    continue

    def _manifest_of(self, commit_id: str, history: Mapping[str, GraphCommit]) -> Manifest:
        """The graph as it was at a commit, whose branch may have been deleted since."""
        commit = history[commit_id]
        return open_former(self._storage, commit.branch, commit.manifest_version)

    @property
    def _branches(self) -> Branches:
        return Branches(self._storage, lambda: None)

    @property
    def _types(self) -> dict[str, TableType]:
        return {table.table_key: table for table in self._contract.accepted.catalog.table_types()}

    def _source_is_gone(self) -> bool:
        return read_ref(self._storage, self._source_name) != self.source

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
