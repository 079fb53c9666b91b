"""Which writers there are, which durable steps each goes through, and the cells that follow from it. Pure.

A *gap* is the moment before or after one durable step of one kind of writer; a *cell* is a gap and what happens there. A kind
lists the failpoints its subject goes through, in order. The lists are compared with what a real run reaches, and together they
must name every failpoint, so a new one without its row fails the build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from omnigraph_engine.failpoints import Failpoint, Moment

SCHEMA = """
node Person {
    name: String @key
    age: I32?
}
edge Knows: Person -> Person
"""


@dataclass(frozen=True)
class Operation:
    """One write, under a name of its own that its commit carries as its message."""

    name: str
    people: Mapping[str, int] = field(default_factory=dict)
    knows: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by edge id
    mode: str = "append"
    transaction: tuple[str, int] | None = None


class Happening(str, Enum):
    """What happens in a gap."""

    KILL = "kill"  # the process is gone
    ERROR = "error"  # before a step: the store refuses it; after it: it is done and its answer is lost
    STOP = "stop"  # the process stands still until another has settled what it left
    OVERTAKEN = "overtaken"  # the same, and the other has written to the same tables too

    @property
    def fault(self) -> str:
        return "stop" if self is Happening.OVERTAKEN else self.value


@dataclass(frozen=True)
class First:
    """An earlier writer, and where it is when the subject comes."""

    operation: Operation
    faults: str  # kills or stops it
    # Opened before the first writer starts, writes once that one is where it is.
    meanwhile: Operation | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of writer: what its subject does, and the durable steps that it goes through while doing it."""

    name: str
    title: str
    subject: Operation
    steps: tuple[Failpoint, ...]
    before: tuple[Failpoint, ...] = ()  # steps on the way there and after, which other kinds have as their own
    after: tuple[Failpoint, ...] = ()
    faults: str = ""  # what goes wrong on the way in any case
    first: First | None = None
    base: str = "small"

    @property
    def first_lives(self) -> bool:
        return self.first is not None and self.first.faults.endswith("stop")

    @property
    def overtaker(self) -> Operation:
        """What another process writes meanwhile: for an application that numbers its writes, the same write again."""
        return OVERTAKER if self.subject.transaction is None else self.subject

    @property
    def operations(self) -> dict[str, Operation]:
        known = [*BASES[self.base], self.subject, self.overtaker, NEXT]
        if self.first is not None:
            known += [self.first.operation, *([self.first.meanwhile] if self.first.meanwhile else [])]
        return {operation.name: operation for operation in known}


@dataclass(frozen=True)
class Gap:
    kind: str
    step: Failpoint
    number: int  # which time that the subject gets there
    moment: Moment

    @property
    def place(self) -> str:
        return f"{self.step.value}#{self.number}"

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.place}/{self.moment.value}"


@dataclass(frozen=True)
class Cell:
    gap: Gap
    happening: Happening

    @property
    def id(self) -> str:
        return f"{self.gap.id}/{self.happening.value}"

    @property
    def faults(self) -> str:
        """As ``OMNIGRAPH_FAILPOINTS`` takes it."""
        own = f"{self.gap.place}:{self.gap.moment.value}={self.happening.fault}"
        return ";".join(filter(None, (KINDS[self.gap.kind].faults, own)))


def gaps(kind: Kind) -> Iterator[Gap]:
    walked = list(kind.before)
    for step in kind.steps:
        walked.append(step)
        for moment in Moment:
            yield Gap(kind.name, step, walked.count(step), moment)


def all_cells() -> list[Cell]:
    return [Cell(gap, happening) for kind in KINDS.values() for gap in gaps(kind) for happening in Happening]


def quick_cells() -> list[Cell]:
    """The main kind with everything, every other kind with a kill in every state that it can leave behind."""
    return [cell for cell in all_cells() if cell.gap.kind == MAIN_KIND or _leaves_something_new(cell) or _races(cell)]


def _leaves_something_new(cell: Cell) -> bool:
    """A kill before a step leaves what a kill after the step before it does."""
    starts = next(gaps(KINDS[cell.gap.kind])) == cell.gap
    return cell.happening is Happening.KILL and (starts or cell.gap.moment is Moment.AFTER)


def _races(cell: Cell) -> bool:
    """A recoverer that stands still while the writer it took for dead goes on."""
    lives = KINDS[cell.gap.kind].first_lives
    return lives and cell.happening is Happening.STOP and cell.gap.moment is Moment.BEFORE


_ALICE, _BOB = {"alice": 1}, {"bob": 2}

BASE = "base"  # how the names of the operations begin that a cell starts from
# ``gus`` has no edges: an overwrite may drop him.
BASES: dict[str, tuple[Operation, ...]] = {
    "small": (Operation(BASE, {**_ALICE, **_BOB, "gus": 3}, {"base": ("alice", "bob")}),),
    # One commit short of the number of small fragments that are folded together.
    "unfolded": tuple(
        Operation(
            f"{BASE}-{n}", _ALICE if n == 0 else {f"p{n}": n}, {f"base-{n}": ("alice", f"p{n}" if n else "alice")}
        )
        for n in range(15)
    ),
}
OVERTAKER = Operation("overtaker", {"zoe": 26}, {"overtaker": ("zoe", "alice")})
NEXT = Operation("next", {"yan": 25}, {"next": ("yan", "alice")})

_APPEND = Operation("subject", {"carol": 3, "dave": 4}, {"s1": ("carol", "dave"), "s2": ("alice", "carol")})
_RECOVERER = Operation("recoverer", {"walt": 23}, {"recoverer": ("walt", "alice")})
_FIRST = Operation("first", {"fay": 6, "finn": 7}, {"f1": ("fay", "finn"), "f2": ("alice", "fay")})

_F = Failpoint
WRITE = (_F.STAGE, _F.STAGE, _F.ARM, _F.COMMIT_TABLE, _F.COMMIT_TABLE, _F.PUBLISH, _F.DISARM)
UNDO = (_F.OWN_UNDO, _F.ABORT, _F.RESTORE, _F.RESTORE, _F.CONVERGE, _F.AUDIT, _F.CLEAN)
UNDO_ONE = (_F.OWN_UNDO, _F.ABORT, _F.RESTORE, _F.CONVERGE, _F.AUDIT, _F.CLEAN)

MAIN_KIND = "append"
_KINDS = (
    Kind("append", "a load that appends to two tables", _APPEND, WRITE),
    Kind(
        "merge",
        "a load that merges into two tables",
        Operation("subject", {"bob": 22, "carol": 3}, {"base": ("bob", "alice"), "s1": ("carol", "bob")}, "merge"),
        WRITE,
    ),
    Kind(
        "overwrite",
        "a load that replaces two tables",
        Operation("subject", {"alice": 11, "erin": 5}, {"s1": ("alice", "erin")}, "overwrite"),
        WRITE,
    ),
    Kind(
        "fold",
        "a load that appends to two tables and folds the small fragments of both: a chain of two commits each",
        Operation("subject", {"carol": 3}, {"s1": ("carol", "alice")}),
        (*WRITE[:3], *[_F.COMMIT_TABLE] * 4, _F.CONFIRM, _F.PUBLISH, _F.DISARM),
        base="unfolded",
    ),
    Kind(
        "transaction",
        "a transaction that an application numbers and repeats when in doubt",
        Operation("subject", _APPEND.people, _APPEND.knows, transaction=("etl", 7)),
        WRITE,
    ),
    Kind(
        "own undo",
        "a load whose second table the store refuses, undoing itself",
        _APPEND,
        UNDO,
        before=WRITE[:5],
        faults="table.commit#2:before=error",
    ),
    Kind(
        "undo",
        "a recoverer of a writer that died between its tables",
        _RECOVERER,
        UNDO,
        after=WRITE,
        first=First(_FIRST, "table.commit#1:after=kill"),
    ),
    Kind(
        "undo chain",
        "a recoverer of a writer that died inside the second table's chain",
        _RECOVERER,
        UNDO,
        # The undone fragments are not counted, so the recoverer's own write folds again.
        after=(*WRITE[:3], *[_F.COMMIT_TABLE] * 4, _F.CONFIRM, _F.PUBLISH, _F.DISARM),
        first=First(Operation("first", {"fay": 6}, {"f1": ("alice", "fay")}), "table.commit#3:after=kill"),
        base="unfolded",
    ),
    Kind(
        "roll forward",
        "a recoverer of a writer that died before its publish",
        _RECOVERER,
        (_F.ROLL_FORWARD, _F.AUDIT, _F.CLEAN),
        after=WRITE,
        first=First(_FIRST, "manifest.publish#1:before=kill"),
    ),
    Kind(
        "forget",
        "a recoverer of a writer that died after its publish",
        _RECOVERER,
        (_F.AUDIT, _F.CLEAN),
        after=WRITE,
        first=First(_FIRST, "manifest.publish#1:after=kill"),
    ),
    Kind(
        "undo living",
        "a recoverer of a writer that stands before its first table and goes on afterwards",
        _RECOVERER,
        UNDO,
        after=WRITE,
        first=First(_FIRST, "table.commit#1:before=stop"),
    ),
    Kind(
        "undo publishing",
        "a recoverer of a writer of edges that stands before its publish, with the nodes changed, and goes on afterwards",
        _RECOVERER,
        UNDO_ONE,
        after=WRITE,
        first=First(
            Operation("first", knows={"f1": ("bob", "alice")}),
            "manifest.publish#1:before=stop",
            meanwhile=Operation("meanwhile", {"pia": 16}),
        ),
    ),
    Kind(
        "undo invalid",
        "the same, with an endpoint of the edges gone",
        _RECOVERER,
        UNDO_ONE,
        after=WRITE,
        first=First(
            Operation("first", knows={"f1": ("gus", "alice")}),
            "manifest.publish#1:before=stop",
            meanwhile=Operation("meanwhile", {**_ALICE, **_BOB, "pia": 16}, mode="overwrite"),
        ),
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
