"""What two branches must not have together although each may have its part: orphan edges, ``@unique`` values, ``@card`` bounds.

Each side's own state satisfies the rules, so only rows that came on one side are held against what the other side did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
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
from omnigraph_engine.tables.key_joins import KEY, candidates, keys_of, rows_of, rows_with, rows_without
from omnigraph_engine.tables.predicates import among
from omnigraph_engine.tables.table import Table
from omnigraph_engine.tables.unique_text import unique_text

_KEY_AND_ID = KEY.append(pa.field("id", pa.string()))
_ID_AND_KEY = pa.schema([pa.field("id", pa.string()), pa.field("key", pa.string())])
_EDGE = pa.schema([pa.field(name, pa.string()) for name in ("id", "src", "dst")])
_WEIGHED = KEY.append(pa.field("weight", pa.int64()))
_MARKED = KEY.append(pa.field("mark", pa.int64()))
_FEW = 256  # keys up to this number are looked up; for more the column is streamed


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
        if kind.cardinality.min or kind.cardinality.max is not None:
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
        wanted = _disputed(plan, key, *changes)
        if not len(wanted):
            continue
        names = plan.view.table(key).schema.names
        for change in entity_changes(plan.sides(key), names):
            chosen = pc.is_in(change.ids, value_set=wanted)
            ids = change.ids.filter(chosen)
            source, target = (
                None if rows is None else entities(rows.filter(chosen), names) for rows in (change.before, change.after)
            )
            plan.conflicts.add(ConflictKind.DIVERGENT_UPDATE, kind.name, ids, source=source, target=target)


def _disputed(plan: MergePlan, key: str, source: RowChanges, target: RowChanges) -> pa.Array[Any]:
    """The ids of which two bases tell different stories. They are conflicts, so they are kept."""
    found: list[pa.Array[Any]] = []
    told = (plan.by_source(key), plan.by_target(key), source, target)
    marked = chain.from_iterable(_marked(changes, 1 << place) for place, changes in enumerate(told))
    for rows, _ in pair_up(marked, (), _MARKED, KEY):
        by_id = rows.group_by("key").aggregate([("mark", "sum")])
        marks = by_id["mark_sum"].to_numpy()
        theirs, ours, their_other, our_other = (marks & (1 << place) != 0 for place in range(len(told)))
        disputed = (theirs & ~ours & our_other & ~their_other) | (ours & ~theirs & their_other & ~our_other)
        if plan.granularity is Granularity.PROPERTY:
            disputed |= theirs & ours & (their_other ^ our_other)
        found.append(by_id["key"].combine_chunks().filter(pa.array(disputed)))
    return pa.chunked_array(found, pa.string()).combine_chunks()


def _marked(changes: RowChanges, mark: int) -> Iterator[pa.RecordBatch]:
    """The id of each entity that is different, once, with this mark."""
    for change in entity_changes(changes, changes.after.schema.names):
        marks = pa.array(np.full(len(change.ids), mark))
        yield pa.RecordBatch.from_arrays([change.ids.combine_chunks(), marks], schema=_MARKED)


# -- orphan edges -------------------------------------------------------------------------------------------------


def _check_orphans(plan: MergePlan, edge: EdgeType, role: str, node_key: str) -> None:
    """Edges that come, and those that came on the target, against nodes that there will not be."""
    removed = partial(_removed, plan, node_key)
    if edge.table_key in plan.adopted:
        coming = plan.by_source(edge.table_key).came(_EDGE.names)
    else:
        coming = plan.put(edge.table_key, _EDGE.names)
    put_back = keys_of(plan.put(node_key, ["id"]), "id")
    deleted_here = rows_without(_deleted(plan.by_target(node_key)), put_back, KEY)
    # An edge with properties of both sides may go to a node that the source, which did not choose it, has deleted.
    for orphans in _orphans(coming, role, chain(deleted_here, removed())):
        _add_orphans(plan, edge, orphans, "source")
    if node_key not in plan.staged and node_key not in plan.adopted:
        return
    standing = _orphans(plan.by_target(edge.table_key).came(_EDGE.names), role, removed())
    for orphans in rows_without(standing, keys_of(plan.gone(edge.table_key, ["id"]), "id"), _EDGE):
        _add_orphans(plan, edge, orphans, "target")


def _add_orphans(plan: MergePlan, edge: EdgeType, orphans: pa.RecordBatch, side: str) -> None:
    told = entities(pa.Table.from_batches([orphans]), _EDGE.names)
    source, target = (told, None) if side == "source" else (None, told)
    plan.conflicts.add(ConflictKind.ORPHAN_EDGE, edge.name, orphans["id"], source=source, target=target)


def _orphans(edges: Iterable[pa.RecordBatch], role: str, nodes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The edges of which this end is one of ``nodes``."""
    schema = pa.schema([*KEY, *_EDGE])
    keyed = (
        pa.RecordBatch.from_arrays([batch[role], batch["id"], batch["src"], batch["dst"]], schema=schema)
        for batch in edges
    )
    for found in rows_of(nodes, keyed, schema):
        if found.num_rows:
            yield found.select(_EDGE.names)


def _removed(plan: MergePlan, key: str) -> Iterator[pa.RecordBatch]:
    """The ids of the entities that the merge takes from the target."""
    if key in plan.adopted:
        return _deleted(plan.by_source(key))
    return rows_without(keys_of(plan.gone(key, ["id"]), "id"), keys_of(plan.put(key, ["id"]), "id"), KEY)


def _deleted(changes: RowChanges) -> Iterator[pa.RecordBatch]:
    for change in entity_changes(changes, ["id"]):
        if change.change is Change.DELETED:
            yield pa.RecordBatch.from_arrays([change.ids.combine_chunks()], schema=KEY)


# -- @unique ------------------------------------------------------------------------------------------------------


def _check_unique(plan: MergePlan, kind: TableType, rule: Unique) -> None:
    """Values of rows that come against those of rows that came on the target. A row of both sides may meet any row."""
    key, columns = kind.table_key, [*rule.columns, "id"]
    mixed = key in plan.mixed
    standing = plan.view.table(key).scan(columns) if mixed else plan.by_target(key).came(columns)

    def coming() -> Iterator[pa.RecordBatch]:
        return (_with_text(batch, rule.columns) for batch in plan.put(key, columns))

    met = rows_of(keys_of(coming(), "key"), (_with_text(batch, rule.columns) for batch in standing), _KEY_AND_ID)
    gone = chain(keys_of(plan.gone(key, ["id"]), "id"), keys_of(plan.put(key, ["id"]), "id"))
    staying = rows_without((batch.select(_ID_AND_KEY.names) for batch in met), gone, _ID_AND_KEY)
    holders = (batch.select(_KEY_AND_ID.names) for batch in staying)
    name = ", ".join(rule.columns)
    for held, stream in pair_up(chain(holders, coming()) if mixed else holders, coming(), _KEY_AND_ID, _KEY_AND_ID):
        if not held.num_rows:
            continue
        given = pa.Table.from_batches(candidates(held["key"], stream), _KEY_AND_ID)
        both = given.join(held.rename_columns(["key", "holder"]), "key", join_type="inner")
        clashing = both.filter(pc.not_equal(both["id"], both["holder"])).group_by(["id", "key"])
        told = clashing.aggregate([("holder", "min")])
        plan.conflicts.add(
            ConflictKind.UNIQUE,
            kind.name,
            told["id"],
            source=[{"id": row["id"], name: row["key"]} for row in told.to_pylist()],
            target=[{"id": row["holder_min"], name: row["key"]} for row in told.to_pylist()],
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
    """Nodes that both sides touched, or edges from them: how many edges each has once both are together."""
    key, node_key = edge.table_key, f"node:{edge.from_type}"
    added = (_weighed(batch["src"], 1) for batch in plan.put(key, ["src"]))
    weights = chain(added, (_weighed(batch["src"], -1) for batch in plan.gone(key, ["src"])))
    edges = plan.by_target(key)
    here = keys_of(chain(edges.lost(["src"]), edges.came(["src"])), "src")
    if edge.cardinality.min:  # a node that one side has kept may lack edges that the other has deleted
        nodes = plan.by_target(node_key)
        there = keys_of(plan.put(node_key, ["id"]), "id")
        if key in plan.adopted and nodes.rows:
            there = chain(there, keys_of(plan.by_source(key).lost(["src"]), "src"))
        weights = chain(weights, (_weighed(batch.column(0), 0) for batch in there))
        here = chain(here, keys_of(nodes.came(["id"]), "id"))
    broken = _broken(edge, plan.table_after(key), rows_with(weights, here, _WEIGHED))
    # A node that is gone needs no edges.
    few = _Few()
    living = chain(few.scan(plan.table_after(node_key), "id"), keys_of(plan.put(node_key, ["id"]), "id"))
    for offending in rows_without(rows_with(few.passing(broken), living, _WEIGHED), _removed(plan, node_key), _WEIGHED):
        plan.conflicts.add(
            ConflictKind.CARDINALITY,
            edge.name,
            offending["key"],
            target=[{"src": row["key"], "edges": row["weight"]} for row in offending.to_pylist()],
        )


def _broken(edge: EdgeType, table: Table, weights: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sources that have too many edges or too few, and how many, when the weights are added to what the table has."""
    low, high = edge.cardinality.min, edge.cardinality.max
    few = _Few()
    for given, stream in pair_up(few.passing(weights), few.scan(table, "src"), _WEIGHED, KEY):
        if not given.num_rows:
            continue
        summed = given.group_by("key").aggregate([("weight", "sum")])
        sources = summed["key"].combine_chunks()
        edges = summed["weight_sum"].to_numpy().copy()
        for batch in candidates(summed["key"], stream):
            places = pc.index_in(batch.column(0), value_set=sources).drop_null()
            edges += np.bincount(places.to_numpy(zero_copy_only=False), minlength=len(edges))
        broken = pa.array((edges < low) | (edges > (edges if high is None else high)))
        yield pa.RecordBatch.from_arrays([sources, pa.array(edges)], schema=_WEIGHED).filter(broken)


def _weighed(keys: pa.Array[Any], weight: int) -> pa.RecordBatch:
    weights = pa.array(np.full(len(keys), weight), pa.int64())
    return pa.RecordBatch.from_arrays([keys, weights], schema=_WEIGHED)


class _Few:
    """Keys that pass by, remembered as long as they are few: then they are looked up in a table, else it is streamed."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if len(self._keys) <= _FEW:
                self._keys.update(map(str, batch.column(0).slice(0, _FEW + 1).to_pylist()))
            yield batch

    def scan(self, table: Table, column: str) -> Iterator[pa.RecordBatch]:
        """The column's values that may be among the keys; all keys have passed by when the first one is asked for."""
        few = sorted(self._keys) if len(self._keys) <= _FEW else []
        yield from keys_of(table.scan([column], among(column, few)), column)
