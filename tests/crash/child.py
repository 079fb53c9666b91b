"""What one process of a cell does, and how it is started, watched and continued.

Children are forked from a process that has imported the engine and never used it: that is quick, and safe, because nothing of
Lance runs before its first use. Each child is a process of its own, with real signals and nothing shared but the store.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
from cells import BASES, DEV, SCHEMA, Kind, Operation, Verb
from crash_oracle import Claim, Told, fates, violations
from omnigraph_engine import failpoints
from omnigraph_engine.commit.sidecar import RECOVERY
from omnigraph_engine.errors import GraphDamaged, OmnigraphError, OutcomeUnknown, SnapshotGone, StorageError
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables import row_ids
from omnigraph_engine.write.load import CommitReceipt, WriteOptions
from planted import plant_from_environment

LEASE = 0.6  # seconds, of those who are killed or stopped: long beside a write, short for those who wait for its end
LONGEST = 60  # seconds that a child may take; one that hangs is ended by SIGALRM
_DOOMED = WriteOptions(lease=LEASE, attempts=10, patience=10)
_OPTIONS = WriteOptions(lease=30, attempts=10, patience=10)

warnings.filterwarnings("ignore", message="lance is not fork-safe")
warnings.filterwarnings("ignore", message=r"This process .* is multi-threaded", category=DeprecationWarning)


class End(str, Enum):
    """How far a child has come when its parent looks."""

    STOPPED = "stopped"
    KILLED = "killed"
    DONE = "done"
    BROKEN = "broken"  # hung, crashed, or raised something that is no answer to a writer


@dataclass
class Seen:
    """What a child went through; it reports this when it gets to its end."""

    steps: list[str] = field(default_factory=list)
    errors: int = 0  # how many failpoints raised


class Child:
    """A forked process that works in ``folder``; its report is a file there."""

    def __init__(self, name: str, folder: Path, work: Callable[[], dict[str, Any]]) -> None:
        self.name = name
        self._report = folder / f"{name}.json"
        self.pid = os.fork()
        if self.pid == 0:
            _work(self._report, work)
        self.end = self._wait()

    @property
    def report(self) -> dict[str, Any]:
        if self.end is End.DONE:
            return dict(json.loads(self._report.read_text(encoding="utf-8")))
        return {}

    def go_on(self) -> End:
        """Continues a stopped child and waits until it ends or stops again."""
        os.kill(self.pid, signal.SIGCONT)
        self.end = self._wait()
        return self.end

    def discard(self) -> None:
        if self.end is End.STOPPED:
            os.kill(self.pid, signal.SIGKILL)
            self.end = self._wait()

    def _wait(self) -> End:
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return End.STOPPED
        if os.WIFSIGNALED(status):
            return End.KILLED if os.WTERMSIG(status) == signal.SIGKILL else End.BROKEN
        return End.DONE if os.WEXITSTATUS(status) == 0 else End.BROKEN


def _work(report: Path, work: Callable[[], dict[str, Any]]) -> None:
    """The whole life of a child. It never returns: what its parent has on its stack is not the child's to run."""
    status = 1
    try:
        signal.alarm(LONGEST)
        plant_from_environment()
        report.write_text(json.dumps(work()), encoding="utf-8")
        status = 0
    except BaseException:  # noqa: BLE001 - a child has nobody else to tell
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def create(root: Path, base: str) -> dict[str, Any]:
    """A graph with the commits that a kind starts from."""
    graph = Graph.create(root, SCHEMA, options=_OPTIONS)
    for operation in BASES[base]:
        _perform(graph, operation)
    return {}


def write(
    root: Path, operation: Operation | None, faults: str = "", *, park: bool = False, large: bool = False
) -> dict[str, Any]:
    """Opens the graph, which settles what others left, and writes; both with ``faults``.

    Args:
        root: Where the graph is.
        operation: What to write; None only opens.
        faults: As ``OMNIGRAPH_FAILPOINTS`` takes them.
        park: Stops the process once the graph is open.
        large: Tables count as large ones, whatever they hold.
    """
    if large:
        row_ids.MANY_ROWS = 0
    seen = Seen()
    claim, commit_id, error = Claim.COMMITTED, None, None
    try:
        with failpoints.installed(_recording(failpoints.faults(faults), seen)):
            graph = _open(root, _DOOMED if faults else _OPTIONS)
            if park:
                os.kill(os.getpid(), signal.SIGSTOP)
            if operation is not None:
                commit_id = _perform(graph, operation)
    except (GraphDamaged, SnapshotGone):
        raise
    except OmnigraphError as failure:
        claim = Claim.UNKNOWN if isinstance(failure, OutcomeUnknown) else Claim.REJECTED
        error = str(failure)
    return {"claim": claim, "commit_id": commit_id, "error": error, "steps": seen.steps, "errors": seen.errors}


def verify(root: Path, kind: Kind, told: list[Told]) -> dict[str, Any]:
    """Opens the graph as the next writer would, repeats what an application would, writes something new, and says what is
    wrong.
    """
    subject, operations = kind.subject, kind.operations
    names = [name for name in operations if name != kind.next.name]
    found: dict[str, bool] = {}
    try:
        graph = _open(root, _OPTIONS)
        found = fates(graph, kind, names)
        if subject.branch not in [info.name for info in graph.branches.list()]:
            graph.branches.create(subject.branch)
        for operation in (*([subject] if subject.transaction else []), kind.next):
            told = [*told, Told(operation.name, Claim.COMMITTED, _perform(graph, operation))]
    except OmnigraphError as error:
        graph = Graph.open(root, "ro")
        wrong = [f"the next write failed: {error}", *violations(graph, kind, told, found)]
        return {"fates": found or fates(graph, kind, names), "violations": wrong}
    return {"fates": found, "violations": list(violations(graph, kind, told, found))}


def _open(root: Path, options: WriteOptions) -> Graph:
    """The graph with everything settled that others left; a sidecar that is merely left over goes when its lease is over."""
    graph = Graph.open(root, options=options)
    deadline = time.monotonic() + options.patience
    while graph.storage.list(RECOVERY) and time.monotonic() < deadline:
        graph.maintenance.recover()
    return graph


def _perform(graph: Graph, operation: Operation) -> str | None:
    """Does it, and says the commit that came of it."""
    if operation.verb is Verb.CREATE:
        graph.branches.create(operation.branch)
        return None
    if operation.verb is Verb.DELETE:
        graph.branches.delete(operation.branch)
        return None
    if operation.verb is Verb.MERGE:
        commit = graph.merge(
            DEV, into=operation.branch, message=operation.name, delete_branch=operation.delete_branch
        ).commit
        return None if commit is None else commit.commit_id
    receipt = _load(graph, operation)
    return None if receipt.commit is None else receipt.commit.commit_id


def _load(graph: Graph, operation: Operation) -> CommitReceipt:
    people, knows = operation.people, operation.knows
    app_id, version = operation.transaction or (None, None)
    with graph.transaction(
        operation.branch, message=operation.name, txn_app_id=app_id, txn_version=version
    ) as transaction:
        if people:
            table = pa.table({"name": list(people), "age": pa.array(people.values(), pa.int32())})
            transaction.load("Person", table, operation.mode)
        if knows:
            sources, targets = zip(*knows.values(), strict=True)
            table = pa.table({"id": list(knows), "src": list(sources), "dst": list(targets)})
            transaction.load("Knows", table, operation.mode)
    assert transaction.receipt is not None
    return transaction.receipt


def _recording(handler: failpoints.Handler, seen: Seen) -> failpoints.Handler:
    def handle(point: Failpoint, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            seen.steps.append(point.value)
        try:
            handler(point, moment)
        except StorageError:
            seen.errors += 1
            raise

    return handle
