"""What must be true of a graph after chaos, said by a small model in plain Python that knows nothing of the engine.

Every operation of a writer carries a tag, which is also the message of its commit. The writer's journal says what an operation
was to write (before it began) and how it ended. Replaying the journal's operations in the order of the graph's history must
give the graph's content, at every commit.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
RECOVERY_ACTOR = "omnigraph:recovery"

CONFLICTS = frozenset({"OG2001", "OG2002", "OG2006"})
VIOLATIONS = frozenset({"OG4004", "OG4005", "OG4006", "OG4007"})
STORE_FAILURES = frozenset({"OG2003", "OG5001"})


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
    replaced: bool  # it replaces whole types, so that a changed base is a conflict for its caller
    outcomes: list[str | None] = field(default_factory=list)  # one for each try; None when its process died in it
    commits: set[str] = field(default_factory=set)  # that its writer was told


@dataclass(frozen=True)
class Observation:
    """A snapshot that a writer read: the commit it showed and a digest of all that it held."""

    writer: str
    commit_id: str
    digest: str
    at_least: str | None  # a commit that the same writer had seen before


@dataclass
class Journals:
    """All journals of a run, read together."""

    operations: dict[str, Operation] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    app_versions: dict[str, int] = field(default_factory=dict)  # the newest acknowledged, by application
    complaints: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


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


def read_journals(journals: Mapping[str, Iterable[str]]) -> Journals:
    """What the writers say, by writer; a line that a kill cut short is the last one of its process and says nothing."""
    found = Journals()
    for writer, lines in journals.items():
        current: Operation | None = None
        seen: str | None = None
        faults = 0  # injected since the operation began
        for line in lines:
            try:
                entry: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            event = entry["event"]
            found.counts[event] += 1
            if event == "started":
                current = None
            elif event == "injected":
                faults += 1
            elif event == "intent":
                faults = 0
                current = found.operations.setdefault(
                    entry["tag"],
                    Operation(entry["tag"], entry["writes"], entry["based_on"], _replaces(entry["writes"])),
                )
                current.outcomes.append(None)
            elif event == "read":
                found.observations.append(Observation(writer, entry["commit"], entry["digest"], seen))
                seen = entry["commit"]
            elif event == "violation":
                found.complaints.append(f"{writer}: {entry['text']}")
            elif event in ("ack", "failed", "unknown"):
                if current is None or current.tag != entry["tag"]:
                    found.complaints.append(f"{writer}: {entry['tag']} ended before it began: {entry}")
                    continue
                current.outcomes[-1] = event
                if event == "ack":
                    current.commits.add(entry["commit"])
                    seen = entry["commit"] if not entry["replayed"] else seen
                    if entry["txn"]:
                        found.app_versions[entry["txn"][0]] = entry["txn"][1]
                else:
                    found.counts[f"code {entry['code']}"] += 1
                    complaint = _unexpected(entry["code"], current, faults)
                    if complaint:
                        found.complaints.append(f"{writer}: {current.tag} {complaint}: {entry['text']}")
    return found


def _replaces(writes: Iterable[Mapping[str, Any]]) -> bool:
    return any(write["mode"] == "overwrite" for write in writes)


def _unexpected(code: str, operation: Operation, faults: int) -> str | None:
    if code in VIOLATIONS or (code in CONFLICTS and operation.replaced) or (code in STORE_FAILURES and faults):
        return None
    return f"surfaced {code}"


def check_history(journals: Journals, history: list[Commit]) -> tuple[list[str], dict[str, Content]]:
    """What contradicts the journals in a history (oldest commit first), and the content that each commit must show."""
    complaints = list(journals.complaints)
    complaints += _check_line(history)
    complaints += _check_outcomes(journals, history)
    model, contents = Model(), {}
    for commit in history:
        if commit.tag is not None and commit.actor != RECOVERY_ACTOR:
            operation = journals.operations.get(commit.tag)
            try:
                if operation is None:
                    raise Violation(f"nobody intended {commit.tag}")
                model.apply(operation)
            except Violation as violation:
                complaints.append(f"commit {commit.commit_id} ({commit.tag}): {violation}")
        contents[commit.commit_id] = {name: dict(rows) for name, rows in model.content.items()}
    complaints += _check_observations(journals, history, contents)
    return complaints, contents


def _check_line(history: list[Commit]) -> list[str]:
    complaints = []
    for before, after in zip(history, history[1:], strict=False):
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
