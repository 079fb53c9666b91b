"""What each commit of a chaos run must show, by replaying what its writer intended on what its parents show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import content as model
from content import Content, Violation

MAIN = "main"
RECOVERY_ACTOR = "omnigraph:recovery"


@dataclass(frozen=True)
class Commit:
    """A commit as a graph's history shows it."""

    commit_id: str
    parent_id: str | None
    manifest_version: int
    actor: str | None
    tag: str | None  # None: nobody intended it
    merged_id: str | None = None
    # What a merge says of itself:
    source: str | None = None
    source_version: int | None = None
    base_id: str | None = None


@dataclass(frozen=True)
class Merge:
    """What a merge was to do."""

    source: str
    on_conflict: str
    delete_branch: bool


@dataclass
class Operation:
    """What the journals say of one tag."""

    tag: str
    writes: list[dict[str, Any]]
    based_on: str | None
    branch: str = MAIN
    merge: Merge | None = None
    outcomes: list[str | None] = field(default_factory=list)  # one for each try; None when its process died in it
    commits: set[str] = field(default_factory=set)  # that its writer was told

    @property
    def replaces(self) -> bool:
        """It replaces whole types, so that a changed base is a conflict for its caller."""
        return any(write["mode"] == "overwrite" for write in self.writes)


class Past:
    """Every commit that anybody has seen, of main and of branches that may be gone."""

    def __init__(self, operations: Mapping[str, Operation], commits: Iterable[Commit]) -> None:
        self.complaints: list[str] = []
        self.commits: dict[str, Commit] = {}
        self._operations = operations
        self._contents: dict[str, Content] = {}
        for commit in commits:
            if self.commits.setdefault(commit.commit_id, commit) != commit:
                self.complaints.append(
                    f"commit {commit.commit_id} was seen as {self.commits[commit.commit_id]} and {commit}"
                )

    def content(self, commit_id: str) -> Content:
        """What the commit must show. Raises ``Violation`` when it contains a commit that nobody has seen."""
        todo = [commit_id]
        while todo:
            commit = self._known(todo[-1])
            missing = [needed for needed in self._needs(commit) if needed not in self._contents]
            if not missing and commit.commit_id not in self._contents:
                self._contents[commit.commit_id] = self._made(commit)
            todo = [*todo, *missing] if missing else todo[:-1]
        return self._contents[commit_id]

    def intended(self, commit: Commit) -> Operation:
        if commit.tag not in self._operations:
            raise Violation(f"nobody intended {commit.tag}")
        return self._operations[commit.tag]

    def bases(self, one: str, other: str) -> list[str]:
        """The nearest commits that both contain, newest first."""
        common = self._ancestors(one) & self._ancestors(other)
        passed = {parent for commit_id in common for parent in _parents(self._known(commit_id))}
        return sorted(common - passed, reverse=True)

    def merged(self, source: str, target: str, on_conflict: str) -> Content:
        """What merging one commit into another gives. Raises ``Contradiction`` when it must be refused."""
        base, *others = (self.content(commit_id) for commit_id in self.bases(source, target))
        return model.merge(base, others, self.content(source), self.content(target), on_conflict)

    def _needs(self, commit: Commit) -> list[str]:
        return [*_parents(commit), *(self.bases(*_parents(commit)) if commit.merged_id is not None else ())]

    def _made(self, commit: Commit) -> Content:
        """The commit's content. Where it should not have come about, it is what its writer seems to have meant."""
        before = model.nothing() if commit.parent_id is None else model.copied(self._contents[commit.parent_id])
        if commit.tag is None:
            return before
        try:
            operation = self.intended(commit)
            if operation.merge is None and commit.merged_id is None:
                model.write(before, operation.tag, operation.writes, operation.based_on)
                return before
            return self._made_by_merge(commit, operation)
        except Violation as violation:
            self.complaints.append(f"commit {commit.commit_id} ({commit.tag}): {violation}")
            return before

    def _made_by_merge(self, commit: Commit, operation: Operation) -> Content:
        merge = operation.merge
        if merge is None or commit.parent_id is None or commit.merged_id is None or commit.source != merge.source:
            raise Violation(f"{merge} was intended, and {commit} was made")
        nearest = self.bases(commit.merged_id, commit.parent_id)[0]
        if commit.base_id != nearest:
            self.complaints.append(f"commit {commit.commit_id} was merged on {commit.base_id} instead of {nearest}")
        merged = self.merged(commit.merged_id, commit.parent_id, merge.on_conflict)
        model.check_content(merged)
        return merged

    def _known(self, commit_id: str) -> Commit:
        if commit_id not in self.commits:
            raise Violation(f"nobody has seen commit {commit_id}")
        return self.commits[commit_id]

    def _ancestors(self, commit_id: str) -> set[str]:
        found: set[str] = set()
        todo = [commit_id]
        while todo:
            current = todo.pop()
            if current not in found:
                found.add(current)
                todo += _parents(self._known(current))
        return found


def _parents(commit: Commit) -> list[str]:
    return [parent for parent in (commit.parent_id, commit.merged_id) if parent is not None]
