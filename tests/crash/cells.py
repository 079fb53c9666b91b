"""Which writers there are, which durable steps each goes through, and the cells that follow from it. Pure.

A *gap* is the moment before or after one durable step of one kind of writer; a *cell* is a gap and what happens there. A kind
lists the failpoints its subject goes through, in order. The lists are compared with what a real run reaches, and together they
must name every failpoint, so a new one without its row fails the build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from omnigraph_engine.failpoints import Failpoint, Moment

SCHEMA = """
node Person {
    name: String @key
    age: I32?
}
edge Knows: Person -> Person
"""


MAIN = "main"
DEV = "dev"
QA = "qa"


class Verb(str, Enum):
    WRITE = "write"
    CREATE = "create"  # the branch
    DELETE = "delete"
    MERGE = "merge"  # dev into the branch; the rows are those that it brings


@dataclass(frozen=True)
class Operation:
    """One write, under a name of its own that its commit carries as its message; or the making or deleting of a branch."""

    name: str
    people: Mapping[str, int] = field(default_factory=dict)
    knows: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by edge id
    mode: str = "append"
    transaction: tuple[str, int] | None = None
    branch: str = MAIN
    verb: Verb = Verb.WRITE
    delete_branch: bool = False  # once it is merged

    @property
    def commits(self) -> bool:
        """Whether a commit comes of it."""
        return self.verb in (Verb.WRITE, Verb.MERGE)


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
    large: bool = (
        False  # whether tables count as such in which few replaced rows get their row ids in a step of its own
    )

    @property
    def first_lives(self) -> bool:
        return self.first is not None and self.first.faults.endswith("stop")

    @property
    def overtaker(self) -> Operation:
        """What another process writes meanwhile: for an application that numbers its writes, the same write again.

        While a branch comes or goes it is a write to main.
        """
        if self.subject.transaction is not None:
            return self.subject
        return replace(OVERTAKER, branch=self.subject.branch if self.subject.commits else MAIN)

    @property
    def next(self) -> Operation:
        """What is written when all is settled: to the subject's branch, which is made again when it is not there."""
        return replace(NEXT, branch=self.subject.branch)

    @property
    def operations(self) -> dict[str, Operation]:
        known = [*BASES[self.base], self.subject, self.overtaker, self.next]
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
    """The main kind with everything, every other kind with a kill in every state that it can leave behind; and a few more."""
    return [
        cell
        for cell in all_cells()
        if cell.gap.kind == MAIN_KIND or _leaves_something_new(cell) or _races(cell) or _loses_an_answer(cell)
    ]


def _leaves_something_new(cell: Cell) -> bool:
    """A kill before a step leaves what a kill after the step before it does."""
    starts = next(gaps(KINDS[cell.gap.kind])) == cell.gap
    return cell.happening is Happening.KILL and (starts or cell.gap.moment is Moment.AFTER)


def _races(cell: Cell) -> bool:
    """A recoverer that stands still while the writer it took for dead goes on; a writer whose own line is dropped meanwhile."""
    lives = KINDS[cell.gap.kind].first_lives
    forks = cell.gap.kind == FORK_KIND and cell.gap.step in (Failpoint.FORK, Failpoint.COMMIT_TABLE)
    return (lives or forks) and cell.happening is Happening.STOP and cell.gap.moment is Moment.BEFORE


def _loses_an_answer(cell: Cell) -> bool:
    """Branches come and go in one step each, and its answer may be lost."""
    branches = not KINDS[cell.gap.kind].subject.commits
    return branches and cell.happening is Happening.ERROR and cell.gap.moment is Moment.AFTER


_ALICE, _BOB = {"alice": 1}, {"bob": 2}

BASE = "base"  # how the names of the operations begin that a cell starts from
# ``gus`` has no edges: an overwrite may drop him.
_SMALL = Operation(BASE, {**_ALICE, **_BOB, "gus": 3}, {"base": ("alice", "bob")})
_MAKE_DEV = Operation("make dev", branch=DEV, verb=Verb.CREATE)
BASES: dict[str, tuple[Operation, ...]] = {
    "small": (_SMALL,),
    "branched": (_SMALL, _MAKE_DEV),
    "written": (_SMALL, _MAKE_DEV, Operation(f"{BASE}-dev", {"ivy": 9}, {"dev": ("ivy", "alice")}, branch=DEV)),
    # Both branches have changed the people, and only dev the edges: one table is merged by entity, the other adopted.
    "diverged": (
        _SMALL,
        _MAKE_DEV,
        Operation(f"{BASE}-dev", {"ivy": 9}, {"dev": ("ivy", "alice")}, branch=DEV),
        Operation(f"{BASE}-main", {"hal": 8}),
    ),
    # The same, with a branch of main that has no line of its own.
    "three": (
        _SMALL,
        _MAKE_DEV,
        Operation(f"{BASE}-dev", {"ivy": 9}, {"dev": ("ivy", "alice")}, branch=DEV),
        Operation(f"{BASE}-main", {"hal": 8}),
        Operation("make qa", branch=QA, verb=Verb.CREATE),
    ),
    # The same, one commit short of the number of small fragments that are folded together.
    "unfolded diverged": (
        *(Operation(f"{BASE}-{n}", _ALICE if n == 0 else {f"p{n}": n}) for n in range(14)),
        _MAKE_DEV,
        Operation(f"{BASE}-dev", {"ivy": 9}, {"dev": ("ivy", "alice")}, branch=DEV),
        Operation(f"{BASE}-main", {"hal": 8}),
    ),
    # The name had a life before, and main has more versions by now than the name ever had.
    "lived": (
        _MAKE_DEV,
        Operation(f"{BASE}-former", {"ivy": 9}, {"former": ("ivy", "ivy")}, branch=DEV),
        Operation("end dev", branch=DEV, verb=Verb.DELETE),
        _SMALL,
        *(Operation(f"{BASE}-{n}", {f"p{n}": n}) for n in range(4)),
    ),
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

FORK = (
    _F.STAGE, _F.STAGE, _F.ARM, _F.FORK, _F.COMMIT_TABLE, _F.FORK, _F.COMMIT_TABLE, _F.PUBLISH, _F.DISARM,
)  # fmt: skip
UNDO_FORK = (_F.OWN_UNDO, _F.ABORT, _F.CONVERGE, _F.AUDIT, _F.CLEAN)  # lines are dropped, and nothing is restored
CREATE = (_F.CREATE_BRANCH, _F.BEGIN_BRANCH)

MERGE = (_F.ARM, _F.COMMIT_TABLE, _F.PUBLISH, _F.DISARM)
# Its edges are on dev's line by then, so main forks a line of its own.
WRITE_AFTER_MERGE = (
    _F.STAGE, _F.STAGE, _F.ARM, _F.FORK, _F.COMMIT_TABLE, _F.COMMIT_TABLE, _F.PUBLISH, _F.DISARM,
)  # fmt: skip
_MERGED = Operation("subject", {"ivy": 9}, {"dev": ("ivy", "alice")}, verb=Verb.MERGE)
CHAINS = (*WRITE[:3], *[_F.COMMIT_TABLE] * 4, _F.CONFIRM, _F.PUBLISH, _F.DISARM)  # two commits for each of two tables

MAIN_KIND = "append"
FORK_KIND = "fork"
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
        CHAINS,
        base="unfolded",
    ),
    Kind(
        "replace few",
        "a load that replaces few rows of two large tables: a chain of two commits each",
        Operation("subject", {"bob": 22, "carol": 3}, {"base": ("bob", "alice"), "s1": ("carol", "bob")}, "merge"),
        CHAINS,
        large=True,
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
        after=CHAINS,
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
    Kind(
        FORK_KIND,
        "the first load into two tables of a branch: it forks both, and replaces rows that are on main's lines",
        Operation(
            "subject", {"bob": 22, "carol": 3}, {"base": ("bob", "alice"), "s1": ("carol", "bob")}, "merge", branch=DEV
        ),
        FORK,
        base="branched",
    ),
    Kind(
        "undo fork",
        "a recoverer of a first load into a branch that died between its tables",
        replace(_RECOVERER, branch=DEV),
        UNDO_FORK,
        after=FORK,
        first=First(replace(_FIRST, branch=DEV), "table.commit#1:after=kill"),
        base="branched",
    ),
    Kind(
        "forward fork",
        "a recoverer of a first load into a branch that died before its publish",
        replace(_RECOVERER, branch=DEV),
        (_F.ROLL_FORWARD, _F.AUDIT, _F.CLEAN),
        after=WRITE,
        first=First(replace(_FIRST, branch=DEV), "manifest.publish#1:before=kill"),
        base="branched",
    ),
    Kind("create", "the making of a branch", Operation("subject", branch=DEV, verb=Verb.CREATE), CREATE),
    Kind(
        "create again",
        "the making of a branch whose name had a life before",
        Operation("subject", branch=DEV, verb=Verb.CREATE),
        CREATE,
        base="lived",
    ),
    Kind(
        "delete",
        "the deleting of a branch that has forked two tables",
        Operation("subject", branch=DEV, verb=Verb.DELETE),
        (_F.DELETE_BRANCH, _F.RECLAIM),
        base="written",
    ),
    Kind("merge branch", "a merge of one table by entity and of one by adoption", _MERGED, MERGE, base="diverged"),
    Kind(
        "merge fold",
        "the same, and the table that is merged by entity is folded: a chain of two commits",
        _MERGED,
        (_F.ARM, _F.COMMIT_TABLE, _F.COMMIT_TABLE, _F.CONFIRM, _F.PUBLISH, _F.DISARM),
        base="unfolded diverged",
    ),
    Kind(
        "merge fork",
        "a merge of one branch into another, which has no line of its own yet and forks one",
        replace(_MERGED, branch=QA),
        (_F.ARM, _F.FORK, _F.COMMIT_TABLE, _F.PUBLISH, _F.DISARM),
        base="three",
    ),
    Kind(
        "merge and delete",
        "a merge that deletes its source afterwards",
        replace(_MERGED, delete_branch=True),
        (*MERGE, _F.DELETE_BRANCH, _F.RECLAIM),
        base="diverged",
    ),
    Kind(
        "undo merge",
        "a recoverer of a merge that died before its table",
        _RECOVERER,
        UNDO_ONE,
        after=WRITE,
        first=First(replace(_MERGED, name="first"), "table.commit#1:before=kill"),
        base="diverged",
    ),
    Kind(
        "forward merge",
        "a recoverer of a merge that died before its publish",
        _RECOVERER,
        (_F.ROLL_FORWARD, _F.AUDIT, _F.CLEAN),
        after=WRITE_AFTER_MERGE,
        first=First(replace(_MERGED, name="first"), "manifest.publish#1:before=kill"),
        base="diverged",
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
