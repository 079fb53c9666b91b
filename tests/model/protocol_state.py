"""The world that the commit protocol lives in: what is stored, who is at which step, and the effects that storage offers.

Everything is a tuple or an integer, so that a state is hashable, small and cheap to compare. Sets of operations are bit masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

MAIN, BRANCH = 0, 1  # graph branches: "b" was forked from main before anything else happened
TRUNK = -1  # owner of a table's main line; the owner of any other line is the operation that forked it
SHARED = -2  # what owns a fork when operations do not name their forks apart (a planted fault)
BASE_MARK = -1

LineName = tuple[int, int]  # table and owner
Effect = tuple[Any, ...]  # its kind, then what it needs


class Version(NamedTuple):
    """One version of a line: whose transaction made it, and the steps of operations that it contains (a bit mask)."""

    mark: int
    content: int


class Line(NamedTuple):
    """A line of a table. A fork goes on counting from the version that it was forked at."""

    name: LineName
    start: int
    versions: tuple[Version, ...]

    @property
    def head(self) -> int:
        return self.start + len(self.versions) - 1

    def above(self, version: int) -> tuple[Version, ...]:
        return self.versions[version + 1 - self.start :]

    def content(self, version: int) -> int:
        return self.versions[version - self.start].content


class Pin(NamedTuple):
    owner: int
    version: int


class Manifest(NamedTuple):
    """What is visible on one branch. The last two fields are the model's own notes, not stored anywhere."""

    version: int
    pins: tuple[Pin, ...]  # by table
    commits: int
    undoing: int  # aborted, being undone
    undone: int  # aborted, undone for good
    committed_twice: int
    committed_stale: int  # published although a table that it relied on had changed


class Intent(NamedTuple):
    """What an operation does to one table."""

    table: int
    owner: int  # of the line that it commits to
    expected: int
    steps: int
    pin: Pin  # what the manifest named when the operation was prepared

    @property
    def line(self) -> LineName:
        return (self.table, self.owner)

    @property
    def forks(self) -> bool:
        return self.owner != self.pin.owner

    @property
    def final(self) -> int:
        return self.expected + self.steps


class Capture(NamedTuple):
    """The view that an operation was prepared on; also what its sidecar says."""

    manifest_version: int
    intents: tuple[Intent, ...]
    reads: tuple[tuple[int, Pin], ...]


class Process(NamedTuple):
    step: str
    op: int
    at: tuple[Any, ...]  # where in the step, and what it has read so far


class State(NamedTuple):
    lines: tuple[Line, ...]
    manifests: tuple[Manifest, ...]
    captures: tuple[Capture | None, ...]  # by operation
    armed: int  # operations with a sidecar
    owned: int  # operations with an undo sidecar
    processes: tuple[Process, ...]  # the writers, then the recoverers
    in_flight: tuple[Effect, ...]  # effects whose call failed: each may still happen, at any time, or never
    crashes: int  # how many more there may be
    errors: int
    stragglers: int
    renewals: int
    acknowledged: int
    failed: int


class Label(NamedTuple):
    """Who moves, with which step, and how it ends."""

    actor: str
    number: int
    step: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.actor} {self.number}: {self.step}, {self.outcome}"


@dataclass(frozen=True)
class Write:
    """What one writer wants: its tables in commit order with the length of each chain, and the tables that it only reads."""

    tables: tuple[tuple[int, int], ...]
    branch: int = MAIN
    reads: tuple[int, ...] = ()

    @property
    def keys(self) -> frozenset[int]:
        return frozenset(table for table, _ in self.tables)


def line_of(state: State, name: LineName) -> Line | None:
    for line in state.lines:
        if line.name == name:
            return line
    return None


def visible_content(state: State, branch: int, table: int) -> int | None:
    """What a reader of the branch finds in a table, or None when the manifest names a version that is not there."""
    return content_at(state, table, state.manifests[branch].pins[table])


def content_at(state: State, table: int, pin: Pin) -> int | None:
    line = line_of(state, (table, pin.owner))
    if line is None or not line.start <= pin.version <= line.head:
        return None
    return line.content(pin.version)


def step_mark(op: int, step: int) -> int:
    return 4 * op + step


def undo_mark(op: int) -> int:
    return 4 * op + 3


def step_bit(op: int, step: int) -> int:
    return 1 << (2 * op + step)


def happened(state: State, effect: Effect) -> State | None:
    """The state after an effect, or None when storage refuses it. One effect is one atomic step."""
    return _EFFECTS[effect[0]](state, *effect[1:])


def _commit(state: State, name: LineName, base: int | None, mark: int, content: int) -> State | None:
    """The exact commit: it lands right above ``base`` or not at all. Without a base it is rebased onto whatever is there."""
    line = line_of(state, name)
    if line is None or base not in {None, line.head}:
        return None
    if base is None:
        content |= line.content(line.head)
    return _with_line(state, Line(name, line.start, (*line.versions, Version(mark, content))))


def _fork(state: State, name: LineName, pin: Pin) -> State:
    """The line starts with the pinned version. Whatever stood under its name was left by a call that died half-way."""
    content = content_at(state, name[0], pin)
    assert content is not None
    return _with_line(state, Line(name, pin.version, (Version(BASE_MARK, content),)))


def _with_line(state: State, line: Line) -> State:
    others = [other for other in state.lines if other.name != line.name]
    return state._replace(lines=tuple(sorted([*others, line])))


def _put(state: State, kind: str, op: int) -> State:
    mask = 1 << op
    return state._replace(armed=state.armed | mask) if kind == "op" else state._replace(owned=state.owned | mask)


def _delete(state: State, kind: str, op: int) -> State:
    mask = ~(1 << op)
    return state._replace(armed=state.armed & mask) if kind == "op" else state._replace(owned=state.owned & mask)


def _swap(state: State, branch: int, base: int | None, change: str, op: int) -> State | None:
    """The compare-and-swap: it makes the very next version of one branch's manifest, or nothing changes."""
    manifest = state.manifests[branch]
    if base not in {None, manifest.version}:
        return None
    changed = _CHANGES[change](state, branch, op)._replace(version=manifest.version + 1)
    return state._replace(manifests=(*state.manifests[:branch], changed, *state.manifests[branch + 1 :]))


def _published(state: State, branch: int, op: int) -> Manifest:
    manifest, capture, mask = state.manifests[branch], _capture(state, op), 1 << op
    pins = list(manifest.pins)
    for intent in capture.intents:
        pins[intent.table] = Pin(intent.owner, intent.final)
    stale = any(visible_content(state, branch, table) != content_at(state, table, pin) for table, pin in capture.reads)
    return manifest._replace(
        pins=tuple(pins),
        commits=manifest.commits | mask,
        committed_twice=manifest.committed_twice | (manifest.commits & mask),
        committed_stale=manifest.committed_stale | (mask if stale else 0),
    )


def _aborted(state: State, branch: int, op: int) -> Manifest:
    manifest = state.manifests[branch]
    return manifest._replace(undoing=manifest.undoing | 1 << op)


def _converged(state: State, branch: int, op: int) -> Manifest:
    """Abort done; the manifest names the restored versions. Where they stand was settled before the swap and stays so."""
    manifest = state.manifests[branch]
    pins = list(manifest.pins)
    for intent in _capture(state, op).intents:
        line = line_of(state, intent.line)
        if line is None or pins[intent.table] != intent.pin or intent.forks:
            continue
        for number, version in enumerate(line.above(intent.expected), intent.expected + 1):
            if version.mark == undo_mark(op):
                pins[intent.table] = Pin(intent.owner, number)
                break
    return manifest._replace(pins=tuple(pins), undoing=manifest.undoing & ~(1 << op), undone=manifest.undone | 1 << op)


def _capture(state: State, op: int) -> Capture:
    capture = state.captures[op]
    assert capture is not None
    return capture


_CHANGES = {"publish": _published, "abort": _aborted, "converge": _converged}
_EFFECTS: dict[str, Callable[..., State | None]] = {
    "commit": _commit,
    "fork": _fork,
    "put": _put,
    "delete": _delete,
    "swap": _swap,
}
