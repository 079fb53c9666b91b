"""What must be true of a graph after anything at all: replays the history that it shows and compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from cells import BASE, MAIN, Kind, Operation, Verb
from omnigraph_engine.commit.lines import owns
from omnigraph_engine.commit.recovery import RECOVERY_ACTOR
from omnigraph_engine.commit.sidecar import RECOVERY
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.tables.heads import head_version


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


def violations(graph: Graph, kind: Kind, told: Sequence[Told], found: Mapping[str, bool]) -> Iterator[str]:
    """Everything that is wrong with the graph, one sentence each; nothing when it is as its writers were told.

    Args:
        graph: The graph, with everything settled and the next write done.
        kind: What was done to it.
        told: What the writers were told.
        found: The fates of the operations before the next write, which may have made a branch again.
    """
    histories = {info.name: list(reversed(graph.commits.list(info.name)))[1:] for info in graph.branches.list()}
    every = {commit.commit_id: commit for history in histories.values() for commit in history}
    yield from _broken_promises(list(every.values()), kind, told, found)
    for branch, history in histories.items():
        if len({commit.commit_id for commit in history}) != len(history):
            yield f"a commit id stands in the history of '{branch}' twice"
        yield from _wrong_content(graph, branch, history, kind.operations)
        yield from _strangers(branch, history, kind)
    yield from _unrest(graph)


def fates(graph: Graph, kind: Kind, names: Sequence[str]) -> dict[str, bool]:
    """Which operations are in the history; for one that makes or deletes a branch, whether that is so."""
    branches = [info.name for info in graph.branches.list()]
    messages = {_message(commit) for branch in branches for commit in graph.commits.list(branch)}
    return {name: _is_done(kind.operations[name], branches, messages) for name in names}


def _is_done(operation: Operation, branches: Sequence[str], messages: set[str]) -> bool:
    if operation.commits:
        return operation.name in messages
    return (operation.branch in branches) is (operation.verb is Verb.CREATE)


def _broken_promises(
    history: Sequence[GraphCommit], kind: Kind, told: Sequence[Told], fates: Mapping[str, bool]
) -> Iterator[str]:
    found = {commit.commit_id: _message(commit) for commit in history}
    times = Counter(found.values())
    for name in dict.fromkeys(each.operation for each in told):
        claims = {each.claim for each in told if each.operation == name}
        least = int(Claim.COMMITTED in claims)
        most = int(claims != {Claim.REJECTED})
        commits = kind.operations[name].commits
        stands = times[name] if commits else int(fates.get(name, False))
        said = " and ".join(sorted(claim.value for claim in claims))
        gone = kind.subject.verb is Verb.DELETE and kind.operations[name].branch == kind.subject.branch
        if gone and commits and name != kind.next.name:
            least = 0  # it went with its branch
        if not least <= stands <= most:
            yield f"'{name}' was {said} and stands in the history {stands} times"
    for each in told:
        if each.commit_id is not None and found.get(each.commit_id) != each.operation:
            yield f"'{each.operation}' was acknowledged as commit {each.commit_id}, which is not in the history"


def _strangers(branch: str, history: Sequence[GraphCommit], kind: Kind) -> Iterator[str]:
    """A branch shows its own commits and those of main, and main only its own."""
    for commit in history:
        if commit.actor == RECOVERY_ACTOR:
            continue
        made_on = kind.operations[_message(commit)].branch
        if made_on not in (branch, MAIN):
            yield f"'{branch}' shows the commit of '{_message(commit)}', which was made on '{made_on}'"


def _wrong_content(
    graph: Graph, branch: str, history: Sequence[GraphCommit], operations: Mapping[str, Operation]
) -> Iterator[str]:
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
        when = f"after '{_message(commit)}'"
        yield from _differences(
            when, expected, lambda at=commit: graph.snapshot(branch=at.branch or MAIN, version=at.manifest_version)
        )
    yield from _differences(f"now on '{branch}'", expected, lambda: graph.snapshot(branch=branch))


def _differences(when: str, expected: Content, read: Callable[[], Snapshot]) -> Iterator[str]:
    try:
        people, knows, counts = _rows(read())
    except Exception as error:  # noqa: BLE001 - whatever stops a reader is the finding
        yield f"the snapshot {when} cannot be read: {error}"
        return
    if sorted(people) != sorted(expected.people.items()) or sorted(knows) != sorted(expected.knows.items()):
        yield f"{when} the graph holds {people} and {knows}, not {expected}"
    if counts != (len(people), len(knows)):
        yield f"{when} the manifest counts {counts} rows"
    ends = {end for _, edge in knows for end in edge}
    if not ends <= dict(people).keys():
        yield f"{when} edges end at {sorted(ends - dict(people).keys())}, who do not exist"


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
    for info in graph.branches.list():
        for key, table in graph.snapshot(branch=info.name).tables.items():
            published = table.published
            head = head_version(graph.storage, table.ref) if owns(info, published.branch) else published.version
            if head != published.version:
                yield f"HEAD of {key} on '{info.name}' is {head}, the manifest publishes {published.version}"
    audited = Counter(record.operation_id for record in graph.maintenance.recoveries())
    if any(times > 1 for times in audited.values()):
        yield "a recovery stands in the audit trail twice"


def _message(commit: GraphCommit) -> str:
    return str(commit.extra.get("message"))
