"""Who may drop a line of a table, as a state machine: merges adopt it, branches that show it come and go, and all may die.

One line of one table. Branches pass it on to each other by merges, and one may be made from another. Whoever deletes a branch
looks afterwards whether anybody shows the line, one small read at a time, and drops it when nobody was found. Merges that died
are taken to their end by recoverers, at any time. It follows ``commit/shown.py``, the coordinator's check of what is merged, and
recovery's; the main model (``protocol.py``) has what else a commit does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

MAIN, DEV, OTHER, CHILD = "main", "dev", "other", "child"


class Fault(str, Enum):
    """A mistake that can be planted. The exploration must find each."""

    NO_CHECK = "merge without looking whether the source stands"
    CHECK_BEFORE_ARM = "look whether the source stands, then arm"
    NO_ABORT = "find the source gone and give up without saying so in the manifest"
    NO_RECOVERY_CHECK = "finish a dead merge without looking who shows what it adopts"
    SIDECARS_LAST = "look at manifests, then at sidecars"
    SIDECARS_BEFORE_REFS = "look at sidecars, then at which branches there are"
    IGNORE_THE_GONE = "a branch that is gone when its manifest is to be read shows nothing"


class Place(NamedTuple):
    """How far a process is, and what it has noted on the way."""

    step: str
    notes: tuple[str, ...] = ()


END = Place("end")


@dataclass(frozen=True)
class State:
    living: frozenset[str]  # branches that have a ref
    shows: frozenset[str]  # branches, living or not, whose manifest shows the line
    sidecars: frozenset[int]  # merges that are armed
    committed: frozenset[int]
    aborted: frozenset[int]
    dropped: bool
    places: tuple[Place, ...]

    def at(self, number: int, step: str, *notes: str, **changes: object) -> State:
        places = (*self.places[:number], Place(step, notes), *self.places[number + 1 :])
        return replace(self, places=places, **changes)  # type: ignore[arg-type]


Move = tuple[str, State]
Process = Callable[["Scene", State, int], Iterator[Move]]


@dataclass(frozen=True)
class Merge:
    source: str
    into: str


@dataclass(frozen=True)
class Scene:
    """Which processes there are. Each runs once, and merges may die at every step."""

    merges: tuple[Merge, ...]
    deletions: tuple[str, ...]
    showing: frozenset[str] = frozenset({DEV})
    recoverers: int = 1
    child_of: str | None = None  # a branch that somebody makes a child of
    fault: Fault | None = None
    _processes: tuple[Process, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        merges = [_merger] * len(self.merges)
        others = [_deleter] * len(self.deletions) + [_recoverer] * self.recoverers
        object.__setattr__(self, "_processes", (*merges, *others, *([_creator] if self.child_of else [])))

    def initial(self) -> State:
        nobody: frozenset[int] = frozenset()
        places = (Place("begin"),) * len(self._processes)
        return State(frozenset({MAIN, DEV, OTHER}), self.showing, nobody, nobody, nobody, False, places)

    def moves(self, state: State) -> Iterator[Move]:
        for number, process in enumerate(self._processes):
            if state.places[number] != END:
                yield from process(self, state, number)

    def violation(self, state: State) -> str | None:
        holders = sorted(self.holders(state))
        return f"{', '.join(holders)} shows a line that was dropped" if state.dropped and holders else None

    def holders(self, state: State) -> frozenset[str]:
        """The branches that show the line. A child whose parent went before it had begun is no branch."""
        begun = any(place.step == "begun" for place in state.places)
        return state.living & state.shows - (set() if begun or self.child_of in state.living else {CHILD})


def _merger(scene: Scene, state: State, number: int) -> Iterator[Move]:
    merge, step = scene.merges[number], state.places[number].step
    early = scene.fault is Fault.CHECK_BEFORE_ARM
    name = f"merge {merge.source} into {merge.into}"
    if step == "begin":
        sound = {merge.source, merge.into} <= state.living and merge.source in state.shows
        yield f"{name}: capture", state.at(number, ("check" if early else "arm") if sound else "end")
        return
    yield f"{name}: die", state.at(number, "end")
    if step == "arm":
        after = "publish" if early or scene.fault is Fault.NO_CHECK else "check"
        yield f"{name}: arm", state.at(number, after, sidecars=state.sidecars | {number})
    elif step == "check":
        stands = merge.source in state.living
        give_up = "disarm" if early or scene.fault is Fault.NO_ABORT else "abort"
        yield f"{name}: check", state.at(number, ("arm" if early else "publish") if stands else give_up)
    elif step == "abort":
        aborted = state.aborted | ({number} - state.committed)
        yield f"{name}: abort", state.at(number, "disarm", aborted=aborted)
    elif step == "publish":
        yield f"{name}: publish", _published(scene, state, number, number, "disarm")
    elif step == "disarm":
        yield f"{name}: disarm", state.at(number, "end", sidecars=state.sidecars - {number})


def _published(scene: Scene, state: State, merge: int, number: int, then: str) -> State:
    """The swap of the target's manifest: it is refused once the operation has been undone, and lands once."""
    into = scene.merges[merge].into
    if merge in state.aborted or into not in state.living:
        return state.at(number, then, *state.places[number].notes)
    notes = state.places[number].notes
    return state.at(number, then, *notes, shows=state.shows | {into}, committed=state.committed | {merge})


def _recoverer(scene: Scene, state: State, number: int) -> Iterator[Move]:
    step, notes = state.places[number]
    if step == "begin":
        for merge in sorted(state.sidecars):
            todo = () if scene.fault is Fault.NO_RECOVERY_CHECK else tuple(sorted(state.living))
            after = "look" if todo else "forward"
            yield f"recover {merge}", state.at(number, after, str(merge), *todo)
        yield "recover nothing", state.at(number, "end")
        return
    merge, todo = int(notes[0]), notes[1:]
    if merge in state.committed | state.aborted:
        yield f"recover {merge}: forget", state.at(number, "end", sidecars=state.sidecars - {merge})
    elif step == "look":
        branch, *rest = todo
        if branch in scene.holders(state):
            yield f"recover {merge}: {branch} shows it", state.at(number, "forward", str(merge))
        else:
            yield f"recover {merge}: not {branch}", state.at(number, "look" if rest else "back", str(merge), *rest)
    elif step == "forward":
        yield f"recover {merge}: publish", _published(scene, state, merge, number, "forget")
    elif step == "back":
        yield f"recover {merge}: abort", state.at(number, "forget", str(merge), aborted=state.aborted | {merge})
    elif step == "forget":  # the target is gone: nothing of it can become visible
        yield f"recover {merge}: discard", state.at(number, "end", sidecars=state.sidecars - {merge})


def _deleter(scene: Scene, state: State, number: int) -> Iterator[Move]:
    branch = scene.deletions[number - len(scene.merges)]
    step, notes = state.places[number]
    if step == "begin":
        if scene.child_of != branch or CHILD not in state.living:  # else it has descendants
            before = "sidecars, then refs" if scene.fault is Fault.SIDECARS_BEFORE_REFS else "refs"
            yield f"delete {branch}: withdraw", state.at(number, before, living=state.living - {branch})
        else:
            yield f"delete {branch}: refused", state.at(number, "end")
    elif step == "refs":
        after = "manifests" if scene.fault in (Fault.SIDECARS_LAST, Fault.SIDECARS_BEFORE_REFS) else "sidecars"
        yield f"delete {branch}: list refs", state.at(number, after, *sorted(state.living))
    elif step in ("sidecars", "sidecars, then refs", "sidecars, then drop"):
        then = {"sidecars": "manifests", "sidecars, then refs": "refs"}.get(step, "drop")
        after = "end" if state.sidecars else then
        yield f"delete {branch}: list sidecars", state.at(number, after, *(() if after == "end" else notes))
    elif step == "manifests":
        yield _manifest_read(scene, state, number, branch)
    elif step == "drop":
        yield f"delete {branch}: drop the line", state.at(number, "end", dropped=True)


def _manifest_read(scene: Scene, state: State, number: int, branch: str) -> Move:
    read, *rest = state.places[number].notes
    gone = read not in state.living
    if gone and scene.fault is not Fault.IGNORE_THE_GONE:
        again = "sidecars, then refs" if scene.fault is Fault.SIDECARS_BEFORE_REFS else "refs"
        return f"delete {branch}: {read} is gone, look again", state.at(number, again)
    if not gone and read in state.shows:
        return f"delete {branch}: {read} shows it", state.at(number, "end")
    last = "sidecars, then drop" if scene.fault is Fault.SIDECARS_LAST else "drop"
    return f"delete {branch}: not {read}", state.at(number, "manifests" if rest else last, *rest)


def _creator(scene: Scene, state: State, number: int) -> Iterator[Move]:
    parent, step = str(scene.child_of), state.places[number].step
    if step == "begin":
        yield "create: read the parent", state.at(number, "put" if parent in state.living else "end")
    elif step == "put":
        shows = state.shows | ({CHILD} if parent in state.shows else set())
        yield "create: put the ref", state.at(number, "first version", living=state.living | {CHILD}, shows=shows)
        yield "create: die", state.at(number, "end")
    elif step == "first version":
        if parent in state.living:
            yield "create: write the first version", state.at(number, "begun")
        else:
            yield "create: withdraw the ref", state.at(number, "end", living=state.living - {CHILD})
        yield "create: die", state.at(number, "end")


SCENES = {
    "a merge beside the deletion of its source": Scene((Merge(DEV, MAIN),), (DEV,), recoverers=2),
    "two merges of one branch": Scene((Merge(DEV, MAIN), Merge(DEV, OTHER)), (DEV,)),
    "a line that is passed on twice": Scene((Merge(DEV, OTHER), Merge(OTHER, MAIN)), (DEV, OTHER)),
    "a line that two branches show": Scene((Merge(OTHER, MAIN),), (DEV, OTHER), frozenset({DEV, OTHER})),
    "a child of the branch": Scene((Merge(DEV, MAIN),), (DEV,), child_of=DEV),
    "a child of the branch that took it over": Scene(
        (Merge(OTHER, MAIN),), (DEV, OTHER), frozenset({DEV, OTHER}), child_of=OTHER, recoverers=0
    ),
}
