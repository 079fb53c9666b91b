"""What two branches must not have together although each may have its part: orphan edges, ``@unique`` values, ``@card`` bounds.

Each side's own state satisfies the rules, so only rows that came on one side are held against what the other side did.
Values need no look: they were checked when they were written, and a rule about a value concerns one property alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph_engine.branches.conflicts import ConflictKind, entities
from omnigraph_engine.branches.entities import Change, entity_changes
from omnigraph_engine.branches.plan import MergePlan
from omnigraph_engine.branches.three_way import Granularity
from omnigraph_engine.compute import pc
from omnigraph_engine.manifest.dataset import Manifest
from omnigraph_engine.schema.model import EdgeType, TableType, Unique
from omnigraph_engine.tables.buckets import pair_up
from omnigraph_engine.tables.changes import RowChanges
from omnigraph_engine.tables.predicates import among
from omnigraph_engine.tables.readback import scan_staged
from omnigraph_engine.tables.unique_text import unique_text

_KEY = pa.schema([pa.field("key", pa.string())])
_KEY_AND_ID = _KEY.append(pa.field("id", pa.string()))
_WEIGHED = _KEY.append(pa.field("weight", pa.int64()))
_FEW = 256  # sources up to this number are looked up; for more the column is streamed


def check_together(plan: MergePlan) -> None:
    """Adds to the plan's conflicts whatever the merged graph would break."""
    for key in plan.staged:
        for rule in plan.types[key].constraints:
            if isinstance(rule, Unique):
                _check_unique(plan, plan.types[key], rule)
    for kind in plan.types.values():
        if not isinstance(kind, EdgeType):
            continue
        nodes = (("src", f"node:{kind.from_type}"), ("dst", f"node:{kind.to_type}"))
        involved = {kind.table_key, *(key for _, key in nodes)}
        if involved.isdisjoint({*plan.staged, *plan.adopted}):
            continue
        for key in involved:
            plan.view.read(key)  # what it holds decides, so it must not have moved when the merge becomes visible
        for role, node_key in nodes:
            _check_orphans(plan, kind, role, node_key)
        if kind.table_key in plan.staged and (kind.cardinality.min or kind.cardinality.max is not None):
            _check_cardinality(plan, kind)


# -- several bases ------------------------------------------------------------------------------------------------


def check_crosswise(plan: MergePlan, other: Manifest) -> None:
    """Histories that merged each other crosswise have several bases, and these may tell different stories of an entity.

    Where one says that only the source changed it and the other that only the target did, nobody can know which change is
    the later one; nor where one of them would mix properties and the other knows that one side has the last word.
    """
    for key, kind in plan.types.items():
        changes = plan.against(other, key)
        if changes is None:
            continue
        theirs, ours = (_changed(each) for each in (plan.by_source(key), plan.by_target(key)))
        their_other, our_other = map(_changed, changes)
        disputed = ((theirs - ours) & (our_other - their_other)) | ((ours - theirs) & (their_other - our_other))
        if plan.granularity is Granularity.PROPERTY:
            disputed |= (theirs & ours) & (their_other ^ our_other)
        if not disputed:
            continue
        names = plan.view.table(key).schema.names
        wanted = pa.array(sorted(disputed), pa.string())
        for change in entity_changes(plan.sides(key), names):
            chosen = pc.is_in(change.ids, value_set=wanted)
            ids = change.ids.filter(chosen)
            source, target = (
                None if rows is None else entities(rows.filter(chosen), names) for rows in (change.before, change.after)
            )
            plan.conflicts.add(ConflictKind.DIVERGENT_UPDATE, kind.name, ids, source=source, target=target)


def _changed(changes: RowChanges) -> set[str]:
    names = changes.after.schema.names
    return {str(entity) for change in entity_changes(changes, names) for entity in change.ids.to_pylist()}


# -- orphan edges -------------------------------------------------------------------------------------------------


def _check_orphans(plan: MergePlan, edge: EdgeType, role: str, node_key: str) -> None:
    """An edge of one side against nodes that only the other side deleted."""
    columns = ["id", "src", "dst"]
    if edge.table_key in plan.staged:
        table = plan.view.table(edge.table_key)
        coming: Iterable[pa.RecordBatch] = scan_staged(table, plan.staged[edge.table_key], columns)
    elif edge.table_key in plan.adopted:
        coming = plan.by_source(edge.table_key).came(columns)
    else:
        coming = ()
    for orphans in _orphans(coming, role, _deleted(plan.by_target(node_key), but=_put_back(plan, node_key))):
        plan.conflicts.add(ConflictKind.ORPHAN_EDGE, edge.name, orphans["id"], source=entities(orphans, columns))
    if node_key not in plan.staged and node_key not in plan.adopted:
        return
    gone = (
        _column(plan.moved[node_key].removed, "id")
        if node_key in plan.staged
        else _deleted(plan.by_source(node_key), but=())
    )
    standing = plan.by_target(edge.table_key).came(columns)
    moved = plan.moved[edge.table_key]
    for orphans in _orphans(standing, role, gone):
        left = _without(orphans, [*_column(moved.removed, "id"), *_column(moved.replaced, "id")])
        plan.conflicts.add(ConflictKind.ORPHAN_EDGE, edge.name, left["id"], target=entities(left, columns))


def _orphans(edges: Iterable[pa.RecordBatch], role: str, deleted: Iterable[pa.Array[Any]]) -> Iterator[pa.Table]:
    schema = pa.schema([pa.field("key", pa.string()), *(pa.field(name, pa.string()) for name in ("id", "src", "dst"))])
    keyed = (
        pa.RecordBatch.from_arrays([batch[role], batch["id"], batch["src"], batch["dst"]], schema=schema)
        for batch in edges
    )
    gone = (pa.RecordBatch.from_arrays([ids], schema=_KEY) for ids in deleted)
    for ends, stream in pair_up(keyed, gone, schema, _KEY):
        for batch in stream:
            found = ends.filter(pc.is_in(ends["key"], value_set=batch.column(0)))
            if found.num_rows:
                yield found


def _deleted(changes: RowChanges, *, but: Iterable[pa.Array[Any]]) -> Iterator[pa.Array[Any]]:
    kept = list(but)
    for change in entity_changes(changes, ["id"]):
        if change.change is Change.DELETED:
            ids = change.ids.combine_chunks()
            for others in kept:
                ids = ids.filter(pc.invert(pc.is_in(ids, value_set=others)))
            yield ids


def _put_back(plan: MergePlan, key: str) -> list[pa.Array[Any]]:
    """The ids of entities that the merge gives the target, also those that it had deleted."""
    if key not in plan.staged:
        return []
    return [batch.column(0) for batch in scan_staged(plan.view.table(key), plan.staged[key], ["id"])]


# -- @unique ------------------------------------------------------------------------------------------------------


def _check_unique(plan: MergePlan, kind: TableType, rule: Unique) -> None:
    """Values of merged rows against those that came on the target. A row of both sides may meet any row."""
    columns = [*rule.columns, "id"]
    table, write = plan.view.table(kind.table_key), plan.staged[kind.table_key]
    moved = plan.moved[kind.table_key]
    standing = table.scan(columns) if moved.mixed else plan.by_target(kind.table_key).came(columns)
    incoming = (_with_text(batch, rule.columns) for batch in scan_staged(table, write, columns))
    stored = (_with_text(batch, rule.columns) for batch in standing)
    staged_ids = [batch.column(0) for batch in scan_staged(table, write, ["id"])]
    gone = [*_column(moved.removed, "id"), *staged_ids]
    for given, stream in pair_up(incoming, stored, _KEY_AND_ID, _KEY_AND_ID):
        met = [batch.filter(pc.is_in(batch["key"], value_set=given["key"].combine_chunks())) for batch in stream]
        taken = _without(pa.Table.from_batches(met, _KEY_AND_ID), gone)
        if not taken.num_rows:
            continue
        clashing = given.filter(pc.is_in(given["key"], value_set=taken["key"].combine_chunks()))
        holders = taken.take(pc.index_in(clashing["key"].combine_chunks(), value_set=taken["key"].combine_chunks()))
        name = ", ".join(rule.columns)
        plan.conflicts.add(
            ConflictKind.UNIQUE,
            kind.name,
            clashing["id"],
            source=[{"id": row["id"], name: row["key"]} for row in clashing.to_pylist()],
            target=[{"id": row["id"], name: row["key"]} for row in holders.to_pylist()],
        )


def _with_text(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The rows that have all the values, under one text."""
    complete = batch
    for name in columns:
        complete = complete.filter(complete[name].is_valid())
    text = unique_text([complete[name] for name in columns])
    return pa.RecordBatch.from_arrays([text, complete["id"]], schema=_KEY_AND_ID)


# -- @card --------------------------------------------------------------------------------------------------------


def _check_cardinality(plan: MergePlan, edge: EdgeType) -> None:
    """Sources whose edges both sides touched: how many each has once both are together."""
    moved, write = plan.moved[edge.table_key], plan.staged[edge.table_key]
    table = plan.view.table(edge.table_key)
    added = (_weighed(batch.column(0), 1) for batch in scan_staged(table, write, ["src"]))
    taken = (_weighed(ids, -1) for ids in _column([*moved.removed, *moved.replaced], "src"))
    changes = plan.by_target(edge.table_key)
    touched_here = (
        pa.RecordBatch.from_arrays([batch["src"]], schema=_KEY)
        for batch in chain(changes.lost(["src"]), changes.came(["src"]))
    )
    low, high = edge.cardinality.min, edge.cardinality.max
    for weights, stream in pair_up(chain(added, taken), touched_here, _WEIGHED, _KEY):
        here = [batch.column(0) for batch in stream]
        both = weights.filter(pc.is_in(weights["key"], value_set=pa.chunked_array(here, pa.string()).combine_chunks()))
        if not both.num_rows:
            continue
        sources = pc.unique(both["key"].combine_chunks())
        few = list(map(str, sources.to_pylist())) if len(sources) <= _FEW else []
        for batch in table.scan(["src"], among("src", few)):
            met = batch.column(0).filter(pc.is_in(batch.column(0), value_set=sources))
            both = pa.concat_tables([both, pa.Table.from_batches([_weighed(met, 1)])])
        counted = both.group_by("key").aggregate([("weight", "sum")])
        broken = pc.less(counted["weight_sum"], low)
        if high is not None:
            broken = pc.or_(broken, pc.greater(counted["weight_sum"], high))
        offending = _of_living(plan, f"node:{edge.from_type}", counted.filter(broken))
        plan.conflicts.add(
            ConflictKind.CARDINALITY,
            edge.name,
            offending["key"],
            target=[{"src": row["key"], "edges": row["weight_sum"]} for row in offending.to_pylist()],
        )


def _of_living(plan: MergePlan, node_key: str, counted: pa.Table) -> pa.Table:
    """Those of the sources that there will be: a node that is gone needs no edges."""
    if not counted.num_rows:
        return counted
    keys = counted["key"].combine_chunks()
    few = list(map(str, keys.to_pylist())) if len(keys) <= _FEW else []
    living = [
        batch.column(0).filter(pc.is_in(batch.column(0), value_set=keys))
        for batch in plan.table_after(node_key).scan(["id"], among("id", few))
    ]
    counted = counted.filter(pc.is_in(keys, value_set=pa.chunked_array(living, pa.string()).combine_chunks()))
    for removed in _column(plan.moved[node_key].removed, "id"):
        counted = counted.filter(pc.invert(pc.is_in(counted["key"], value_set=removed)))
    return counted


def _weighed(keys: pa.Array[Any], weight: int) -> pa.RecordBatch:
    weights = pa.array(np.full(len(keys), weight), pa.int64())
    return pa.RecordBatch.from_arrays([keys, weights], schema=_WEIGHED)


# -- both ---------------------------------------------------------------------------------------------------------


def _column(tables: Iterable[pa.Table], name: str) -> list[pa.Array[Any]]:
    return [table[name].combine_chunks() for table in tables if table.num_rows]


def _without(rows: pa.Table, ids: Iterable[pa.Array[Any]]) -> pa.Table:
    for others in ids:
        rows = rows.filter(pc.invert(pc.is_in(rows["id"], value_set=others)))
    return rows
