"""What must be true of a graph after anything at all: replays the history that it shows and compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from cells import BASE, Operation
from omnigraph_engine.commit.recovery import RECOVERY_ACTOR
from omnigraph_engine.commit.sidecar import RECOVERY
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.tables.heads import head_version
from omnigraph_engine.tables.table import TableRef


class Claim(str, Enum):
    """What a process said about its write, or that it died without a word."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    KILLED = "killed"


@dataclass(frozen=True)
class Told:
    operation: str
    claim: Claim
    commit_id: str | None = None


@dataclass
class Content:
    people: dict[str, int]
    knows: dict[str, tuple[str, str]]

    def after(self, operation: Operation) -> Content:
        if operation.mode == "overwrite":
            return Content(dict(operation.people or self.people), dict(operation.knows or self.knows))
        return Content({**self.people, **operation.people}, {**self.knows, **operation.knows})


def violations(graph: Graph, operations: Mapping[str, Operation], told: Sequence[Told]) -> Iterator[str]:
    """Everything that is wrong with the graph, one sentence each; nothing when it is as its writers were told."""
    history = list(reversed(graph.commits.list()))[1:]  # the first commit is the creation
    yield from _broken_promises(history, told)
    yield from _wrong_content(graph, history, operations)
    yield from _unrest(graph)


def fates(graph: Graph, names: Sequence[str]) -> dict[str, bool]:
    """Which operations are in the history."""
    messages = {_message(commit) for commit in graph.commits.list()}
    return {name: name in messages for name in names}


def _broken_promises(history: Sequence[GraphCommit], told: Sequence[Told]) -> Iterator[str]:
    found = {commit.commit_id: _message(commit) for commit in history}
    if len(found) != len(history):
        yield "a commit id stands in the history twice"
    times = Counter(found.values())
    for name in dict.fromkeys(each.operation for each in told):
        claims = {each.claim for each in told if each.operation == name}
        least = int(Claim.COMMITTED in claims)
        most = int(claims != {Claim.REJECTED})
        if not least <= times[name] <= most:
            said = " and ".join(sorted(claim.value for claim in claims))
            yield f"'{name}' was {said} and stands in the history {times[name]} times"
    for each in told:
        if each.commit_id is not None and found.get(each.commit_id) != each.operation:
            yield f"'{each.operation}' was acknowledged as commit {each.commit_id}, which is not in the history"


def _wrong_content(graph: Graph, history: Sequence[GraphCommit], operations: Mapping[str, Operation]) -> Iterator[str]:
    """Every snapshot since the one that all began with holds what the operations up to it add up to."""
    expected = Content({}, {})
    parent = None
    bases = [commit for commit in history if _message(commit).startswith(BASE)]
    for commit in history:
        if parent is not None and commit.parent_id != parent.commit_id:
            yield f"the commit of '{_message(commit)}' does not follow the one before it"
        parent = commit
        if commit.actor != RECOVERY_ACTOR:
            expected = expected.after(operations[_message(commit)])
        if commit in bases[:-1]:
            continue
        try:
            rows = _rows(graph.snapshot(version=commit.manifest_version))
        except Exception as error:  # noqa: BLE001 - whatever stops a reader is the finding
            yield f"the snapshot after '{_message(commit)}' cannot be read: {error}"
            continue
        people, knows, counts = rows
        if sorted(people) != sorted(expected.people.items()) or sorted(knows) != sorted(expected.knows.items()):
            yield f"after '{_message(commit)}' the graph holds {people} and {knows}, not {expected}"
        if counts != (len(people), len(knows)):
            yield f"after '{_message(commit)}' the manifest counts {counts} rows"
        ends = {end for _, edge in knows for end in edge}
        if not ends <= dict(people).keys():
            yield f"after '{_message(commit)}' edges end at {sorted(ends - dict(people).keys())}, who do not exist"


_People = list[tuple[str, int]]
_Knows = list[tuple[str, tuple[str, str]]]


def _rows(snapshot: Snapshot) -> tuple[_People, _Knows, tuple[int, int]]:
    people, knows = snapshot.table("Person"), snapshot.table("Knows")
    return (
        [(row["id"], row["age"]) for row in people.to_arrow().to_pylist()],
        [(row["id"], (row["src"], row["dst"])) for row in knows.to_arrow().to_pylist()],
        (people.count(), knows.count()),
    )


def _unrest(graph: Graph) -> Iterator[str]:
    left = graph.storage.list(RECOVERY)
    if left:
        yield f"sidecars are left: {left}"
    for key, table in graph.snapshot().tables.items():
        published = table.published
        ref = TableRef(key, published.location, published.branch, published.version)
        head = head_version(graph.storage, ref)
        if head != published.version:
            yield f"HEAD of {key} is {head}, the manifest publishes {published.version}"
    audited = Counter(record.operation_id for record in graph.maintenance.recoveries())
    if any(times > 1 for times in audited.values()):
        yield "a recovery stands in the audit trail twice"


def _message(commit: GraphCommit) -> str:
    return str(commit.extra.get("message"))
