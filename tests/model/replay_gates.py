"""Gates in the real commit path: a thread that comes to one waits until it is told to go on, to fail there, or to die.

There is one gate for each step of the model. Effects have theirs at the engine's failpoints. Two failpoints stand around more
than one effect of the model, a publish that is tried again and a clean-up of two sidecars, so these two are gated inside, call
by call. Reads have no failpoints: the functions that make them are wrapped while the gates are installed. A failing store is
simulated where the engine calls it, so that all that the engine does about a failure happens for real.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import pytest
from lance import LanceDataset
from lance.dataset import MergeInsertBuilder
from omnigraph_engine import failpoints
from omnigraph_engine.commit import coordinator, recovery
from omnigraph_engine.commit.sidecar import RECOVERY
from omnigraph_engine.errors import StorageError
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.manifest import publisher
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables import exact

PATIENCE = 120.0  # seconds; a thread that takes longer from one gate to the next hangs

# The model tells two deletions of a writer's own sidecar apart, after a publish and after nothing; the engine has one.
GATE_OF = {"withdraw": "disarm"}
_GATES = {
    Failpoint.ARM: "arm",
    Failpoint.COMMIT_TABLE: "commit",
    Failpoint.CONFIRM: "confirm",
    Failpoint.DISARM: GATE_OF["withdraw"],
    Failpoint.OWN_UNDO: "own",
    Failpoint.ABORT: "abort",
    Failpoint.RESTORE: "restore",
    Failpoint.CONVERGE: "republish",
    Failpoint.ROLL_FORWARD: "forward",
    Failpoint.CLEAN: "forget",
}
_READS = {"_step": "classify", "_facts": "look", "_undo": "undo", "_converge": "converge"}  # functions of recovery

Call = Callable[[], object]


class Order(str, Enum):
    GO = "go"
    DIE = "die"
    FAIL = "fail"  # the store does nothing and reports a failure
    LOSE = "lose"  # the store does it and reports a failure
    STRAGGLE = "straggle"  # the store reports a failure, and may do it later


class Died(BaseException):
    """The process is gone. Nothing in the engine catches it, so nothing more of the process happens."""


class Actor:
    """A process of the model as a thread that moves from gate to gate, and only when it is told to."""

    def __init__(self, name: str, body: Callable[[Actor], None], in_flight: list[Call]) -> None:
        self.name = name
        self.at: str | None = "its start"  # the gate that it waits at; None once it has ended
        self._body = body
        self._in_flight = in_flight
        self._orders: queue.Queue[tuple[Order, int]] = queue.Queue()
        self._arrivals: queue.Queue[str | None] = queue.Queue()
        self._point: Failpoint | None = None
        self._fault: Order | None = None
        self._misled = False
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # The scheduler's side.

    def start(self) -> None:
        self._thread.start()
        self._arrive()

    def release(self, order: Order, op: int = 0) -> None:
        """Lets it go to its next gate. Afterwards it waits there, or has ended."""
        self._orders.put((order, op))
        self._arrive()

    def stop(self) -> None:
        while self.at is not None:
            self.release(Order.DIE)
        self._thread.join(PATIENCE)

    def _arrive(self) -> None:
        try:
            arrival = self._arrivals.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"{self.name} left '{self.at}' and came to no gate in {PATIENCE:g} s") from None
        left, self.at = self.at, arrival
        if self._broken is not None:
            raise AssertionError(f"{self.name} left '{left}' and broke: {self._broken!r}") from self._broken

    # The thread's side.

    def _run(self) -> None:
        _here.actor = self
        try:
            self._body(self)
        except Died:
            pass
        except BaseException as error:  # noqa: BLE001 - the scheduler reports it
            self._broken = error
        self._arrivals.put(None)

    def wait(self, gate: str) -> int:
        """Stands at the gate until the scheduler lets it go on; it may name an operation."""
        self._arrivals.put(gate)
        order, op = self._orders.get()
        if order is Order.DIE:
            raise Died
        self._fault = None if order is Order.GO else order
        return op

    def at_failpoint(self, point: Failpoint, moment: Moment) -> None:
        if moment is Moment.AFTER:
            return
        self._point = point
        if point in _GATES:
            self.wait(_GATES[point])

    def at_swap(self) -> None:
        if self._point is Failpoint.PUBLISH:
            self.wait("publish")

    def at_lookup(self) -> None:
        if self._misled:
            self._misled = False
            self.wait("lookup")

    def ask(self, call: Call, failure: Exception) -> object:
        """Asks the store for an effect, and meets the failure that was ordered for it."""
        fault, self._fault = self._fault, None
        if fault is None:
            return call()
        self._misled = self._point is Failpoint.COMMIT_TABLE
        if fault is Order.LOSE:
            call()
        elif fault is Order.STRAGGLE:
            self._in_flight.append(call)
        raise failure


_here = threading.local()


def _actor() -> Actor | None:
    return getattr(_here, "actor", None)


@contextmanager
def installed() -> Iterator[None]:
    """Inside the block every actor stops at every gate. Other threads pass."""
    with pytest.MonkeyPatch.context() as patch, failpoints.installed(_at_failpoint):
        for name, gate in _READS.items():
            patch.setattr(recovery, name, _gated(getattr(recovery, name), lambda actor, gate=gate: actor.wait(gate)))
        patch.setattr(publisher, "open_manifest", _gated(publisher.open_manifest, lambda actor: actor.wait("reread")))
        patch.setattr(exact, "latest_version", _gated(exact.latest_version, Actor.at_lookup))
        patch.setattr(publisher, "_swap", _gated(publisher._swap, Actor.at_swap))
        patch.setattr(MergeInsertBuilder, "execute", _asked(MergeInsertBuilder.execute, OSError))
        patch.setattr(LanceDataset, "commit", staticmethod(_asked(LanceDataset.commit, OSError)))
        for name in ("put", "put_if_absent", "delete"):
            patch.setattr(Storage, name, _sidecar_call(name, getattr(Storage, name)))
        # Pauses are a courtesy to others, and here the scheduler decides who comes next.
        patch.setattr(recovery, "_pause", lambda _attempt: None)
        patch.setattr(coordinator, "SECONDS_PER_TURN", 0.0)
        yield


def _at_failpoint(point: Failpoint, moment: Moment) -> None:
    actor = _actor()
    if actor is not None:
        actor.at_failpoint(point, moment)


def _gated(function: Callable[..., Any], gate: Callable[[Actor], object]) -> Callable[..., Any]:
    def gated(*arguments: Any, **options: Any) -> Any:
        actor = _actor()
        if actor is not None:
            gate(actor)
        return function(*arguments, **options)

    return gated


def _asked(function: Callable[..., Any], failure: type[Exception]) -> Callable[..., Any]:
    def asked(*arguments: Any, **options: Any) -> Any:
        actor = _actor()
        if actor is None:
            return function(*arguments, **options)
        return actor.ask(lambda: function(*arguments, **options), failure("The store failed, as ordered."))

    return asked


def _sidecar_call(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    asked = _asked(function, StorageError)

    def call(storage: Storage, path: str, *data: bytes) -> Any:
        actor = _actor()
        if actor is None or not path.startswith(f"{RECOVERY}/"):
            return function(storage, path, *data)
        if name == "delete" and path.endswith(".undo.json"):
            actor.wait("forget undo")
        return asked(storage, path, *data)

    return call
