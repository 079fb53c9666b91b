"""What must be true of a graph after chaos, said by a small model in plain Python that knows nothing of the engine.

Every operation of a writer carries a tag, which is also the message of its commit. The writer's journal says what an operation
was to write (before it began) and how it ended. Replaying the journal's operations in the order of the graph's history must
give the graph's content, at every commit.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]
Content = dict[str, dict[str, Row]]  # by type, by id

# Person and Account are written in pairs, Setting and Total as well; Place is replaced while LivesAt points to it.
SCHEMA = """
node Person { name: String @key  tag: String  amount: I64  badge: I64? @unique }
node Account { name: String @key  tag: String  amount: I64 }
node Setting { name: String @key  tag: String  amount: I64 }
node Total { name: String @key  tag: String  amount: I64  count: I64 }
node Place { name: String @key  tag: String }
edge Knows: Person -> Person { tag: String }
edge LivesAt: Person -> Place @card(0..2) { tag: String }
"""
TYPES = ("Person", "Account", "Setting", "Total", "Place", "Knows", "LivesAt")
EDGES = {"Knows": ("Person", "Person"), "LivesAt": ("Person", "Place")}
MOST_PLACES = 2
HOT = "hot-"  # how the names begin that writers share
OUTCOMES = ("ack", "failed", "unknown")
RECOVERY_ACTOR = "omnigraph:recovery"

CONFLICTS = frozenset({"OG2001", "OG2002", "OG2006"})
DUPLICATE_KEY = "OG4004"
VIOLATIONS = frozenset({"OG4005", "OG4006", "OG4007"})
OUTCOME_UNKNOWN = "OG2003"
STORE_FAILURES = frozenset({OUTCOME_UNKNOWN, "OG5001"})
BRANCH_GONE = "OG1010"
BRANCH_EXISTS = "OG1013"
MAIN = "main"


class Violation(Exception):
    """The graph, or a snapshot of it, is not what the protocol promises."""


@dataclass(frozen=True)
class Commit:
    """A commit as the graph's history shows it."""

    commit_id: str
    parent_id: str | None
    manifest_version: int
    actor: str | None
    tag: str | None


@dataclass
class Operation:
    """What the journals say of one tag."""

    tag: str
    writes: list[dict[str, Any]]
    based_on: str | None
    branch: str = MAIN
    outcomes: list[str | None] = field(default_factory=list)  # one for each try; None when its process died in it
    commits: set[str] = field(default_factory=set)  # that its writer was told

    @property
    def replaces(self) -> bool:
        """It replaces whole types, so that a changed base is a conflict for its caller."""
        return any(write["mode"] == "overwrite" for write in self.writes)


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
    commits: tuple[str, ...]
    tags: tuple[str, ...]  # of the commits that somebody intended
    digest: str


@dataclass
class Journals:
    """All journals of a run, read together."""

    operations: dict[str, Operation] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    branch_observations: list[BranchObservation] = field(default_factory=list)
    app_versions: dict[str, int] = field(default_factory=dict)  # the newest acknowledged, by application
    complaints: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def intended(self, tag: str) -> Operation:
        if tag not in self.operations:
            raise Violation(f"nobody intended {tag}")
        return self.operations[tag]


def row_id(row: Row) -> str:
    return str(row["id"] if "id" in row else row["name"])


def digest(content: Content) -> str:
    """Equal for equal contents, whatever the order in which rows are stored."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def check_content(content: Content) -> None:
    """Raises unless a snapshot with this content could be the state between two whole commits."""
    people, accounts = content["Person"], content["Account"]
    if {key: (row["tag"], -row["amount"]) for key, row in people.items()} != {
        key: (row["tag"], row["amount"]) for key, row in accounts.items()
    }:
        raise Violation("Person and Account, always written together, differ")
    tags = {row["tag"] for name in ("Setting", "Total") for row in content[name].values()}
    total = sum(row["amount"] for row in content["Total"].values())
    if len(tags) > 1 or total != sum(row["amount"] for row in content["Setting"].values()):
        raise Violation(f"Setting and Total, always replaced together, differ: {sorted(tags)}")
    badges = Counter(row["badge"] for row in people.values() if row["badge"] is not None)
    if badges and max(badges.values()) > 1:
        raise Violation(f"the badge {badges.most_common(1)} is not unique")
    for edge, ends in EDGES.items():
        for role, node in zip(("src", "dst"), ends, strict=True):
            missing = {row[role] for row in content[edge].values()} - content[node].keys()
            if missing:
                raise Violation(f"{edge}.{role} dangles: {sorted(missing)[:3]}")
    homes = Counter(row["src"] for row in content["LivesAt"].values())
    if homes and max(homes.values()) > MOST_PLACES:
        raise Violation(f"too many LivesAt edges: {homes.most_common(1)}")


class Model:
    """The graph as plain dictionaries."""

    def __init__(self) -> None:
        self.content: Content = {name: {} for name in TYPES}

    def apply(self, operation: Operation) -> None:
        if operation.based_on is not None:
            settings = {row["tag"] for row in self.content["Setting"].values()} or {""}
            if settings != {operation.based_on}:
                raise Violation(f"{operation.tag} replaced {sorted(settings)}, and had read {operation.based_on!r}")
        for write in operation.writes:
            rows = {row_id(row): row for row in write["rows"]}
            table = self.content[write["type"]]
            if write["mode"] == "append" and not rows.keys().isdisjoint(table):
                raise Violation(f"{operation.tag} inserted ids that existed: {sorted(rows.keys() & table.keys())[:3]}")
            if write["mode"] == "overwrite":
                table.clear()
            table.update(rows)
        check_content(self.content)


class _Reader:
    """Takes one writer's lines, in order, into the journals of the run."""

    def __init__(self, writer: str, found: Journals) -> None:
        self._writer = writer
        self._found = found
        self._current: Operation | None = None
        self._seen: str | None = None  # the newest commit that the writer knows of
        self._shown: dict[str, tuple[str, ...]] = {}  # by life of a branch: the commits that the writer has seen there
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
        seen = BranchObservation(
            self._writer, entry["branch"], entry["life"], tuple(entry["commits"]), tuple(entry["tags"]), entry["digest"]
        )
        before = self._shown.get(seen.life, ())
        if seen.commits[: len(before)] != before:
            self._complain(f"{seen.branch} ({seen.life}) showed {before[-1]} and later did not, or elsewhere")
        self._shown[seen.life] = seen.commits
        self._found.branch_observations.append(seen)

    def _begin(self, entry: Mapping[str, Any]) -> None:
        self._faults = 0
        begun = Operation(entry["tag"], entry["writes"], entry["based_on"], entry["branch"])
        self._current = self._found.operations.setdefault(begun.tag, begun)
        self._current.outcomes.append(None)

    def _end(self, event: str, entry: Mapping[str, Any]) -> None:
        operation = self._current
        begun = operation is not None and operation.tag == entry["tag"]
        if not begun and entry.get("code") == BRANCH_GONE:
            return  # there was nothing to read that it could have decided upon
        if operation is None or not begun:
            self._complain(f"{entry['tag']} ended before it began: {entry}")
            return
        operation.outcomes[-1] = event
        if event != "ack":
            self._found.counts[f"code {entry['code']}"] += 1
            if not _expected(entry["code"], operation, self._faults):
                self._complain(f"{operation.tag} surfaced {entry['text']}")
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
    if code in (BRANCH_GONE, OUTCOME_UNKNOWN) and operation.branch != MAIN:
        return True  # a branch that goes while a commit on it is being decided takes the answer with it
    if code in CONFLICTS:
        return operation.replaces
    return code in VIOLATIONS or (code in STORE_FAILURES and faults > 0)


def check_history(journals: Journals, history: list[Commit]) -> tuple[list[str], dict[str, Content]]:
    """What contradicts the journals in a history (oldest commit first), and the content that each commit must show."""
    complaints = list(journals.complaints)
    complaints += _check_line(history)
    complaints += _check_outcomes(journals, history)
    model, contents = Model(), {}
    for commit in history:
        if commit.tag is not None and commit.actor != RECOVERY_ACTOR:
            try:
                model.apply(journals.intended(commit.tag))
            except Violation as violation:
                complaints.append(f"commit {commit.commit_id} ({commit.tag}): {violation}")
        contents[commit.commit_id] = {name: dict(rows) for name, rows in model.content.items()}
    complaints += _check_observations(journals, history, contents)
    complaints += _check_branches(journals)
    return complaints, contents


def _check_line(history: list[Commit]) -> list[str]:
    complaints = []
    for before, after in pairwise(history):
        if after.parent_id != before.commit_id or after.manifest_version <= before.manifest_version:
            complaints.append(f"commit {after.commit_id} ({after.tag}) does not follow {before.commit_id}")
    return complaints


def _check_outcomes(journals: Journals, history: list[Commit]) -> list[str]:
    complaints = []
    by_tag: dict[str, list[str]] = {}
    for commit in history:
        if commit.tag is not None:
            by_tag.setdefault(commit.tag, []).append(commit.commit_id)
    for tag, operation in journals.operations.items():
        stand = by_tag.get(tag, [])
        if operation.branch != MAIN:
            if stand:
                complaints.append(f"{tag} was made on {operation.branch} and stands in main's history")
            continue
        if "ack" in operation.outcomes and (len(stand) != 1 or operation.commits != set(stand)):
            complaints.append(f"{tag} was acknowledged as {operation.commits} and stands in history as {stand}")
        if set(operation.outcomes) == {"failed"} and stand:
            complaints.append(f"{tag} was reported failed and stands in history as {stand}")
        if len(stand) > 1:
            complaints.append(f"{tag} stands in history {len(stand)} times")
    return complaints


def _check_observations(journals: Journals, history: list[Commit], contents: Mapping[str, Content]) -> list[str]:
    complaints = []
    order = {commit.commit_id: number for number, commit in enumerate(history)}
    digests: dict[str, str] = {}
    for seen in journals.observations:
        if seen.commit_id not in order:
            complaints.append(f"{seen.writer} read commit {seen.commit_id}, which is not in history")
            continue
        if seen.commit_id not in digests:
            digests[seen.commit_id] = digest(contents[seen.commit_id])
        if digests[seen.commit_id] != seen.digest:
            complaints.append(f"{seen.writer} read commit {seen.commit_id} with another content than it has")
        if seen.at_least is not None and order[seen.commit_id] < order.get(seen.at_least, -1):
            complaints.append(f"{seen.writer} read {seen.commit_id} after it had seen the later {seen.at_least}")
    return complaints


def replay(journals: Journals, tags: Iterable[str]) -> Content:
    """What a branch holds that shows these commits, in this order. Raises ``Violation`` when it cannot be."""
    model = Model()
    for tag in tags:
        model.apply(journals.intended(tag))
    return model.content


def _check_branches(journals: Journals) -> list[str]:
    """Every branch held at every look what the commits that it showed add up to, and none that was reported failed."""
    complaints = []
    for seen in journals.branch_observations:
        where = f"{seen.branch} ({seen.life}), as {seen.writer} read it,"
        try:
            if digest(replay(journals, seen.tags)) != seen.digest:
                complaints.append(f"{where} held another content than its commits add up to")
        except Violation as violation:
            complaints.append(f"{where} shows what cannot be: {violation}")
            continue
        for tag in seen.tags:
            operation = journals.intended(tag)
            if operation.branch not in (MAIN, seen.branch):
                complaints.append(f"{where} shows {tag}, which was made on {operation.branch}")
            if set(operation.outcomes) == {"failed"}:
                complaints.append(f"{where} shows {tag}, which was reported failed")
        if len(set(seen.tags)) != len(seen.tags):
            complaints.append(f"{where} shows a commit twice")
    return complaints
