"""Writes that tests of branches need and users do not have: deleting entities, and writing as an engine with other rules."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from omnigraph_engine.branches.merge import MergeOptions, MergeResult
from omnigraph_engine.branches.table_merge import MergePart, Origin, TableWork
from omnigraph_engine.commit.coordinator import CommitPlan, Coordinator, PhaseClock, TableChange
from omnigraph_engine.commit.sidecar import WriterKind
from omnigraph_engine.commit.transaction import WriteTransaction, capture
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.refs import stored_branch
from omnigraph_engine.schema.contract import IR_FILE, SOURCE_FILE, STATE_FILE, read_contract
from omnigraph_engine.tables.buckets import dealt
from omnigraph_engine.tables.predicates import among
from omnigraph_engine.tables.stage import stage_delete
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.upsert import stage_upsert

SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  tags: [String]? }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""


def people(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of name, age, city, as far as given."""
    filled = [(*row, None, None)[:3] for row in rows]
    return pa.table(
        {
            "name": pa.array([row[0] for row in filled], pa.string()),
            "age": pa.array([row[1] for row in filled], pa.int32()),
            "city": pa.array([row[2] for row in filled], pa.string()),
        }
    )


def knows(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of id, src, dst, since."""
    names = ("id", "src", "dst", "since")
    types = (pa.string(), pa.string(), pa.string(), pa.int32())
    return pa.table({name: pa.array([row[place] for row in rows], types[place]) for place, name in enumerate(names)})


def delete(graph: Graph, branch: str, doomed: dict[str, Iterable[str]]) -> None:
    """One commit that deletes entities by table key and ids; the caller names the edges that go with a node."""
    view = _view(graph, branch)
    changes = []
    for key, ids in doomed.items():
        staged = stage_delete(view.table(key), among("id", sorted(ids)) or "false")
        if staged is not None:
            changes.append(_change(view, staged))
    if changes:
        _commit(view, changes)


def upsert_unchecked(graph: Graph, branch: str, key: str, rows: pa.Table) -> None:
    """One commit of rows as the table stores them, whatever the schema says of their values."""
    view = _view(graph, branch)
    staged = stage_upsert(view.table(key), rows.to_batches())
    assert staged is not None
    _commit(view, [_change(view, staged)])


def _view(graph: Graph, branch: str) -> WriteTransaction:
    files = (graph.storage.get(name).decode() for name in (SOURCE_FILE, IR_FILE, STATE_FILE))
    return capture(graph.storage, read_contract(*files), stored_branch(branch))


def _change(view: WriteTransaction, staged: StagedWrite) -> TableChange:
    key = staged.table_key
    return TableChange(key, (staged,), staged.rows_after(view.published(key).row_count))


def _commit(view: WriteTransaction, changes: list[TableChange]) -> None:
    plan = CommitPlan(kind=WriterKind.MUTATION, changes=tuple(changes))
    Coordinator(view, plan, lease=30, clock=PhaseClock()).run()


def merge_in_parts(graph: Graph, source: str, into: str = "main", *, parts: int = 3, **options: Any) -> MergeResult:
    """As ``Graph.merge``, with workers for every table, all of whom know only what has travelled to them."""
    step: Any = travelled(graph.begin_merge(source, into, MergeOptions(**options)))
    works = step.begin(elsewhere=0)
    while not isinstance(works, MergeResult):
        made = {key: parts_of(travelled(work), parts) for key, work in works.items()}
        step = travelled(step)
        works = step.go_on(made, elsewhere=0)
    return works


def parts_of(work: TableWork, count: int) -> list[MergePart]:
    """What ``count`` workers stage of a table, each for the entities whose ids are dealt to it."""
    schema = work.entities.schema
    rows: dict[tuple[int, Origin], list[pa.RecordBatch]] = {}
    for share in work.shares:
        for number, batch in dealt(work.read(share), schema, count):
            rows.setdefault((number, share.origin), []).append(batch)
    texts = []
    for number in range(count):
        given = pa.Table.from_batches(rows.get((number, Origin.SOURCE), []), schema)
        pairs = [(given, rows.get((number, Origin.TARGET), []))]
        texts.append(travelled(work.entities).stage_apart(pairs).to_json())
    return [MergePart.from_json(text) for text in texts]


def travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


def state(graph: Graph, branch: str) -> dict[str, dict[str, dict[str, Any]]]:
    """All entities that a branch shows, by type and id."""
    snapshot = graph.snapshot(branch=branch)
    return {
        key.split(":")[1]: {row["id"]: row for row in table.to_arrow().to_pylist()}
        for key, table in snapshot.tables.items()
    }
