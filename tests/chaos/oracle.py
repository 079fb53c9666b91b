"""What must be true of a graph after chaos, said by a small model in plain Python that knows nothing of the engine.

Every operation of a writer carries a tag, which is also the message of its commit. The writer's journal says what an operation
was to do (before it began) and how it ended. Replaying the journal's operations along the graph's commits, from parents to
children, must give the graph's content, at every commit, on main and on every branch that anybody has read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from content import HOT, Contradiction, Violation, digest, row_id
from past import MAIN, Commit, Merge, Operation, Past

OUTCOMES = ("ack", "failed", "unknown")

CONFLICTS = frozenset({"OG2001", "OG2002", "OG2006"})
MERGE_CONFLICT = "OG2008"
DUPLICATE_KEY = "OG4004"
VIOLATIONS = frozenset({"OG4005", "OG4006", "OG4007"})
OUTCOME_UNKNOWN = "OG2003"
STORE_FAILURES = frozenset({OUTCOME_UNKNOWN, "OG5001"})
BRANCH_GONE = "OG1010"
SNAPSHOT_GONE = "OG1015"
GONE = frozenset({BRANCH_GONE, SNAPSHOT_GONE})
BRANCH_EXISTS = "OG1013"


@dataclass(frozen=True)
class Observation:
    """A snapshot that a writer read: the commit it showed and a digest of all that it held."""

    writer: str
    commit_id: str
    digest: str
    at_least: str | None  # a commit that the same writer had seen before


@dataclass(frozen=True)
class BranchObservation:
    """A branch that a brancher read: every commit that it showed, oldest first, and a digest of all that it held."""

    writer: str
    branch: str
    life: str  # which of the branches that the name was
    commits: tuple[Commit, ...]
    digest: str


@dataclass(frozen=True)
class MergeAnswer:
    """What a merge said that it merged: the commit it made, or None when it refused, and the commits that it went by."""

    operation: Operation
    commit_id: str | None
    base_id: str
    source_id: str
    target_id: str | None  # of a refusal


@dataclass
class Journals:
    """All journals of a run, read together."""

    operations: dict[str, Operation] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    branch_observations: list[BranchObservation] = field(default_factory=list)
    merges: list[MergeAnswer] = field(default_factory=list)
    app_versions: dict[str, int] = field(default_factory=dict)  # the newest acknowledged, by application
    complaints: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class _Reader:
    """Takes one writer's lines, in order, into the journals of the run."""

    def __init__(self, writer: str, found: Journals) -> None:
        self._writer = writer
        self._found = found
        self._current: Operation | None = None
        self._seen: str | None = None  # the newest commit that the writer knows of
        self._shown: dict[
            str, tuple[Commit, ...]
        ] = {}  # by life of a branch: the commits that the writer has seen there
        self._faults = 0  # injected since the operation began

    def take(self, entry: Mapping[str, Any]) -> None:
        event = entry["event"]
        self._found.counts[event] += 1
        if event == "started":
            self._current = None
        elif event == "injected":
            self._faults += 1
        elif event == "violation":
            self._complain(entry["text"])
        elif event == "intent":
            self._begin(entry)
        elif event.startswith("branch "):
            self._take_of_branch(event, entry)
        elif event == "read":
            self._found.observations.append(Observation(self._writer, entry["commit"], entry["digest"], self._seen))
            self._seen = entry["commit"]
        elif event in OUTCOMES:
            self._end(event, entry)

    def _take_of_branch(self, event: str, entry: Mapping[str, Any]) -> None:
        if event == "branch step":
            self._faults = 0
        elif event == "branch read":
            self._look(entry)
        elif event == "branch failed":
            self._found.counts[f"code {entry['code']}"] += 1
            usual = {"create": (BRANCH_EXISTS, BRANCH_GONE), "delete": (BRANCH_GONE,)}[entry["verb"]]
            if entry["code"] not in usual and not (entry["code"] in STORE_FAILURES and self._faults):
                self._complain(f"{entry['verb']} of {entry['branch']} surfaced {entry['text']}")

    def _look(self, entry: Mapping[str, Any]) -> None:
        """What a branch has shown once, it shows as long as it lives: history only grows."""
        commits = tuple(Commit(**commit) for commit in entry["commits"])
        seen = BranchObservation(self._writer, entry["branch"], entry["life"], commits, entry["digest"])
        before = self._shown.get(seen.life, ())
        if seen.commits[: len(before)] != before:
            self._complain(f"{seen.branch} ({seen.life}) showed {before[-1]} and later did not, or elsewhere")
        self._shown[seen.life] = seen.commits
        self._found.branch_observations.append(seen)

    def _begin(self, entry: Mapping[str, Any]) -> None:
        self._faults = 0
        merge = None if entry["merge"] is None else Merge(**entry["merge"])
        begun = Operation(entry["tag"], entry["writes"], entry["based_on"], entry["branch"], merge)
        self._current = self._found.operations.setdefault(begun.tag, begun)
        self._current.outcomes.append(None)

    def _end(self, event: str, entry: Mapping[str, Any]) -> None:
        operation = self._current
        begun = operation is not None and operation.tag == entry["tag"]
        if not begun and entry.get("code") in GONE and entry["branch"] != MAIN:
            return  # there was nothing to read that it could have decided upon
        if operation is None or not begun:
            self._complain(f"{entry['tag']} ended before it began: {entry}")
            return
        operation.outcomes[-1] = event
        if event != "ack":
            self._found.counts[f"code {entry['code']}"] += 1
            if not _expected(entry["code"], operation, self._faults):
                self._complain(f"{operation.tag} surfaced {entry['text']}")
            if entry["code"] == MERGE_CONFLICT:
                told = entry["details"]
                self._found.merges.append(MergeAnswer(operation, None, told["base"], told["source"], told["target"]))
            return
        if operation.merge is not None:
            self._found.counts[f"merge {entry['outcome']}"] += 1
            self._found.merges.append(MergeAnswer(operation, entry["commit"], entry["base"], entry["source"], None))
        if entry["commit"] is None:
            return
        operation.commits.add(entry["commit"])
        if not entry["replayed"] and operation.branch == MAIN:
            self._seen = entry["commit"]
        if entry["txn"]:
            self._found.app_versions[entry["txn"][0]] = entry["txn"][1]

    def _complain(self, text: str) -> None:
        self._found.complaints.append(f"{self._writer}: {text}")


def read_journals(journals: Mapping[str, Iterable[str]]) -> Journals:
    """What the writers say, by writer."""
    found = Journals()
    for writer, lines in journals.items():
        reader = _Reader(writer, found)
        for entry in read_entries(lines):
            reader.take(entry)
    return found


def read_entries(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The entries of a journal; a line that a kill cut short says nothing."""
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)


def _expected(code: str, operation: Operation, faults: int) -> bool:
    """Whether the protocol lets an operation end with this error."""
    if code == DUPLICATE_KEY:
        # Other names are an operation's own: only itself, taken for failed and landed after all, could be in its way.
        return any(row_id(row).startswith(HOT) for write in operation.writes for row in write["rows"])
    if (code in GONE or code == OUTCOME_UNKNOWN) and operation.branch != MAIN:
        return True  # a branch that goes while a commit on it is being decided takes the answer with it
    if operation.merge is not None and (code in CONFLICTS or code in GONE or code == MERGE_CONFLICT):
        return True
    if code in CONFLICTS:
        return operation.replaces
    return code in VIOLATIONS or (code in STORE_FAILURES and faults > 0)


def check_history(journals: Journals, history: list[Commit], past: Past) -> list[str]:
    """What contradicts the journals in main's history (oldest commit first) and in all else that anybody has seen."""
    for commit in past.commits.values():
        try:
            past.content(commit.commit_id)
        except Violation as violation:  # noqa: PERF203 - replaying is what takes the time
            past.complaints.append(f"commit {commit.commit_id} ({commit.tag}): {violation}")
    return [
        *journals.complaints,
        *_check_line(history),
        *_check_outcomes(journals, history),
        *_check_tags(journals, past),
        *_check_observations(journals, history, past),
        *_check_branches(journals, past),
        *_check_merges(journals, past),
        *past.complaints,
    ]


def _check_line(history: list[Commit]) -> Iterator[str]:
    for before, after in pairwise(history):
        if after.parent_id != before.commit_id or after.manifest_version <= before.manifest_version:
            yield f"commit {after.commit_id} ({after.tag}) does not follow {before.commit_id}"


def _check_outcomes(journals: Journals, history: list[Commit]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for commit in history:
        if commit.tag is not None:
            by_tag.setdefault(commit.tag, []).append(commit.commit_id)
    for tag, operation in journals.operations.items():
        stand = by_tag.get(tag, [])
        if operation.branch != MAIN:
            if stand:
                yield f"{tag} was made on {operation.branch} and stands in main's history"
            continue
        if "ack" in operation.outcomes and (operation.commits != set(stand) or len(stand) > 1):
            yield f"{tag} was acknowledged as {operation.commits} and stands in history as {stand}"


def _check_tags(journals: Journals, past: Past) -> Iterator[str]:
    """Wherever a commit was made, and wherever a merge brought it: once, on the branch it was meant for, and not failed."""
    by_tag: dict[str, list[Commit]] = {}
    for commit in past.commits.values():
        if commit.tag is not None:
            by_tag.setdefault(commit.tag, []).append(commit)
    for tag, commits in by_tag.items():
        operation = journals.operations.get(tag)
        if operation is not None and set(operation.outcomes) == {"failed"}:
            yield f"{tag} was reported failed and stands in history as {commits}"
        if len(commits) > 1:
            yield f"{tag} stands in history {len(commits)} times: {commits}"


def _check_observations(journals: Journals, history: list[Commit], past: Past) -> Iterator[str]:
    order = {commit.commit_id: number for number, commit in enumerate(history)}
    for seen in journals.observations:
        if seen.commit_id not in order:
            yield f"{seen.writer} read commit {seen.commit_id}, which is not in history"
            continue
        if digest(past.content(seen.commit_id)) != seen.digest:
            yield f"{seen.writer} read commit {seen.commit_id} with another content than it has"
        if seen.at_least is not None and order[seen.commit_id] < order.get(seen.at_least, -1):
            yield f"{seen.writer} read {seen.commit_id} after it had seen the later {seen.at_least}"


def _check_branches(journals: Journals, past: Past) -> Iterator[str]:
    """Every branch held at every look what its commits add up to, and was one line of what was meant for it or for main."""
    for seen in journals.branch_observations:
        where = f"{seen.branch} ({seen.life}), as {seen.writer} read it,"
        try:
            if digest(past.content(seen.commits[-1].commit_id)) != seen.digest:
                yield f"{where} held another content than its commits add up to"
        except Violation as violation:
            yield f"{where} shows what cannot be: {violation}"
            continue
        if any(after.parent_id != before.commit_id for before, after in pairwise(seen.commits)):
            yield f"{where} shows commits that do not follow each other"
        for commit in seen.commits:
            operation = None if commit.tag is None else journals.operations.get(commit.tag)
            if operation is not None and operation.branch not in (MAIN, seen.branch):
                yield f"{where} shows {commit.tag}, which was made on {operation.branch}"


def _check_merges(journals: Journals, past: Past) -> Iterator[str]:
    """What a merge told of itself is so, and none was refused that contradicts nothing."""
    for answer in journals.merges:
        operation, commit = answer.operation, past.commits.get(answer.commit_id or "")
        if commit is not None and (commit.base_id, commit.merged_id) != (answer.base_id, answer.source_id):
            yield f"{operation.tag} told of {answer} and made {commit}"
        if answer.target_id is None or not {answer.source_id, answer.target_id} <= past.commits.keys():
            continue  # of a branch that went before anybody has seen its last commit
        if past.bases(answer.source_id, answer.target_id)[0] != answer.base_id:
            yield f"{operation.tag} was refused on the base {answer.base_id}, which is not the nearest"
        with suppress(Contradiction):
            assert operation.merge is not None
            past.merged(answer.source_id, answer.target_id, operation.merge.on_conflict)
            yield f"{operation.tag} was refused, and {answer.source_id} does not contradict {answer.target_id}"
