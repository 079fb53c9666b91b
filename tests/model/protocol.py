"""The commit protocol as a state machine: every move is one read or one atomic effect on storage, by one process.

It follows ``omnigraph_engine.commit`` step by step. Writers and recoverers run side by side and any of them may be slow, die,
or be told that a call failed whose effect happens after all, then or later. The lease is taken as zero: a recoverer may hold
any sidecar for abandoned at any moment, so nothing that holds here depends on time.

A process that settles an operation runs the same steps whether it is a recoverer or the operation's own writer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from protocol_state import (
    BASE_MARK,
    MAIN,
    SHARED,
    TRUNK,
    Capture,
    Effect,
    Intent,
    Label,
    Line,
    Manifest,
    Pin,
    Process,
    State,
    Version,
    Write,
    happened,
    line_of,
    step_bit,
    step_mark,
    undo_mark,
)

ENDED = Process("ended", 0, ())
IDLE = Process("idle", 0, ())
HALTED = Process("halted", 0, ())  # a recoverer that found damage and left it to an operator
AGAIN, NOT_AGAIN = True, False  # whether a writer that withdraws may try anew

Move = tuple[Label, State]
Then = Callable[[State], State]


class Fault(str, Enum):
    """A mistake that can be planted into the protocol. The exploration must find each."""

    UNDO_BEFORE_ABORT = "undo-before-abort"
    NO_FENCE = "no-fence"
    NO_UNDO_SIDECAR = "no-undo-sidecar"
    REBASE_TABLE_COMMIT = "rebase-table-commit"
    DELETE_ON_UNKNOWN = "delete-on-unknown"
    PUBLISH_BLIND = "publish-blind"
    FORWARD_IF_ANY_LANDED = "forward-if-any-landed"
    FORWARD_INCOMPLETE_CHAIN = "forward-incomplete-chain"
    PUBLISH_BEFORE_ALL_LANDED = "publish-before-all-landed"
    IGNORE_READ_SET = "ignore-read-set"
    SHARED_FORK_NAME = "fork-with-shared-name"
    NO_FORK = "no-fork"
    NO_OWN_COMMIT_CHECK = "no-own-commit-check"
    DISARM_BEFORE_PUBLISH = "disarm-before-publish"
    FORGET_BEFORE_CONVERGE = "forget-before-converge"
    # After a failed commit, no mark of its own; then HEAD has moved: the writer takes its own late commit for another's.
    HEAD_READ_AFTER_MARK = "head-read-after-mark"
    # The manifest pins another line by now, at a version above this line's HEAD: recovery takes that for damage.
    HEAD_COMPARED_ACROSS_LINES = "head-compared-across-lines"


# How far an operation got with one table. Not moved, incomplete, or moved by someone else: it comes to the same.
PUBLISHED, LANDED, UNFINISHED, IMPOSSIBLE = "published", "landed", "unfinished", "impossible"


@dataclass(frozen=True)
class Model:
    """The protocol with so many writers and recoverers, and so much misfortune."""

    writers: tuple[Write, ...]
    tables: int = 2
    recoverers: int = 1
    crashes: int = 0
    errors: int = 0  # failed calls; the effect has happened, or it never will
    stragglers: int = 0  # failed calls whose effect may happen at any later time
    renewals: int = 0
    attempts: int = 1  # of each writer; every attempt is an operation of its own
    fault: Fault | None = None

    @property
    def operations(self) -> int:
        return len(self.writers) * self.attempts

    def write_of(self, op: int) -> Write:
        return self.writers[op // self.attempts]

    def initial(self) -> State:
        lines = tuple(Line((table, TRUNK), 0, (Version(BASE_MARK, 0),)) for table in range(self.tables))
        manifest = Manifest(0, (Pin(TRUNK, 0),) * self.tables, 0, 0, 0, 0, 0)
        return State(
            lines=lines,
            manifests=(manifest, manifest),
            captures=(None,) * self.operations,
            armed=0,
            owned=0,
            processes=(
                *(Process("barrier", number * self.attempts, ()) for number in range(len(self.writers))),
                *(IDLE,) * self.recoverers,
            ),
            in_flight=(),
            crashes=self.crashes,
            errors=self.errors,
            stragglers=self.stragglers,
            renewals=self.renewals,
            acknowledged=0,
            failed=0,
        )

    def moves(self, state: State) -> Iterator[Move]:
        """Everything that can happen next, and what is true then."""
        for me, process in enumerate(state.processes):
            if process is ENDED or process is HALTED:
                continue
            yield from self._STEPS[process.step](self, state, me, process)
            if state.crashes and process.step in self._AFTER_AN_EFFECT:
                yield self._label(me, process.step, "dies"), self._gone(state._replace(crashes=state.crashes - 1), me)
            if state.renewals and process.step in {"commit", "publish"}:
                renewed = happened(state._replace(renewals=state.renewals - 1), ("put", "op", process.op))
                assert renewed is not None
                yield self._label(me, "renew", "done"), renewed
        for number, effect in enumerate(state.in_flight):
            rest = state._replace(in_flight=state.in_flight[:number] + state.in_flight[number + 1 :])
            yield Label("store", number, effect[0], "vanishes"), rest
            after = happened(rest, effect)
            if after is not None:
                yield Label("store", number, effect[0], "arrives"), after

    # Moving about.

    def _is_writer(self, me: int) -> bool:
        return me < len(self.writers)

    def _label(self, me: int, step: str, outcome: str) -> Label:
        if self._is_writer(me):
            return Label("writer", me, step, outcome)
        return Label("recoverer", me - len(self.writers), step, outcome)

    @staticmethod
    def _set(state: State, me: int, process: Process) -> State:
        return state._replace(processes=(*state.processes[:me], process, *state.processes[me + 1 :]))

    def _go(self, state: State, me: int, step: str, *at: object) -> State:
        return self._set(state, me, Process(step, state.processes[me].op, at))

    def _to(self, me: int, step: str, *at: object) -> Then:
        return lambda state: self._go(state, me, step, *at)

    def _gone(self, state: State, me: int) -> State:
        """A writer that is gone stays gone; a recoverer has a successor who knows nothing of what it did."""
        return self._set(state, me, ENDED if self._is_writer(me) else IDLE)

    def _rejected(self, state: State, me: int, *, again: bool = True) -> State:
        """The writer reports the operation as failed, and tries anew when it may."""
        op = state.processes[me].op
        state = state._replace(failed=state.failed | 1 << op)
        if again and (op + 1) % self.attempts:
            return self._set(state, me, Process("barrier", op + 1, ()))
        return self._set(state, me, ENDED)

    def _read(self, me: int, step: str, after: State) -> Move:
        return self._label(me, step, "read"), after

    def _effect(
        self,
        state: State,
        me: int,
        effect: Effect,
        *,
        done: Then,
        refused: Then | None = None,
        unclear: Then | None = None,
    ) -> Iterator[Move]:
        """One effect: it happens, or storage refuses it, or the call fails and the caller cannot know.

        Without ``unclear`` a failed call ends the process. That is the same as dying before or after the effect, which
        happens anyway; what dying does not cover is an effect that comes later.
        """
        step = state.processes[me].step
        after = happened(state, effect)
        if after is None:
            assert refused is not None
            yield self._label(me, step, "refused"), refused(state)
            return
        yield self._label(me, step, "done"), done(after)
        if state.errors and unclear is not None:
            yield self._label(me, step, "answer lost"), unclear(after._replace(errors=state.errors - 1))
            yield self._label(me, step, "fails"), unclear(state._replace(errors=state.errors - 1))
        if state.stragglers:
            pending = state._replace(stragglers=state.stragglers - 1, in_flight=(*state.in_flight, effect))
            after = self._gone(pending, me) if unclear is None else unclear(pending)
            yield self._label(me, step, "straggles"), after

    @staticmethod
    def _capture_of(state: State, op: int) -> Capture:
        capture = state.captures[op]
        assert capture is not None
        return capture

    # The writer: barrier, capture, arm, commit every table, confirm, publish, disarm.

    def _barrier(self, state: State, me: int, process: Process) -> Iterator[Move]:
        write = self.write_of(process.op)
        sidecars = state.armed | state.owned
        for op in range(self.operations):
            other = self.write_of(op)
            if sidecars >> op & 1 and other.branch == write.branch and other.keys & write.keys:
                return
        yield self._read(me, "barrier", self._go(state, me, "capture"))

    def _captured(self, state: State, me: int, process: Process) -> Iterator[Move]:
        op, write = process.op, self.write_of(process.op)
        manifest = state.manifests[write.branch]
        capture = Capture(
            manifest.version,
            tuple(self._intent(op, table, steps, manifest.pins[table]) for table, steps in write.tables),
            tuple((table, manifest.pins[table]) for table in write.reads),
        )
        captures = (*state.captures[:op], capture, *state.captures[op + 1 :])
        yield self._read(me, "capture", self._go(state._replace(captures=captures), me, "arm"))

    def _intent(self, op: int, table: int, steps: int, pin: Pin) -> Intent:
        owner = pin.owner
        if self.write_of(op).branch != MAIN and owner == TRUNK and self.fault is not Fault.NO_FORK:
            owner = SHARED if self.fault is Fault.SHARED_FORK_NAME else op
        return Intent(table, owner, pin.version, steps, pin)

    def _arm(self, state: State, me: int, process: Process) -> Iterator[Move]:
        yield from self._effect(
            state,
            me,
            ("put", "op", process.op),
            done=lambda after: self._at_table(after, me, 0),
            unclear=self._to(me, "withdraw", NOT_AGAIN),
        )

    def _at_table(self, state: State, me: int, number: int) -> State:
        """Before its first commit to a table, and after its last one to the table before it."""
        capture = self._capture_of(state, state.processes[me].op)
        all_landed = number == len(capture.intents) or (number and self.fault is Fault.PUBLISH_BEFORE_ALL_LANDED)
        if not all_landed:
            return self._go(state, me, "fork" if capture.intents[number].forks else "commit", number, 0)
        if any(intent.steps > 1 for intent in capture.intents):
            return self._go(state, me, "confirm")
        return self._at_publish(state, me)

    def _at_publish(self, state: State, me: int) -> State:
        seen = self._capture_of(state, state.processes[me].op).manifest_version
        if self.fault is Fault.DISARM_BEFORE_PUBLISH:
            state = state._replace(armed=state.armed & ~(1 << state.processes[me].op))
        return self._go(state, me, "publish", seen)

    def _fork(self, state: State, me: int, process: Process) -> Iterator[Move]:
        number = process.at[0]
        intent = self._capture_of(state, process.op).intents[number]
        yield from self._effect(
            state,
            me,
            ("fork", intent.line, intent.pin),
            done=self._to(me, "commit", number, 0),
            unclear=self._to(me, "classify"),
        )

    def _commit(self, state: State, me: int, process: Process) -> Iterator[Move]:
        (number, step), op = process.at, process.op
        intent = self._capture_of(state, op).intents[number]
        base = intent.expected + step
        line = line_of(state, intent.line)
        content = step_bit(op, step)
        if line is not None and base <= line.head:
            content |= line.content(base)
        exact = None if self.fault is Fault.REBASE_TABLE_COMMIT else base
        careless = self.fault is Fault.DELETE_ON_UNKNOWN
        yield from self._effect(
            state,
            me,
            ("commit", intent.line, exact, step_mark(op, step), content),
            done=lambda after: self._landed(after, me, number, step),
            refused=lambda after: self._conflict(after, me, number, step),
            unclear=self._to(me, "withdraw", NOT_AGAIN) if careless else self._to(me, "lookup", number, step),
        )

    def _landed(self, state: State, me: int, number: int, step: int) -> State:
        intent = self._capture_of(state, state.processes[me].op).intents[number]
        if step + 1 < intent.steps:
            return self._go(state, me, "commit", number, step + 1)
        return self._at_table(state, me, number + 1)

    def _conflict(self, state: State, me: int, number: int, step: int) -> State:
        """Nothing has landed: it may be prepared anew. Otherwise the writer settles its own operation."""
        if number or step:
            return self._go(state, me, "classify")
        return self._go(state, me, "withdraw", AGAIN)

    def _lookup(self, state: State, me: int, process: Process) -> Iterator[Move]:
        """After a failed commit: its own mark stands there, or another's (it can never land), or nothing (it still may)."""
        number, step = process.at
        intent = self._capture_of(state, process.op).intents[number]
        line = line_of(state, intent.line)
        above = () if line is None else line.above(intent.expected + step)
        if above and above[0].mark == step_mark(process.op, step):
            after = self._landed(state, me, number, step)
        elif self.fault is Fault.HEAD_READ_AFTER_MARK:
            after = self._go(state, me, "lookup head", number, step)
        elif above:
            after = self._conflict(state, me, number, step)
        else:
            after = self._go(state, me, "classify")
        yield self._read(me, "lookup", after)

    def _lookup_head(self, state: State, me: int, process: Process) -> Iterator[Move]:
        number, step = process.at
        intent = self._capture_of(state, process.op).intents[number]
        line = line_of(state, intent.line)
        moved = line is not None and line.head != intent.expected + step
        after = self._conflict(state, me, number, step) if moved else self._go(state, me, "classify")
        yield self._read(me, "lookup head", after)

    def _withdraw(self, state: State, me: int, process: Process) -> Iterator[Move]:
        """Nothing happened: the sidecar owns nothing, and goes."""
        again = process.at[0]
        yield from self._effect(
            state,
            me,
            ("delete", "op", process.op),
            done=lambda after: self._rejected(after, me, again=again),
            unclear=lambda after: self._rejected(after, me, again=again),
        )

    def _confirm(self, state: State, me: int, process: Process) -> Iterator[Move]:
        yield from self._effect(
            state,
            me,
            ("put", "op", process.op),
            done=lambda after: self._at_publish(after, me),
            unclear=self._to(me, "classify"),
        )

    def _publish(self, state: State, me: int, process: Process) -> Iterator[Move]:
        seen = None if self.fault is Fault.PUBLISH_BLIND else process.at[0]
        yield from self._effect(
            state,
            me,
            ("swap", self.write_of(process.op).branch, seen, "publish", process.op),
            done=self._to(me, "disarm"),
            refused=self._to(me, "reread"),
            unclear=self._to(me, "reread"),
        )

    def _reread(self, state: State, me: int, process: Process) -> Iterator[Move]:
        """After a swap that was lost, or whose answer was: what does the manifest say now?"""
        op = process.op
        manifest = state.manifests[self.write_of(op).branch]
        careless = self.fault is Fault.NO_OWN_COMMIT_CHECK
        if manifest.commits >> op & 1 and not careless:
            after = self._go(state, me, "disarm")
        elif (manifest.undoing | manifest.undone) >> op & 1 or not self._holds(state, op, own_too=careless):
            after = self._go(state, me, "classify")
        else:
            after = self._go(state, me, "publish", manifest.version)
        yield self._read(me, "reread", after)

    def _holds(self, state: State, op: int, *, own_too: bool = False) -> bool:
        """Whether the tables that the operation changes, and those that it relied on, are pinned as they were."""
        capture, pins = self._capture_of(state, op), state.manifests[self.write_of(op).branch].pins
        for intent in capture.intents:
            own = own_too and pins[intent.table] == Pin(intent.owner, intent.final)
            if pins[intent.table] != intent.pin and not own:
                return False
        return self._reads_hold(state, op)

    def _reads_hold(self, state: State, op: int) -> bool:
        pins = state.manifests[self.write_of(op).branch].pins
        unmoved = all(pins[table] == pin for table, pin in self._capture_of(state, op).reads)
        return unmoved or self.fault is Fault.IGNORE_READ_SET

    def _disarm(self, state: State, me: int, process: Process) -> Iterator[Move]:
        def acknowledged(after: State) -> State:
            return self._set(after._replace(acknowledged=after.acknowledged | 1 << process.op), me, ENDED)

        effect = ("delete", "op", process.op)
        yield from self._effect(state, me, effect, done=acknowledged, unclear=acknowledged)

    # Settling: classify, then roll forward, or own, abort, undo and converge; then forget.

    def _idle(self, state: State, me: int, _: Process) -> Iterator[Move]:
        sidecars = state.armed | state.owned
        for op in range(self.operations):
            if sidecars >> op & 1:
                yield self._read(me, "idle", self._set(state, me, Process("classify", op, ())))

    def _classify(self, state: State, me: int, process: Process) -> Iterator[Move]:
        """The manifest comes first: a commit or an abort that it holds is the operation's fate."""
        op = process.op
        manifest = state.manifests[self.write_of(op).branch]
        if (manifest.commits | manifest.undone) >> op & 1:
            after = self._go(state, me, "forget", manifest.commits >> op & 1)
        elif manifest.undoing >> op & 1:
            after = self._at_undo(state, me, 0)
        else:
            pins = tuple(manifest.pins[intent.table] for intent in self._capture_of(state, op).intents)
            after = self._go(state, me, "look", manifest.version, self._reads_hold(state, op), pins, 0, ())
        yield self._read(me, "classify", after)

    def _look(self, state: State, me: int, process: Process) -> Iterator[Move]:
        """One table after the other, while everybody else goes on."""
        seen, holds, pins, number, found = process.at
        intents = self._capture_of(state, process.op).intents
        found = tuple(sorted({*found, self._standing(state, process.op, intents[number], pins[number])}))
        if number + 1 < len(intents):
            after = self._go(state, me, "look", seen, holds, pins, number + 1, found)
        else:
            after = self._decided(state, me, seen, found, holds=holds)
        yield self._read(me, "look", after)

    def _standing(self, state: State, op: int, intent: Intent, pin: Pin) -> str:
        line = line_of(state, intent.line)
        above = () if line is None else line.above(intent.expected)
        steps = _landed_steps(op, intent, above)
        across_lines = self.fault is Fault.HEAD_COMPARED_ACROSS_LINES
        if line is not None and line.head < pin.version and (pin.owner == intent.owner or across_lines):
            return IMPOSSIBLE
        if pin != intent.pin:
            published = pin.owner == intent.owner and pin.version > intent.expected and steps == intent.steps
            return PUBLISHED if published else UNFINISHED
        landed = steps == intent.steps == len(above) or (steps and self.fault is Fault.FORWARD_INCOMPLETE_CHAIN)
        return LANDED if landed else UNFINISHED

    def _decided(self, state: State, me: int, seen: int, found: tuple[str, ...], *, holds: bool) -> State:
        if IMPOSSIBLE in found:
            return self._set(state, me, ENDED if self._is_writer(me) else HALTED)
        if found == (PUBLISHED,):
            return self._go(state, me, "forget", 1)
        any_landed = self.fault is Fault.FORWARD_IF_ANY_LANDED and LANDED in found
        if (found == (LANDED,) or any_landed) and holds:
            return self._go(state, me, "forward", seen)
        if self.fault is Fault.NO_UNDO_SIDECAR:
            return self._go(state, me, "abort", seen)
        return self._go(state, me, "own", seen)

    def _forward(self, state: State, me: int, process: Process) -> Iterator[Move]:
        yield from self._swap(state, me, process, "publish")

    def _own(self, state: State, me: int, process: Process) -> Iterator[Move]:
        """Recovery owns its effects before it has any."""
        early = self.fault is Fault.UNDO_BEFORE_ABORT
        yield from self._effect(
            state,
            me,
            ("put", "undo", process.op),
            done=(lambda after: self._at_undo(after, me, 0)) if early else self._to(me, "abort", *process.at),
        )

    def _abort(self, state: State, me: int, process: Process) -> Iterator[Move]:
        """The manifest decides: from here on the operation cannot be published. Only then is anything undone."""
        yield from self._swap(state, me, process, "abort")

    def _at_undo(self, state: State, me: int, number: int) -> State:
        """At the next table to undo. A fork of the operation's own needs nothing: nobody else can ever use that line."""
        intents = self._capture_of(state, state.processes[me].op).intents
        while number < len(intents) and intents[number].forks:
            number += 1
        if number < len(intents):
            return self._go(state, me, "undo", number)
        if self.fault is Fault.FORGET_BEFORE_CONVERGE:
            return self._go(state, me, "forget", 0)
        return self._go(state, me, "converge")

    def _undo(self, state: State, me: int, process: Process) -> Iterator[Move]:
        """Reads a table: to be restored, to be fenced, undone already, or somebody else's."""
        number = process.at[0]
        intent = self._capture_of(state, process.op).intents[number]
        line = line_of(state, intent.line)
        assert line is not None
        above = line.above(intent.expected)
        undone = any(version.mark == undo_mark(process.op) for version in above)
        foreign = _landed_steps(process.op, intent, above) < len(above)
        unfenced = not above and self.fault is Fault.NO_FENCE
        if undone or foreign or unfenced:
            yield self._read(me, "undo", self._at_undo(state, me, number + 1))
        else:
            yield self._read(me, "undo", self._go(state, me, "restore", number, line.head))

    def _restore(self, state: State, me: int, process: Process) -> Iterator[Move]:
        number, head = process.at
        intent = self._capture_of(state, process.op).intents[number]
        line = line_of(state, intent.line)
        assert line is not None
        yield from self._effect(
            state,
            me,
            ("commit", intent.line, head, undo_mark(process.op), line.content(intent.expected)),
            done=lambda after: self._at_undo(after, me, number + 1),
            refused=lambda after: self._unrestored(after, me, number, head),
        )

    def _unrestored(self, state: State, me: int, number: int, head: int) -> State:
        """What stands there is the same undo, by somebody else: as good as one's own. Anything else is classified anew."""
        op = state.processes[me].op
        line = line_of(state, self._capture_of(state, op).intents[number].line)
        assert line is not None
        if line.above(head)[0].mark == undo_mark(op):
            return self._at_undo(state, me, number + 1)
        return self._go(state, me, "classify")

    def _converge(self, state: State, me: int, process: Process) -> Iterator[Move]:
        manifest = state.manifests[self.write_of(process.op).branch]
        if manifest.undone >> process.op & 1:
            yield self._read(me, "converge", self._go(state, me, "classify"))
        else:
            yield self._read(me, "converge", self._go(state, me, "republish", manifest.version))

    def _republish(self, state: State, me: int, process: Process) -> Iterator[Move]:
        yield from self._swap(state, me, process, "converge")

    def _swap(self, state: State, me: int, process: Process, change: str) -> Iterator[Move]:
        yield from self._effect(
            state,
            me,
            ("swap", self.write_of(process.op).branch, process.at[0], change, process.op),
            done=self._to(me, "classify"),
            refused=self._to(me, "classify"),
        )

    def _forget(self, state: State, me: int, process: Process) -> Iterator[Move]:
        yield from self._effect(
            state,
            me,
            ("delete", "op", process.op),
            done=self._to(me, "forget undo", *process.at),
            unclear=lambda after: self._settled(after, me),
        )

    def _forget_undo(self, state: State, me: int, process: Process) -> Iterator[Move]:
        def settled(after: State) -> State:
            return self._settled(after, me)

        yield from self._effect(state, me, ("delete", "undo", process.op), done=settled, unclear=settled)

    def _settled(self, state: State, me: int) -> State:
        """The fate is sealed, whether or not the sidecars could be deleted: whoever comes next consumes what is left."""
        process = state.processes[me]
        if not self._is_writer(me):
            return self._set(state, me, IDLE)
        if not process.at[0]:
            return self._rejected(state, me)
        return self._set(state._replace(acknowledged=state.acknowledged | 1 << process.op), me, ENDED)

    # Where a process can be right after it has changed something. Dying anywhere else is the same as dying there.
    _AFTER_AN_EFFECT = frozenset(
        {"fork", "commit", "lookup", "withdraw", "confirm", "publish", "reread", "disarm"}
        | {"classify", "abort", "undo", "converge", "forget undo"}
    )
    _STEPS = {  # noqa: RUF012 - a constant
        "barrier": _barrier,
        "capture": _captured,
        "arm": _arm,
        "fork": _fork,
        "commit": _commit,
        "lookup": _lookup,
        "lookup head": _lookup_head,
        "withdraw": _withdraw,
        "confirm": _confirm,
        "publish": _publish,
        "reread": _reread,
        "disarm": _disarm,
        "idle": _idle,
        "classify": _classify,
        "look": _look,
        "forward": _forward,
        "own": _own,
        "abort": _abort,
        "undo": _undo,
        "restore": _restore,
        "converge": _converge,
        "republish": _republish,
        "forget": _forget,
        "forget undo": _forget_undo,
    }


STEPS = frozenset(Model._STEPS)


def _landed_steps(op: int, intent: Intent, above: tuple[Version, ...]) -> int:
    steps = 0
    while steps < min(intent.steps, len(above)) and above[steps].mark == step_mark(op, steps):
        steps += 1
    return steps


def random_path(
    model: Model, rng: random.Random, longest: int = 1000, weight: Callable[[Label], float] = lambda _: 1.0
) -> tuple[list[Label], list[State]]:
    """One run of the protocol: the moves that were made, and the states before the first and after each of them."""
    labels: list[Label] = []
    states = [model.initial()]
    while len(labels) < longest:
        moves = list(model.moves(states[-1]))
        if not moves:
            break
        ((label, state),) = rng.choices(moves, [weight(label) for label, _ in moves])
        labels.append(label)
        states.append(state)
    return labels, states
