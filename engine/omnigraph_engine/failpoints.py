"""Named places around every durable step of the protocol, where a test can make the world fail.

Each ``Failpoint`` is one durable effect, and the gaps before and after it are where a process can die, stop for an hour, or
lose the answer. Nothing here does anything unless a handler is installed, by a test or through ``OMNIGRAPH_FAILPOINTS``:

    OMNIGRAPH_FAILPOINTS="table.commit#2:after=kill"    the second table commit lands, then the process kills itself
    OMNIGRAPH_FAILPOINTS="manifest.publish:after=error" the publish lands and its answer is lost
    OMNIGRAPH_FAILPOINTS="sidecar.arm:before=stop"      the process stops itself (SIGSTOP) until somebody continues it

Several are separated by ``;``. Each fires once.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from omnigraph_engine.errors import InvalidArgument, StorageError

ENVIRONMENT_VARIABLE = "OMNIGRAPH_FAILPOINTS"


class Failpoint(str, Enum):
    """Every durable effect of a commit, of a recovery and of a branch's life, in the order in which they happen."""

    STAGE = "stage.write"
    ARM = "sidecar.arm"
    FORK = "table.fork"
    COMMIT_TABLE = "table.commit"
    CONFIRM = "sidecar.confirm"
    PUBLISH = "manifest.publish"
    DISARM = "sidecar.disarm"
    OWN_UNDO = "recovery.own"
    ABORT = "recovery.abort"
    RESTORE = "recovery.restore"
    CONVERGE = "recovery.converge"
    ROLL_FORWARD = "recovery.forward"
    AUDIT = "recovery.audit"
    CLEAN = "recovery.clean"
    CREATE_BRANCH = "branch.create"
    BEGIN_BRANCH = "branch.begin"
    DELETE_BRANCH = "branch.delete"
    RECLAIM = "branch.reclaim"


class Moment(str, Enum):
    BEFORE = "before"
    AFTER = "after"


class Fault(str, Enum):
    ERROR = "error"  # before: the store refuses; after: the effect is there and its answer is lost
    KILL = "kill"
    STOP = "stop"


Handler = Callable[[Failpoint, Moment], None]
_SPEC = re.compile(r"(?P<point>[a-z.]+)(#(?P<nth>\d+))?:(?P<moment>before|after)=(?P<fault>error|kill|stop)")


@contextmanager
def effect(point: Failpoint) -> Iterator[None]:
    """Stands around one durable effect."""
    if _installed is None:
        yield
        return
    _installed(point, Moment.BEFORE)
    yield
    _installed(point, Moment.AFTER)


@contextmanager
def installed(handler: Handler) -> Iterator[None]:
    """Inside the block every failpoint of this process calls ``handler``, which may raise, block or kill."""
    global _installed  # noqa: PLW0603 - one switch per process is the point
    before, _installed = _installed, handler
    try:
        yield
    finally:
        _installed = before


def faults(text: str) -> Handler:
    """The handler that a specification describes; see the module's own text."""
    pending: dict[tuple[str, str, int], Fault] = {}
    for spec in filter(None, text.split(";")):
        match = _SPEC.fullmatch(spec)
        if match is None or match["point"] not in set(Failpoint):
            raise InvalidArgument(
                f"{ENVIRONMENT_VARIABLE} has '{spec}', which names no failpoint.",
                hint=f"Use POINT[#NTH]:before|after=error|kill|stop; points: {', '.join(Failpoint)}.",
            )
        pending[match["point"], match["moment"], int(match["nth"] or 1)] = Fault(match["fault"])
    reached: Counter[tuple[str, str]] = Counter()

    def handle(point: Failpoint, moment: Moment) -> None:
        reached[point.value, moment.value] += 1
        fault = pending.pop((point.value, moment.value, reached[point.value, moment.value]), None)
        if fault is Fault.ERROR:
            raise StorageError(f"failpoint {point.value}:{moment.value}")
        if fault is not None:
            os.kill(os.getpid(), signal.SIGKILL if fault is Fault.KILL else signal.SIGSTOP)

    return handle


_installed: Handler | None = faults(os.environ[ENVIRONMENT_VARIABLE]) if ENVIRONMENT_VARIABLE in os.environ else None
