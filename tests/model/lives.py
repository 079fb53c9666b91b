"""The lives of one branch name, as a state machine: made, written to and deleted again, by processes any of which may be slow.

The ref says which life the name has; the versions below it may be of any. It follows ``branches/branches.py`` and
``give_first_version`` of ``manifest/dataset.py``: a name's first version is Lance's clone of the parent's, which has the
parent's number; each life begins with a version that says so, right above whatever stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple


class Fault(str, Enum):
    """A mistake that can be planted. The exploration must find each."""

    NO_START = "the first life of a name takes whatever stands there for its own"
    START_ON_ANYTHING = "begin on top of what stands there, whatever it is"
    START_UNCHECKED = "begin without looking at the ref once HEAD is known"
    WITHDRAW_UNWRITTEN = "remove the ref of a branch that has no version yet"
    REBASED = "publish above whatever stands there"


class Parent(NamedTuple):
    """Where a life starts: the version of a branch, whose number the clone of it has."""

    name: str
    version: int


MAIN = "main"


class Version(NamedTuple):
    """A manifest version below the name."""

    number: int
    base: Parent  # what it was cloned from, or copied
    start: int | None  # the life that it says it is of
    commits: frozenset[int] = frozenset()  # of which writers


class Place(NamedTuple):
    step: str
    notes: tuple[int, ...] = ()


END = Place("end")


@dataclass(frozen=True)
class State:
    ref: int | None  # the life that the name has
    past: frozenset[int]  # lives that it has had
    parents: frozenset[str]  # other branches that stand; main always does
    versions: tuple[Version, ...]  # in the order of their numbers
    acknowledged: frozenset[tuple[int, int]]  # writers that were told success, and on which life
    places: tuple[Place, ...]

    def at(self, number: int, step: str, *notes: int, **changes: object) -> State:
        places = (*self.places[:number], Place(step, notes), *self.places[number + 1 :])
        return replace(self, places=places, **changes)  # type: ignore[arg-type]

    @property
    def head(self) -> Version | None:
        return self.versions[-1] if self.versions else None

    def put(self, version: Version) -> tuple[Version, ...]:
        """The versions with this one, unless its number is taken."""
        if any(version.number == other.number for other in self.versions):
            return self.versions
        return tuple(sorted((*self.versions, version)))


Move = tuple[str, State]
Process = Callable[["Scene", State, int], Iterator[Move]]


@dataclass(frozen=True)
class Scene:
    """Life n is what the n-th creator makes, of the n-th parent. Each process runs once, and may stop anywhere for ever."""

    lives: tuple[Parent, ...]
    writers: int = 1
    deleters: int = 1
    goes: str | None = None  # a parent that somebody deletes
    fault: Fault | None = None
    _processes: tuple[Process, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        goer = [_parent_deleter] if self.goes else []
        processes = [_creator] * len(self.lives) + [_writer] * self.writers + [_deleter] * self.deleters + goer
        object.__setattr__(self, "_processes", tuple(processes))

    def initial(self) -> State:
        places = (Place("begin"),) * len(self._processes)
        return State(None, frozenset(), frozenset(life.name for life in self.lives), (), frozenset(), places)

    def moves(self, state: State) -> Iterator[Move]:
        for number, process in enumerate(self._processes):
            if state.places[number] != END:
                yield from process(self, state, number)

    def stands(self, state: State, life: int) -> bool:
        """Whether the life's parent does."""
        return self.lives[life].name in state.parents

    def shown(self, state: State) -> Version | None:
        """What a reader of the branch sees; None when there is no such branch."""
        life, head = state.ref, state.head
        if life is None:
            return None
        if head is not None and (head.start == life or self.fault is Fault.NO_START):
            return head
        return Version(0, self.lives[life], None) if self.stands(state, life) else None

    def violation(self, state: State) -> str | None:
        shown, life = self.shown(state), state.ref
        if shown is None or life is None:
            return None
        due = {writer for writer, of in state.acknowledged if of == life}
        if shown.base != self.lives[life]:
            return f"life {life} shows what another life began with"
        if not due <= shown.commits:
            return f"life {life} lacks a commit that was acknowledged"
        foreign = {writer for writer in shown.commits if self._life_of(state, writer) != life}
        return f"life {life} shows a commit of another life" if foreign else None

    def _life_of(self, state: State, writer: int) -> int | None:
        """On which life a writer is or was."""
        notes = state.places[writer].notes
        return notes[0] if notes else next((of for one, of in state.acknowledged if one == writer), None)


def _creator(scene: Scene, state: State, life: int) -> Iterator[Move]:
    name, step = f"create {life}", state.places[life].step
    if step in ("begin", "look", "occupy", "clear", "put"):
        yield from _name_taken(scene, state, life, name)
        return
    yield from _begin(scene, state, life, name, life, then="end", orphaned="withdraw")
    if step == "withdraw":
        after = "remove" if scene.fault is Fault.WITHDRAW_UNWRITTEN else "write first"
        yield f"{name}: the parent is gone", state.at(life, after, life)
    elif step == "write first":
        yield f"{name}: occupy", state.at(life, "remove", life, versions=_occupied(scene, state, life))
    elif step == "remove":
        yield f"{name}: remove the ref", state.at(life, "end", ref=None if state.ref == life else state.ref)


def _name_taken(scene: Scene, state: State, life: int, name: str) -> Iterator[Move]:
    """The name is this life's, unless it is another's."""
    step, notes = state.places[life]
    if step == "begin" and scene.stands(state, life):
        yield f"{name}: read the parent", state.at(life, "look")
    elif step == "look" and state.ref is None:
        yield f"{name}: the name is free", state.at(life, "put")
    elif step == "look" and scene.shown(state) is None:  # it never came to be
        yield f"{name}: a leftover", state.at(life, "occupy", state.ref)
    elif step == "occupy":
        yield f"{name}: occupy", state.at(life, "clear", *notes, versions=_occupied(scene, state, notes[0]))
    elif step == "clear":
        yield f"{name}: remove it", state.at(life, "look", ref=None if state.ref == notes[0] else state.ref)
    elif step == "put" and state.ref is None:
        yield f"{name}: put the ref", state.at(life, "first", life, ref=life, past=state.past | {life})


def _cloned(scene: Scene, state: State, life: int) -> tuple[Version, ...]:
    """As Lance clones: at the parent's number, if that is not taken, wherever HEAD is by then."""
    parent = scene.lives[life]
    return state.put(Version(parent.version, parent, None))


def _occupied(scene: Scene, state: State, life: int) -> tuple[Version, ...]:
    """Whoever is about to clone for this life, and sleeps, finds the number taken. He saw that there was nothing; so if there
    is something by now, this is it.
    """
    return state.versions or _cloned(scene, state, life)


def _begin(
    scene: Scene, state: State, number: int, name: str, life: int, *, then: str, orphaned: str
) -> Iterator[Move]:
    """The life has a version of its own afterwards. The notes are the life, and the HEAD that was seen."""
    step, notes = state.places[number]
    head, parent = state.head, scene.lives[life]
    if step == "first":
        sound = state.ref == life and scene.stands(state, life)
        after = ("clone" if head is None else "head") if sound else orphaned
        yield f"{name}: look at ref and parent", state.at(number, after, *notes[:1])
    elif step == "clone":
        yield f"{name}: clone", state.at(number, "head", *notes, versions=_cloned(scene, state, life))
    elif step == "head" and head is not None:
        if head.start == life or scene.fault is Fault.NO_START:
            yield f"{name}: it has begun", state.at(number, then, *notes[:1])
        else:
            after = "start" if scene.fault is Fault.START_UNCHECKED else "ref"
            yield f"{name}: read HEAD", state.at(number, after, notes[0], head.number)
    elif step == "ref":
        yield f"{name}: look at the ref again", state.at(number, "start" if state.ref == life else orphaned, *notes)
    elif step == "start" and head is not None:
        if head.number != notes[1]:
            yield f"{name}: HEAD has moved", state.at(number, "head", *notes[:1])
            return
        pristine = head == Version(parent.version, parent, None)
        kept = head if pristine or scene.fault is Fault.START_ON_ANYTHING else Version(0, parent, None)
        began = kept._replace(number=head.number + 1, start=life)
        yield f"{name}: begin", state.at(number, "head", *notes[:1], versions=state.put(began))


def _writer(scene: Scene, state: State, number: int) -> Iterator[Move]:
    name, step, notes = f"writer {number}", *state.places[number]
    if step == "begin":
        if state.ref is not None and scene.shown(state) is not None:
            yield f"{name}: read the ref", state.at(number, "open", state.ref)
        return
    life = notes[0]
    yield from _begin(scene, state, number, name, life, then="open", orphaned="end")
    if step == "open":
        head = state.head
        begun = head is not None and (head.start == life or scene.fault is Fault.NO_START)
        if state.ref != life:
            yield f"{name}: another life", state.at(number, "end")
        elif begun and head is not None:
            yield f"{name}: capture", state.at(number, "publish", life, head.number)
        else:
            yield f"{name}: it has not begun", state.at(number, "first", life)
    elif step == "publish":
        head = state.head
        assert head is not None
        if head.number != notes[1] and scene.fault is not Fault.REBASED:
            yield f"{name}: HEAD has moved", state.at(number, "open", life)
            return
        commit = head._replace(number=head.number + 1, commits=head.commits | {number})
        told = state.acknowledged | {(number, life)}
        yield f"{name}: publish", state.at(number, "end", versions=state.put(commit), acknowledged=told)


def _deleter(scene: Scene, state: State, number: int) -> Iterator[Move]:
    name, step, notes = f"delete by {number}", *state.places[number]
    if step == "begin":
        if state.ref is not None and scene.shown(state) is not None:
            head = state.head
            begun = head is not None and (head.start == state.ref or scene.fault is Fault.NO_START)
            after = "remove" if begun or scene.fault is Fault.WITHDRAW_UNWRITTEN else "occupy"
            yield f"{name}: read the ref", state.at(number, after, state.ref)
    elif step == "occupy":
        yield f"{name}: occupy", state.at(number, "remove", *notes, versions=_occupied(scene, state, notes[0]))
    elif step == "remove":
        # Looking whose ref it is and removing it are two steps of the store, milliseconds apart: taken as one here.
        yield f"{name}: remove the ref", state.at(number, "end", ref=None if state.ref == notes[0] else state.ref)


def _parent_deleter(scene: Scene, state: State, number: int) -> Iterator[Move]:
    if state.places[number].step == "begin":
        heir = state.ref is not None and scene.lives[state.ref].name == scene.goes
        after = "end" if heir else "remove"
        yield f"delete {scene.goes}: look for heirs", state.at(number, after)
    else:
        yield f"delete {scene.goes}", state.at(number, "end", parents=state.parents - {str(scene.goes)})


SCENES = {
    "two lives of main's versions": Scene((Parent(MAIN, 3), Parent(MAIN, 4)), writers=2),
    "a later life of an older version": Scene((Parent(MAIN, 4), Parent(MAIN, 3)), writers=2),
    "the parent of the first life goes": Scene((Parent("x", 9), Parent(MAIN, 3)), goes="x"),
    "the parent of the second life goes": Scene((Parent(MAIN, 3), Parent("x", 9)), goes="x"),
    "two parents with the same version": Scene((Parent("x", 3), Parent(MAIN, 3)), goes="x"),
    "three lives": Scene((Parent(MAIN, 3), Parent(MAIN, 4), Parent(MAIN, 3)), writers=0, deleters=2),
}
