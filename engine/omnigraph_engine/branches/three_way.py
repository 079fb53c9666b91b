"""Merging the rows of one table: what the source did since the base, onto what the target did. Pure, over Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.branches.conflicts import ConflictKind, ConflictList, entities
from omnigraph_engine.compute import pc
from omnigraph_engine.tables.equality import rows_differ, values_differ

Mask = npt.NDArray[np.bool_]


class Resolution(str, Enum):
    FAIL = "fail"
    OURS = "ours"  # the target keeps what it has
    THEIRS = "theirs"  # the target takes what the source has


class Granularity(str, Enum):
    ROW = "row"
    PROPERTY = "property"  # changes of different properties of one entity are no conflict


@dataclass(frozen=True)
class Side:
    """What one side did to some entities: the rows it lost and the rows that came, at most one of each per id."""

    lost: pa.Table
    came: pa.Table


@dataclass(frozen=True)
class Outcome:
    """What the target must do to have both sides' changes. Rows bear ``_rowid`` and ``_rowaddr`` of their origin."""

    put: pa.Table  # source rows whose entity the target has not touched: it has it as in the base, or not at all
    put_over: pa.Table  # rows for entities that the target has touched; their ROW is the target's own row
    put_back: pa.Table  # rows for entities that the target has deleted
    remove: pa.Table  # base rows of entities that the target has not touched
    remove_over: pa.Table  # target rows of entities that it has touched
    mixed: bool  # whether one of ``put_over`` holds properties of both sides


def three_way(
    type_name: str,
    columns: Sequence[str],
    source: Side,
    target: Side,
    *,
    resolution: Resolution,
    granularity: Granularity,
    conflicts: ConflictList,
) -> Outcome:
    """Decides for each entity that the source has touched; the target's side holds what it did to these, and maybe more.

    Of what the target has lost only the ids are looked at.
    """
    came_ids, lost_ids = _ids(source.came), _ids(source.lost)
    unsure = source.came.take(np.flatnonzero(_among(came_ids, lost_ids)))
    same = _ids(unsure).filter(pa.array(~rows_differ(_of(source.lost, _ids(unsure)), unsure, columns)))
    source = Side(_without(source.lost, same), _without(source.came, same))

    touched = pa.concat_arrays([_ids(target.lost), _ids(target.came)])
    put, both_came = _split(source.came, touched)
    deleted = _without(source.lost, _ids(source.came))
    remove, both_deleted = _split(deleted, touched)
    nothing = source.came.slice(0, 0)

    # Deleted by the source, touched by the target: gone there too, or changed.
    remained = _of(target.came, _ids(both_deleted), present=True)
    base = _of(source.lost, _ids(remained))
    really = pa.array(rows_differ(base, remained, columns))
    untouched, changed = remained.filter(pc.invert(really)), remained.filter(really)
    remove_over = untouched
    if changed.num_rows:
        conflicts.add(
            ConflictKind.DELETE_UPDATE,
            type_name,
            _ids(changed),
            base=entities(_of(source.lost, _ids(changed)), columns),
            target=entities(changed, columns),
            resolution=_told(resolution),
        )
        if resolution is Resolution.THEIRS:
            remove_over = pa.concat_tables([remove_over, changed])

    # Changed or made by the source, touched by the target.
    here, gone = _split_present(both_came, _ids(target.came))
    if gone.num_rows:  # the target has deleted what the source changed
        conflicts.add(
            ConflictKind.DELETE_UPDATE,
            type_name,
            _ids(gone),
            base=entities(_of(source.lost, _ids(gone)), columns),
            source=entities(gone, columns),
            resolution=_told(resolution),
        )
    put_back = gone if resolution is Resolution.THEIRS else nothing
    theirs, ours = here, _of(target.came, _ids(here))
    differ = pa.array(rows_differ(theirs, ours, columns))
    theirs, ours = theirs.filter(differ), ours.filter(differ)
    put_over, mixed = _diverged(
        type_name, columns, source, theirs, ours, resolution=resolution, granularity=granularity, conflicts=conflicts
    )
    return Outcome(put, put_over, put_back, remove, remove_over, mixed)


def _diverged(
    type_name: str,
    columns: Sequence[str],
    source: Side,
    theirs: pa.Table,
    ours: pa.Table,
    *,
    resolution: Resolution,
    granularity: Granularity,
    conflicts: ConflictList,
) -> tuple[pa.Table, bool]:
    """Entities that both sides have, differently: what to put over the target's rows, and whether some of it is of both."""
    has_base = _among(_ids(theirs), _ids(source.lost))
    made, made_here = theirs.filter(pa.array(~has_base)), ours.filter(pa.array(~has_base))
    theirs, ours = theirs.filter(pa.array(has_base)), ours.filter(pa.array(has_base))
    base = _of(source.lost, _ids(theirs))
    # A row that the target merely rewrote holds the base's values: the source's change stands.
    clean = ~rows_differ(base, ours, columns)
    taken, over = _located(theirs.filter(pa.array(clean)), ours.filter(pa.array(clean))), theirs.slice(0, 0)
    if granularity is Granularity.PROPERTY:
        merged, apart = _merged_properties(base, theirs, ours, columns)
        apart &= ~clean
        over, clean = merged.filter(pa.array(apart)), clean | apart
    if len(clean) and not clean.all():
        left = pa.array(~clean)
        conflicts.add(
            ConflictKind.DIVERGENT_UPDATE,
            type_name,
            _ids(theirs.filter(left)),
            base=entities(base.filter(left), columns),
            source=entities(theirs.filter(left), columns),
            target=entities(ours.filter(left), columns),
            resolution=_told(resolution),
        )
        if resolution is Resolution.THEIRS:
            taken = pa.concat_tables([taken, _located(theirs.filter(left), ours.filter(left))])
    if made.num_rows:
        conflicts.add(
            ConflictKind.DIVERGENT_INSERT,
            type_name,
            _ids(made),
            source=entities(made, columns),
            target=entities(made_here, columns),
            resolution=_told(resolution),
        )
        if resolution is Resolution.THEIRS:
            taken = pa.concat_tables([taken, _located(made, made_here)])
    return pa.concat_tables([taken, over]), over.num_rows > 0


def _merged_properties(
    base: pa.Table, theirs: pa.Table, ours: pa.Table, columns: Sequence[str]
) -> tuple[pa.Table, Mask]:
    """The target's rows with the properties that only the source changed, and for which rows nothing contradicts."""
    apart = np.ones(base.num_rows, np.bool_)
    merged = ours
    for name in columns:
        changed = values_differ(base[name], theirs[name])
        apart &= ~(changed & values_differ(base[name], ours[name]) & values_differ(theirs[name], ours[name]))
        place = merged.schema.get_field_index(name)
        picked = pc.if_else(pa.array(changed), theirs[name].combine_chunks(), ours[name].combine_chunks())
        merged = merged.set_column(place, merged.schema.field(place), picked)
    return merged, apart


def _located(rows: pa.Table, at: pa.Table) -> pa.Table:
    """The rows, where other rows are."""
    for name in ("_rowid", "_rowaddr"):
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), at[name])
    return rows


def _told(resolution: Resolution) -> str | None:
    return None if resolution is Resolution.FAIL else resolution.value


def _ids(rows: pa.Table) -> pa.Array[Any]:
    return rows["id"].combine_chunks()


def _among(ids: pa.Array[Any], others: pa.Array[Any]) -> Mask:
    found: Mask = pc.is_in(ids, value_set=others).to_numpy(zero_copy_only=False)
    return found


def _of(rows: pa.Table, ids: pa.Array[Any], *, present: bool = False) -> pa.Table:
    """The rows of these ids, in their order. Every id has one, unless only those present are wanted."""
    places = pc.index_in(ids, value_set=_ids(rows))
    return rows.take(places.drop_null() if present else places)


def _without(rows: pa.Table, ids: pa.Array[Any]) -> pa.Table:
    return rows.filter(pa.array(~_among(_ids(rows), ids)))


def _split(rows: pa.Table, ids: pa.Array[Any]) -> tuple[pa.Table, pa.Table]:
    """The rows whose id is not among ``ids``, and those whose id is."""
    known = _among(_ids(rows), ids)
    return rows.filter(pa.array(~known)), rows.filter(pa.array(known))


def _split_present(rows: pa.Table, ids: pa.Array[Any]) -> tuple[pa.Table, pa.Table]:
    absent, present = _split(rows, ids)
    return present, absent
