"""A real graph that the processes of a model work on, and what is true of it in the model's own words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from omnigraph_engine.commit.coordinator import CommitPlan, Coordinator, PhaseClock, TableChange
from omnigraph_engine.commit.recovery import settle, undo_uuid
from omnigraph_engine.commit.sidecar import RECOVERY, Sidecar, WriterKind, operation_of
from omnigraph_engine.commit.sidecar_reader import read_sidecar
from omnigraph_engine.commit.steps import LaterStep
from omnigraph_engine.commit.transaction import capture
from omnigraph_engine.errors import OmnigraphError, OutcomeUnknown, StorageError
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.dataset import Manifest, open_manifest
from omnigraph_engine.manifest.refs import MANIFEST
from omnigraph_engine.manifest.rows import AbortState
from omnigraph_engine.schema.contract import SchemaContract
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import transaction_uuid
from omnigraph_engine.tables.stage import stage_append
from omnigraph_engine.tables.staged import StagedWrite, new_transaction_uuid
from omnigraph_engine.tables.table import Table, TableRef
from omnigraph_engine.write.conform import conform
from protocol import ENDED, Model
from protocol_state import BASE_MARK, State, Version, step_bit, step_mark, undo_mark
from replay_gates import GATE_OF, Actor, Call, Died

TABLES = ("node:A", "node:B")
SCHEMA = "node A { name: String @key }\nnode B { name: String @key }\n"
LEASE = 3600.0  # seconds; no writer of a replay stops or renews of its own accord
UNKNOWN_MARK = -100
_VERSION_FILE = re.compile(r"/(\d{20})\.manifest$")

Expectation = tuple[tuple[int, int], ...]  # tables and versions


@dataclass(frozen=True)
class View:
    """What the model and the engine have in common. Versions count from the graph's first; sets are bit masks."""

    tables: tuple[tuple[Version, ...], ...]  # every version: who made it, and what it holds
    pins: tuple[int, ...]
    commits: int
    undoing: int
    undone: int
    sidecars: int
    undo_sidecars: int
    captures: tuple[tuple[Expectation, Expectation] | None, ...]  # what each operation writes on, and what it relies on
    acknowledged: int
    failed: int
    in_flight: int
    gates: tuple[str | None, ...]  # where each process stands; None when it does nothing more


def view_of_model(state: State) -> View:
    manifest = state.manifests[0]
    return View(
        tables=tuple(line.versions for line in state.lines),
        pins=tuple(pin.version for pin in manifest.pins),
        commits=manifest.commits,
        undoing=manifest.undoing,
        undone=manifest.undone,
        sidecars=state.armed,
        undo_sidecars=state.owned,
        captures=tuple(
            None
            if capture is None
            else (
                tuple((intent.table, intent.expected) for intent in capture.intents),
                tuple((table, pin.version) for table, pin in capture.reads),
            )
            for capture in state.captures
        ),
        acknowledged=state.acknowledged,
        failed=state.failed,
        in_flight=len(state.in_flight),
        gates=tuple(
            None if process == ENDED else GATE_OF.get(process.step, process.step) for process in state.processes
        ),
    )


class World:
    """The graph, the processes that work on it, and what the store still may do."""

    def __init__(self, model: Model, root: Path) -> None:
        graph = Graph.create(root / "graph.omni", SCHEMA)
        self._model = model
        self._storage: Storage = graph.storage
        self._contract: SchemaContract = graph._contract
        published = open_manifest(self._storage).state.tables
        self._refs = [
            TableRef(key, published[key].location, published[key].branch, published[key].version)
            for key in TABLES[: model.tables]
        ]
        self._coordinators: list[Coordinator | None] = [None] * model.operations
        self._acknowledged = self._failed = 0
        self._versions: dict[tuple[int, int], Version] = {}
        self._manifest: Manifest | None = None
        self.in_flight: list[Call] = []
        self.actors = [
            *(Actor(f"writer {number}", partial(self._write, number), self.in_flight) for number in self._writers),
            *(Actor(f"recoverer {number}", self._recover, self.in_flight) for number in range(model.recoverers)),
        ]

    def start(self) -> None:
        for actor in self.actors:
            actor.start()

    def stop(self) -> None:
        for actor in self.actors:
            actor.stop()

    def renew(self, op: int) -> None:
        """What the writer does between two effects once half of its lease is over."""
        writer = self._coordinator(op)
        writer._rewrite(writer._sidecar.renewed())

    # The processes.

    @property
    def _writers(self) -> range:
        return range(len(self._model.writers))

    def _write(self, number: int, actor: Actor) -> None:
        """Every attempt is an operation of its own. One that its caller gives up stays before its next barrier for ever."""
        for op in range(number * self._model.attempts, (number + 1) * self._model.attempts):
            actor.wait("barrier")
            actor.wait("capture")
            writer = self._coordinators[op] = self._prepared(op)
            try:
                writer.run()
            except OutcomeUnknown:
                return
            except OmnigraphError:
                self._failed |= 1 << op
            else:
                self._acknowledged |= 1 << op
                return

    def _prepared(self, op: int) -> Coordinator:
        write = self._model.write_of(op)
        view = capture(self._storage, self._contract, None)
        for table in write.reads:
            view.read(TABLES[table])
        changes = []
        for table, steps in write.tables:
            key = TABLES[table]
            first = self._staged(op, 0, view.table(key))
            later = (LaterStep(new_transaction_uuid(), partial(self._staged, op, step)) for step in range(1, steps))
            changes.append(TableChange(key, (first, *later), view.published(key).row_count + steps))
        plan = CommitPlan(WriterKind.LOAD, tuple(changes))
        return Coordinator(view, plan, lease=LEASE, clock=PhaseClock())

    def _staged(self, op: int, step: int, table: Table) -> StagedWrite:
        """Every step of an operation adds one row, which names it."""
        accepted = self._contract.accepted
        table_type = next(kind for kind in accepted.catalog.table_types() if kind.table_key == table.ref.table_key)
        row = pa.record_batch({"name": [f"{op}.{step}"]})
        staged = stage_append(table, [conform(row, accepted, table_type)])
        assert staged is not None
        return staged

    def _recover(self, actor: Actor) -> None:
        """Settles one operation after the other. One that dies, or that the store fails, has a successor."""
        while True:
            op = actor.wait("idle")
            try:
                settle(self._storage, self._found(op))
            except (StorageError, Died):
                continue

    def _found(self, op: int) -> Sidecar:
        operation_id = self._coordinator(op)._sidecar.operation_id
        path = next(path for path in self._storage.list(RECOVERY) if operation_of(path) == operation_id)
        return read_sidecar(path, self._storage.get(path))

    def _coordinator(self, op: int) -> Coordinator:
        found = self._coordinators[op]
        assert found is not None
        return found

    # What is true now.

    def view(self) -> View:
        sidecars = [None if writer is None else writer._sidecar for writer in self._coordinators]
        manifest = self._newest_manifest()
        aborts = manifest.state.aborts
        stored = set(self._storage.list(RECOVERY))
        undoing = [
            sidecar is not None and aborts.get(sidecar.operation_id) is AbortState.UNDOING for sidecar in sidecars
        ]
        undone = [sidecar is not None and aborts.get(sidecar.operation_id) is AbortState.DONE for sidecar in sidecars]
        return View(
            tables=tuple(self._line(table, sidecars) for table in range(self._model.tables)),
            pins=tuple(manifest.state.tables[ref.table_key].version - ref.version for ref in self._refs),
            commits=_mask([s is not None and manifest.find_commit(s.commit_id) is not None for s in sidecars]),
            undoing=_mask(undoing),
            undone=_mask(undone),
            sidecars=_mask([sidecar is not None and sidecar.path in stored for sidecar in sidecars]),
            undo_sidecars=_mask([sidecar is not None and sidecar.undo_path in stored for sidecar in sidecars]),
            captures=tuple(None if sidecar is None else self._captured(sidecar) for sidecar in sidecars),
            acknowledged=self._acknowledged,
            failed=self._failed,
            in_flight=len(self.in_flight),
            gates=tuple(actor.at for actor in self.actors),
        )

    def _newest_manifest(self) -> Manifest:
        newest = max(self._stored_versions(MANIFEST))
        if self._manifest is None or self._manifest.version != newest:
            self._manifest = open_manifest(self._storage)
        return self._manifest

    def _stored_versions(self, path: str) -> list[int]:
        names = map(_VERSION_FILE.search, self._storage.list(f"{path}/_versions"))
        return sorted(2**64 - 1 - int(name[1]) for name in names if name is not None)

    def _captured(self, sidecar: Sidecar) -> tuple[Expectation, Expectation]:
        first = {ref.table_key: (table, ref.version) for table, ref in enumerate(self._refs)}

        def counted(table_key: str, version: int) -> tuple[int, int]:
            return first[table_key][0], version - first[table_key][1]

        return (
            tuple(counted(intent.table_key, intent.expected_version) for intent in sidecar.tables),
            tuple(counted(table_key, pin.version) for table_key, pin in sidecar.read_set.items()),
        )

    def _line(self, table: int, sidecars: Sequence[Sidecar | None]) -> tuple[Version, ...]:
        line = []
        for version in self._stored_versions(self._refs[table].path):
            if (table, version) not in self._versions:
                self._versions[table, version] = self._version(table, version, sidecars)
            line.append(self._versions[table, version])
        return tuple(line)

    def _version(self, table: int, version: int, sidecars: Sequence[Sidecar | None]) -> Version:
        ref = TableRef(self._refs[table].table_key, self._refs[table].location, None, version)
        rows = Table(self._storage, ref).scan(["name"]).read_all()["name"].to_pylist()
        content = sum(step_bit(*map(int, row.split("."))) for row in rows)
        if version == self._refs[table].version:
            return Version(BASE_MARK, content)
        marks = {}
        for op, sidecar in enumerate(sidecars):
            for intent in () if sidecar is None else sidecar.tables:
                if intent.table_key == ref.table_key:
                    marks[undo_uuid(sidecar, intent)] = undo_mark(op)
                    marks.update({found: step_mark(op, step) for step, found in enumerate(intent.transactions)})
        return Version(marks.get(transaction_uuid(self._storage, ref.path, version), UNKNOWN_MARK), content)


def _mask(flags: Sequence[bool]) -> int:
    return sum(1 << op for op, flag in enumerate(flags) if flag)
