"""Many writers on one graph, killed, stopped and failed by a seeded schedule; then the oracle.

    python tests/chaos/chaos.py --seeds 1,2,3 --writers 4 --branchers 2 --operations 40

A seed fixes what is done to whom and after which operation. How the processes interleave is up to the machine, so a violation
may need a few runs of its seed to show again; its graph and journals are kept.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import brancher
import content as model
import oracle
from content import Violation
from omnigraph_engine.branches.merge import MergeOutcome
from omnigraph_engine.commit.lines import owns
from omnigraph_engine.commit.sidecar import RECOVERY
from omnigraph_engine.errors import OmnigraphError
from omnigraph_engine.failpoints import ENVIRONMENT_VARIABLE, Failpoint
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.audit import RecoveryKind
from omnigraph_engine.manifest.dataset import open_former
from omnigraph_engine.manifest.refs import MAIN_BRANCH, stored_branch
from omnigraph_engine.manifest.rows import AbortState
from omnigraph_engine.manifest.state import ManifestState
from omnigraph_engine.tables.heads import head_version
from omnigraph_engine.tables.table import TableRef
from omnigraph_engine.write.load import WriteOptions
from past import Commit, Past
from writer import Journal, Writer, content_of, seen

HERE = os.path.dirname(os.path.abspath(__file__))
LEASE = 0.6  # seconds
POLL = 0.01  # seconds
SAMPLED_SNAPSHOTS = 12
BRANCHER = "b"  # how the slots of branchers are called
# A writer that is gone, or comes back, around these has the most to lose.
POINTS = (*Failpoint, *[Failpoint.COMMIT_TABLE] * 3, *[Failpoint.PUBLISH] * 3)


@dataclass(frozen=True)
class Event:
    """Something that is done to a writer a moment after it has begun its n-th operation."""

    operation: int
    delay: float  # seconds
    kill: bool  # or stop
    pause: float  # seconds that a stop lasts


@dataclass
class Slot:
    """A place for a writer; when one is killed, a successor takes it."""

    name: str
    journal: str
    events: list[Event]
    process: subprocess.Popen[bytes] | None = None
    began: int = 0  # operations
    read_to: int = 0  # bytes of the journal
    due: float | None = None  # when the next event strikes
    pause: float = 2 * LEASE  # how long the next stop lasts
    resume: float | None = None  # when a stopped writer goes on


@dataclass
class Report:
    """What a run did and what was wrong with it."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    folder: str | None = None  # kept when there is a violation

    def __str__(self) -> str:
        counts = " ".join(f"{name}={number}" for name, number in self.counts.items())
        codes = ",".join(f"{code}:{number}" for code, number in sorted(self.codes.items())) or "none"
        text = f"seed={self.seed} {counts} failures={codes} seconds={self.seconds:.1f}"
        if not self.violations:
            return f"{text} ok" if self.folder is None else f"{text} ok, kept: {self.folder}"
        found = "\n".join(f"  VIOLATION seed={self.seed}: {violation}" for violation in self.violations)
        return f"{text}\n{found}\n  kept: {self.folder}"


class Chaos:
    """One run: a fresh graph, its writers and what happens to them."""

    def __init__(self, folder: str, seed: int, *, writers: int, branchers: int, operations: int, limit: float) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a schedule, not a secret
        self._seed = seed
        self._operations = operations
        self._limit = limit
        self._folder = folder
        self._uri = os.path.join(folder, "graph.omni")
        names = [*(f"w{number}" for number in range(writers)), *(f"{BRANCHER}{number}" for number in range(branchers))]
        self._slots = [Slot(name, self._journal(name), self._events()) for name in names]
        self.report = Report(seed, Counter(kills=0, stops=0), folder=folder)

    def run(self) -> Report:
        started = time.monotonic()
        Graph.create(self._uri, model.SCHEMA)
        try:
            for slot in self._slots:
                self._start(slot)
            while any(slot.process is not None for slot in self._slots):
                for slot in self._slots:
                    self._attend(slot)
                if time.monotonic() - started > self._limit:
                    self.report.violations.append(f"the writers were not done after {self._limit:g} s")
                    break
                time.sleep(POLL)
        finally:
            self._end_all()
        self._judge()
        self.report.seconds = time.monotonic() - started
        return self.report

    def _journal(self, writer: str) -> str:
        return os.path.join(self._folder, f"{writer}.jsonl")

    # -- what happens -----------------------------------------------------------------------------------------

    def _events(self) -> list[Event]:
        chosen = self._random.sample(range(1, self._operations), min(self._operations - 1, self._random.randint(1, 3)))
        return [
            Event(
                operation,
                delay=self._random.uniform(0, 0.25),
                kill=self._random.random() < 0.5,
                pause=LEASE * self._random.uniform(1.2, 3),
            )
            for operation in sorted(chosen)
        ]

    def _faults(self) -> str:
        """A few effects of the protocol at which the store fails or, now and then, the writer dies or stops."""
        faults = []
        for _ in range(self._random.randint(1, 4)):
            point = self._random.choice(POINTS)
            nth = 1 if point.value.startswith("recovery.") else self._random.randint(1, 6)
            moment = self._random.choice(["before", "after"])
            fault = self._random.choices(["error", "kill", "stop"], [6, 2, 2])[0]
            faults.append(f"{point.value}#{nth}:{moment}={fault}")
        return ";".join(faults)

    def _start(self, slot: Slot) -> None:
        program = os.path.join(HERE, "brancher.py" if slot.name.startswith(BRANCHER) else "writer.py")
        arguments = [self._uri, slot.journal, str(self._seed), slot.name, str(self._operations), str(LEASE)]
        environment = {**os.environ, ENVIRONMENT_VARIABLE: self._faults()}
        with open(f"{slot.journal}.err", "ab") as errors:
            slot.process = subprocess.Popen([sys.executable, program, *arguments], env=environment, stderr=errors)

    def _attend(self, slot: Slot) -> None:
        """Does to a writer what is due, and sees to it when it has stopped or ended."""
        process, now = slot.process, time.monotonic()
        if process is None:
            return
        ended, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status):
            self.report.counts["stops"] += 1
            slot.resume = now + slot.pause
        elif ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            self._ended(slot, process.returncode)
            return
        if slot.resume is not None:
            if now >= slot.resume:
                os.kill(process.pid, signal.SIGCONT)
                slot.resume = None
            return
        self._look(slot)
        if slot.due is None and slot.events and slot.began >= slot.events[0].operation:
            slot.due = now + slot.events[0].delay
        if slot.due is not None and now >= slot.due:
            slot.due = None
            event = slot.events.pop(0)
            slot.pause = event.pause
            os.kill(process.pid, signal.SIGKILL if event.kill else signal.SIGSTOP)

    def _ended(self, slot: Slot, code: int) -> None:
        slot.process = slot.resume = slot.due = None
        if code == -signal.SIGKILL:
            self.report.counts["kills"] += 1
            self._start(slot)
        elif code != 0:
            with open(f"{slot.journal}.err", encoding="utf-8") as errors:
                last = errors.read().strip().splitlines()[-1:]
            self.report.violations.append(f"{slot.name} died with {code}: {last}")

    def _look(self, slot: Slot) -> None:
        """How many operations the writer has begun, from what its journal has gained."""
        if not os.path.exists(slot.journal):
            return
        with open(slot.journal, "rb") as file:
            file.seek(slot.read_to)
            gained = file.read()
        slot.read_to += len(gained)
        slot.began += gained.count(b'{"event": "intent"')

    def _end_all(self) -> None:
        for slot in self._slots:
            if slot.process is not None and slot.process.returncode is None:
                slot.process.kill()
                slot.process.wait()

    # -- what must be true afterwards -------------------------------------------------------------------------

    def _judge(self) -> None:
        try:
            graph = Graph.open(self._uri, options=WriteOptions(lease=LEASE))
            Writer(graph, Journal(self._journal("end")), str(self._seed), "end").numbered()
            # A sidecar that could not be deleted is nobody's hurry: it goes once its lease is over.
            deadline = time.monotonic() + WriteOptions().patience
            while graph.storage.list(RECOVERY) and time.monotonic() < deadline:
                graph.maintenance.recover()
            self._ask_the_oracle(graph)
        except (OmnigraphError, Violation) as error:
            self.report.violations.append(f"the graph cannot be used any more: {error}")

    def _ask_the_oracle(self, graph: Graph) -> None:
        lines: dict[str, list[str]] = {}
        for name in (*(slot.name for slot in self._slots), "end"):
            with open(self._journal(name), encoding="utf-8") as file:
                lines[name] = file.readlines()
        journals = oracle.read_journals(lines)
        history = [seen(commit) for commit in reversed(graph.commits.list())]
        read = [commit for look in journals.branch_observations for commit in look.commits]
        merged, complaints = _merged(graph, [*history, *read])
        past = Past(journals.operations, [*history, *read, *merged])
        self.report.violations += complaints
        self.report.violations += oracle.check_history(journals, history, past)
        self.report.violations += self._check_snapshots(graph, history, past)
        self.report.violations += self._check_rest(graph, journals)
        self.report.violations += self._check_audit(graph, past)
        self.report.violations += self._check_branches(graph, journals, past, history[-1])
        self._count(journals, graph)

    def _check_snapshots(self, graph: Graph, history: list[Commit], past: Past) -> list[str]:
        """The newest snapshot and some older ones hold, row for row, what the model says."""
        complaints = []
        sampled = self._random.sample(history, min(SAMPLED_SNAPSHOTS, len(history)))
        for commit in {entry.commit_id: entry for entry in (*sampled, history[-1])}.values():
            snapshot = graph.snapshot(version=commit.manifest_version)
            try:
                content = content_of(snapshot)
            except Violation as violation:
                complaints.append(f"{snapshot.id}: {violation}")
                continue
            for name in model.TYPES:
                found, wanted = content[name], past.content(commit.commit_id)[name]
                if snapshot.table(name).count() != len(found):
                    complaints.append(f"{snapshot.id} counts {snapshot.table(name).count()} {name}, has {len(found)}")
                if found != wanted:
                    keys = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
                    complaints.append(
                        f"{snapshot.id} ({commit.tag}): {name} differs from the model at {len(keys)} ids: "
                        + "; ".join(f"{key}: {found.get(key)} instead of {wanted.get(key)}" for key in keys[:3])
                    )
        return complaints

    @staticmethod
    def _check_rest(graph: Graph, journals: oracle.Journals) -> list[str]:
        """Nothing is under way any more: what the manifest publishes is every table's newest version."""
        complaints = [f"the sidecar {path} was left" for path in graph.storage.list(RECOVERY)]
        state = _state(graph)
        for key, table in state.tables.items():
            if not owns(MAIN_BRANCH, table.branch):
                continue  # a merge brought it, from a branch that may have gone on
            head = head_version(graph.storage, TableRef(key, table.location, table.branch, table.version))
            if head != table.version:
                complaints.append(f"{key} is at version {head}, and the manifest publishes {table.version}")
        for app_id, version in journals.app_versions.items():
            found = state.app_transactions.get(app_id)
            if found is None or found.version < version:
                complaints.append(f"{app_id} committed version {version}, and the manifest knows {found}")
        return complaints

    @staticmethod
    def _check_branches(graph: Graph, journals: oracle.Journals, past: Past, head: Commit) -> list[str]:
        """Every branch that is left holds what its commits add up to, is at rest, and gives its name free."""
        complaints = []
        for info in graph.branches.list()[1:]:
            snapshot = graph.snapshot(branch=info.name)
            commits = [seen(commit) for commit in graph.commits.list(info.name)]
            known = Past(journals.operations, [*past.commits.values(), *commits, *_merged(graph, commits)[0]])
            if content_of(snapshot) != known.content(commits[0].commit_id):
                complaints.append(f"{info.name} holds another content than its commits add up to")
            complaints += known.complaints
            for key, table in snapshot.tables.items():
                if owns(info, table.ref.branch) and head_version(graph.storage, table.ref) != table.ref.version:
                    complaints.append(f"{key} on {info.name} is not at the version {table.ref.version} that it shows")
            graph.branches.delete(info.name)
        for name in brancher.NAMES:
            graph.branches.create(name)
            if content_of(graph.snapshot(branch=name)) != past.content(head.commit_id):
                complaints.append(f"{name}, made anew, does not hold what main does")
        return complaints

    @staticmethod
    def _check_audit(graph: Graph, past: Past) -> list[str]:
        """One row for each operation that was undone, and at most one for each that was finished by somebody else.

        What the manifest of a branch says of it goes with the branch, so more is known only of those who never write to one.
        """
        complaints = []
        records = graph.maintenance.recoveries()
        for operation, number in Counter(record.operation_id for record in records).items():
            if number > 1:
                complaints.append(f"operation {operation} has {number} audit rows")
        undone = {record.operation_id for record in records if record.kind is RecoveryKind.ROLLED_BACK}
        aborts = _state(graph).aborts
        complaints += [f"the undo of operation {operation} has no audit row" for operation in aborts.keys() - undone]
        records = [record for record in records if not (record.actor or "").startswith(BRANCHER)]
        undone = {record.operation_id for record in records if record.kind is RecoveryKind.ROLLED_BACK}
        complaints += [
            f"operation {record.operation_id} was rolled forward and is not in history"
            for record in records
            if record.kind is RecoveryKind.ROLLED_FORWARD and record.commit_id not in past.commits
        ]
        for operation, state in aborts.items():
            if state is not AbortState.DONE:
                complaints.append(f"the undo of operation {operation} was left half-way")
        complaints += [f"operation {operation} was undone without an abort" for operation in undone - aborts.keys()]
        return complaints

    def _count(self, journals: oracle.Journals, graph: Graph) -> None:
        counts = self.report.counts
        for name, event in (("operations", "intent"), ("acks", "ack"), ("failed", "failed"), ("unknown", "unknown")):
            counts[name] = journals.counts[event]
        counts["in-doubt"] = sum(operation.outcomes.count(None) for operation in journals.operations.values())
        counts["reads"] = journals.counts["read"]
        counts["injected"] = journals.counts["injected"]
        for record in graph.maintenance.recoveries():
            counts[_COUNTED[record.kind]] += 1
        counts["branch-reads"] = journals.counts["branch read"]
        counts["branch-steps"] = journals.counts["branch step"]
        for outcome in MergeOutcome:
            counts[outcome.value.replace(" ", "-")] = journals.counts[f"merge {outcome.value}"]
        self.report.codes.update(
            {event[5:]: number for event, number in journals.counts.items() if event.startswith("code ")}
        )


_COUNTED = {
    RecoveryKind.ROLLED_FORWARD: "forward",
    RecoveryKind.ROLLED_BACK: "back",
    RecoveryKind.ORPHANED_BRANCH_DISCARDED: "discarded",
}


def _merged(graph: Graph, commits: Iterable[Commit]) -> tuple[list[Commit], list[str]]:
    """What merges brought in, also of branches that were deleted: a merge says where its source was, and that stays there."""
    complaints: list[str] = []
    found = {commit.commit_id: commit for commit in commits}
    todo = list(found.values())
    while todo:
        merge = todo.pop()
        if merge.merged_id is None or merge.merged_id in found:
            continue
        former = open_former(graph.storage, stored_branch(str(merge.source)), int(merge.source_version or 0))
        came = {commit.commit_id: seen(commit) for commit in former.commits()}
        if merge.merged_id not in came:
            complaints.append(f"commit {merge.commit_id} ({merge.tag}) does not say where {merge.merged_id} is")
            continue
        todo += [commit for key, commit in came.items() if key not in found]
        found |= came
    return list(found.values()), complaints


def _state(graph: Graph) -> ManifestState:
    return graph.snapshot()._state


def run(
    seed: int,
    *,
    writers: int = 4,
    branchers: int = 2,
    operations: int = 40,
    limit: float = 300.0,
    keep: bool = False,
) -> Report:
    """One run in a folder of its own, which is removed when nothing was wrong."""
    folder = tempfile.mkdtemp(prefix=f"chaos-{seed}-")
    report = Chaos(folder, seed, writers=writers, branchers=branchers, operations=operations, limit=limit).run()
    if not report.violations and not keep:
        shutil.rmtree(folder)
        report.folder = None
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="Chaos: many writers, one graph, one oracle.")
    parser.add_argument("--seeds", default="1,2,3", help="comma separated numbers, or a range such as 1-20")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--branchers", type=int, default=2, help="writers that make, write, merge and delete branches")
    parser.add_argument("--operations", type=int, default=40, help="for each writer")
    parser.add_argument("--keep", action="store_true", help="keep graphs and journals, also when nothing was wrong")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    bad = 0
    for text in arguments.seeds.replace(" ", ",").split(","):
        first, _, last = text.partition("-")
        for seed in range(int(first), int(last or first) + 1):
            report = run(
                seed,
                writers=arguments.writers,
                branchers=arguments.branchers,
                operations=arguments.operations,
                keep=arguments.keep,
            )
            print(report, flush=True)  # noqa: T201 - the output of a command
            bad += bool(report.violations)
    print("no violation" if not bad else f"{bad} seed(s) with violations", flush=True)  # noqa: T201
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
