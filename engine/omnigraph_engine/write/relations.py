"""Rules that relate rows to each other: keys, ``@unique``, endpoints, ``@card``. One evaluator for every writer.

It looks at what is staged and at the tables as one ``WriteTransaction`` pins them. Every table it decides by is remembered in
the transaction's read set. Given the view of an earlier attempt it looks only at what has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_engine.commit.transaction import WriteTransaction
from omnigraph_engine.compute import pc
from omnigraph_engine.errors import (
    CardinalityViolation,
    DuplicateKey,
    MissingEndpoint,
    UniqueViolation,
)
from omnigraph_engine.schema.model import EdgeType, TableType, Unique
from omnigraph_engine.tables.buckets import pair_up
from omnigraph_engine.tables.numbers import THREADS
from omnigraph_engine.tables.predicates import among
from omnigraph_engine.tables.readback import scan_staged
from omnigraph_engine.tables.staged import StagedWrite, StageKind
from omnigraph_engine.tables.streams import PLACED, placed_keys
from omnigraph_engine.tables.table import Table, TableDelta
from omnigraph_engine.tables.unique_text import unique_text
from omnigraph_engine.write.quick_look import all_known, all_new

SHOWN = 20
"""How many offending values an error carries; its count is always the full one."""

PUSHED_KEYS = 256  # up to this many keys are looked up in a table; for more the whole column is streamed
SMALL_WRITE = 10_000  # rows up to which a write's keys are held in memory
CHUNK_ROWS = 1_000_000

_KEY = pa.schema([pa.field("key", pa.string())])
_KEY_AND_ID = pa.schema([pa.field("key", pa.string()), pa.field("id", pa.string())])
_KEY_AND_END = _KEY.append(pa.field("end", pa.string()))
_WEIGHED = _KEY.append(pa.field("weight", pa.int64()))


class RelationChecks:
    """The rules between rows, for one attempt to commit what is staged."""

    def __init__(
        self,
        transaction: WriteTransaction,
        staged: Mapping[str, StagedWrite],
        *,
        since: WriteTransaction | None = None,
    ) -> None:
        self._transaction = transaction
        self._staged = staged
        self._since = since
        self._small: dict[str, list[pa.RecordBatch]] = {}
        self._types: dict[str, TableType] = {
            table.table_key: table for table in transaction.accepted.catalog.table_types()
        }

    def run(self) -> None:
        """Returns only when every rule between rows holds once the staged writes are committed.

        Raises:
            DuplicateKey, UniqueViolation, MissingEndpoint, CardinalityViolation: ``details`` has type, property, rule,
                the number of offending values and the first of them.
        """
        for table_key, write in self._staged.items():
            self._check_ids(table_key, write)
            for rule in self._types[table_key].constraints:
                if isinstance(rule, Unique):
                    self._check_unique(table_key, write, rule)
        self._check_endpoints()
        for edge in self._transaction.accepted.catalog.edges.values():
            if edge.table_key in self._staged and (edge.cardinality.min or edge.cardinality.max is not None):
                self._check_cardinality(edge, self._staged[edge.table_key])

    def dangling(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Per staged edge table which of its rows, in their order, name a node that will not exist; none when all will."""
        found: dict[str, npt.NDArray[np.bool_]] = {}
        for edge in self._transaction.accepted.catalog.edges.values():
            write = self._staged.get(edge.table_key)
            if write is None:
                continue
            lost = np.zeros(_rows_of(write), np.bool_)
            for role, node_type in (("src", edge.from_type), ("dst", edge.to_type)):
                ends = placed_keys(self._rows(write, [role]))
                living = chain.from_iterable(self._ids_after(f"node:{node_type}", None))
                for incoming, nodes in pair_up(ends, living, PLACED, _KEY):
                    missing = _strangers(incoming["key"], nodes)
                    lost[incoming["place"].filter(pc.is_in(incoming["key"], value_set=missing)).to_numpy()] = True
            if lost.any():
                found[edge.table_key] = lost
        return found

    # -- keys -------------------------------------------------------------------------------------------------

    def _check_ids(self, table_key: str, write: StagedWrite) -> None:
        if write.minted_ids:
            return
        came = write.kind is StageKind.APPEND and not self._nothing_came(table_key)
        only = among("id", self._few(write, "id")) if came else None
        stored = partial(self._stored_ids, write, only) if came else list
        if not all_new(self._streams(write, "id"), stored(), rows=_rows_of(write)):
            self._look_at_ids(table_key, write, chain.from_iterable(stored()))

    def _look_at_ids(self, table_key: str, write: StagedWrite, stored: Iterable[pa.RecordBatch]) -> None:
        repeated, taken = _Offenders(), _Offenders()
        for given, existing in pair_up(self._incoming(write, ["id"], _KEY), stored, _KEY, _KEY):
            repeated.add(_repeated(given["key"]))
            taken.add(_members(existing, given["key"], _KEY)["key"])
        if repeated.count:
            raise DuplicateKey(
                f"{table_key}: {repeated.count} id(s) occur more than once in the data: {repeated}.",
                details=self._details(table_key, "id", "key", repeated),
                hint="Keep one row per id before loading.",
            )
        if taken.count:
            raise DuplicateKey(
                f"{table_key}: {taken.count} id(s) exist already: {taken}.",
                details=self._details(table_key, "id", "key", taken),
                hint='Load with mode="merge" to replace existing rows.',
            )

    # -- @unique ----------------------------------------------------------------------------------------------

    def _check_unique(self, table_key: str, write: StagedWrite, rule: Unique) -> None:
        name = ", ".join(rule.columns)
        columns = [*rule.columns, "id"]
        came = write.kind is not StageKind.OVERWRITE and not self._nothing_came(table_key)
        stored = (
            (_with_unique_text(batch, rule.columns) for batch in self._scan(table_key, columns)) if came else iter(())
        )
        incoming = (_with_unique_text(batch, rule.columns) for batch in self._rows(write, columns))
        repeated, taken = _Offenders(), _Offenders()
        for given, existing in pair_up(incoming, stored, _KEY_AND_ID, _KEY_AND_ID):
            if self._since is None:
                repeated.add(_repeated(given["key"]))
            taken.add(self._not_replaced(write, _members(existing, given["key"], _KEY_AND_ID), given)["key"])
        if repeated.count:
            raise self._not_unique(table_key, name, repeated, "occur more than once in the data")
        if taken.count:
            raise self._not_unique(table_key, name, taken, "are taken by other rows")

    def _not_replaced(self, write: StagedWrite, taken: pa.Table, given: pa.Table) -> pa.Table:
        """Of the stored rows that hold a wanted value, those that stay: the write replaces the others."""
        if write.kind is not StageKind.UPSERT or not taken.num_rows:
            return taken
        taken = taken.filter(pc.invert(pc.is_in(taken["id"], value_set=given["id"].combine_chunks())))
        if not taken.num_rows:
            return taken
        return self._without_staged_ids(write, taken)

    def _without_staged_ids(self, write: StagedWrite, rows: pa.Table) -> pa.Table:
        replaced = pa.chunked_array([], pa.string())
        for batch in self._rows(write, ["id"]):
            hit = batch.column(0).filter(pc.is_in(batch.column(0), value_set=rows["id"].combine_chunks()))
            replaced = pa.chunked_array([*replaced.chunks, hit], pa.string())
        return rows.filter(pc.invert(pc.is_in(rows["id"], value_set=replaced.combine_chunks())))

    def _not_unique(self, table_key: str, name: str, values: _Offenders, what: str) -> UniqueViolation:
        return UniqueViolation(
            f"{table_key}: @unique({name}): {values.count} value(s) {what}: {values}.",
            details=self._details(table_key, name, "unique", values),
            hint="Every row needs a value of its own, or a null.",
        )

    # -- endpoints --------------------------------------------------------------------------------------------

    def _check_endpoints(self) -> None:
        """The ids of a node type are read once for all edges that lead to it or from it."""
        ends: dict[str, list[_Ends]] = {}
        for edge in self._transaction.accepted.catalog.edges.values():
            for role, node_key in (("src", f"node:{edge.from_type}"), ("dst", f"node:{edge.to_type}")):
                ends.setdefault(node_key, []).extend(self._ends(edge, role, node_key))
        for node_key, demanded in ends.items():
            few = sorted({value for end in demanded for value in end.few})
            only = among("id", few) if all(end.few for end in demanded) and len(few) <= PUSHED_KEYS else None
            rows = sum(end.rows for end in demanded)
            incoming = [stream for end in demanded for stream in end.streams()]
            if rows and not all_known(incoming, self._ids_after(node_key, only, _streams_for(rows)), rows=rows):
                for end in demanded:
                    self._look_at_ends(end, node_key, only)

    def _ends(self, edge: EdgeType, role: str, node_key: str) -> Iterator[_Ends]:
        """The endpoints that the staged writes bring, and those that they put in doubt."""
        write, node_write = self._staged.get(edge.table_key), self._staged.get(node_key)
        shrunk = node_write is not None and node_write.kind is StageKind.OVERWRITE
        if write is not None and (self._since is None or shrunk or self._delta_of(node_key).lost):
            few = [] if shrunk else self._few(write, role)
            yield _Ends(edge, role, partial(self._streams, write, role), _rows_of(write), few)
        if shrunk and (write is None or write.kind is not StageKind.OVERWRITE):
            # That there are none decides as well, so the table must not move before the publish.
            table = self._transaction.read(edge.table_key)
            rows = self._transaction.published(edge.table_key).row_count
            yield _Ends(edge, role, lambda: [self._remaining_ends(table, role, write)], rows, [])

    def _remaining_ends(self, table: Table, role: str, write: StagedWrite | None) -> Iterator[pa.RecordBatch]:
        """Those of edges that the write leaves alone: they still need their nodes when it replaces these."""
        if write is None or write.kind is StageKind.APPEND:
            yield from (_renamed(batch, _KEY) for batch in table.scan([role]))
            return
        standing = (_renamed(batch, _KEY_AND_END) for batch in table.scan(["id", role]))
        for given, existing in pair_up(self._incoming(write, ["id"], _KEY), standing, _KEY, _KEY_AND_END):
            replacing = given["key"].combine_chunks()
            for batch in existing:
                kept = batch.filter(pc.invert(pc.is_in(batch["key"], value_set=replacing)))
                yield _renamed(kept.select(["end"]), _KEY)

    def _look_at_ends(self, ends: _Ends, node_key: str, only: str | None) -> None:
        missing = _Offenders()
        nodes_after = chain.from_iterable(self._ids_after(node_key, only))
        for incoming, nodes in pair_up(chain.from_iterable(ends.streams()), nodes_after, _KEY, _KEY):
            missing.add(_strangers(incoming["key"], nodes))
        if missing.count:
            edge, role, node_type = ends.edge, ends.role, node_key.split(":", 1)[1]
            raise MissingEndpoint(
                f"{edge.table_key}.{role}: {missing.count} value(s) are not the id of any {node_type}: {missing}.",
                details=self._details(edge.table_key, role, role, missing),
                hint=f"Load the {node_type} rows first, or in the same call.",
            )

    def _ids_after(self, node_key: str, only: str | None, streams: int = 1) -> list[Iterator[pa.RecordBatch]]:
        """Streams of the ids that the node table will hold once the staged writes are committed."""
        write = self._staged.get(node_key)
        coming = [] if write is None else self._streams(write, "id")
        if write is not None and write.kind is StageKind.OVERWRITE:
            return coming
        return coming + _scans(self._transaction.read(node_key), None, only, streams)

    # -- @card ------------------------------------------------------------------------------------------------

    def _check_cardinality(self, edge: EdgeType, write: StagedWrite) -> None:
        """How many edges each touched source has afterwards; touched is also a source that an edge has left."""
        if self._nothing_came(edge.table_key) and not self._delta_of(edge.table_key).lost:
            return
        added = (_weighed(batch.column(0), 1) for batch in self._incoming(write, ["src"], _KEY))
        if write.kind is StageKind.OVERWRITE:
            left: Iterator[pa.RecordBatch] = (
                _weighed(batch.column(0), 0) for batch in self._transaction.read(edge.table_key).scan(["src"])
            )
            stored: Iterable[pa.RecordBatch] = ()
        else:
            left = self._replaced_sources(edge.table_key, write) if write.kind is StageKind.UPSERT else iter(())
            few = self._few(write, "src") if write.kind is StageKind.APPEND else []
            scanned = self._transaction.read(edge.table_key).scan(["src"], among("src", few))
            stored = (_weighed(batch.column(0), 1) for batch in scanned)
        sources, counts = _Offenders(), _Offenders()
        for touched, existing in pair_up(chain(added, left), stored, _WEIGHED, _WEIGHED):
            before = _members(existing, pc.unique(touched["key"]), _WEIGHED)
            counted = pa.concat_tables([touched, before]).group_by("key").aggregate([("weight", "sum")])
            offending = self._outside_bounds(edge, counted)
            sources.add(offending["key"])
            counts.add(offending["weight_sum"])
        if sources.count:
            bound = f"{edge.cardinality.min}..{'' if edge.cardinality.max is None else edge.cardinality.max}"
            shown = ", ".join(f"{key!r} ({number})" for key, number in zip(sources.first, counts.first, strict=True))
            raise CardinalityViolation(
                f"{edge.table_key}: @card({bound}): {sources.count} source(s) would have another number of edges: {shown}.",
                details={**self._details(edge.table_key, "src", "card", sources), "counts": counts.first},
            )

    def _replaced_sources(self, table_key: str, write: StagedWrite) -> Iterator[pa.RecordBatch]:
        rows = self._transaction.read(table_key).scan(["id", "src"], among("id", self._few(write, "id")))
        stored = (pa.RecordBatch.from_arrays([batch["id"], batch["src"]], schema=_KEY_AND_ID) for batch in rows)
        for incoming, existing in pair_up(self._incoming(write, ["id"], _KEY), stored, _KEY, _KEY_AND_ID):
            for batch in _members(existing, incoming["key"], _KEY_AND_ID).to_batches():
                yield _weighed(batch.column(1), -1)

    def _outside_bounds(self, edge: EdgeType, counted: pa.Table) -> pa.Table:
        """Of the counted sources those that have too few or too many edges, and still exist."""
        low, high = edge.cardinality.min, edge.cardinality.max
        count = counted["weight_sum"]
        broken = pc.less(count, low)
        if high is not None:
            broken = pc.or_(broken, pc.greater(count, high))
        offending = counted.filter(broken)
        if not offending.num_rows:
            return offending
        living = chain.from_iterable(self._ids_after(f"node:{edge.from_type}", None))
        gone = _strangers(offending["key"], living)
        return offending.filter(pc.invert(pc.is_in(offending["key"], value_set=gone)))

    # -- what the rules read ----------------------------------------------------------------------------------

    def _incoming(self, write: StagedWrite, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in self._rows(write, columns):
            yield _renamed(batch, schema)

    def _rows(self, write: StagedWrite, columns: Sequence[str]) -> Iterable[pa.RecordBatch]:
        """Columns of the staged rows. A small write is read once for all rules, a large one is streamed for each."""
        table = self._transaction.table(write.table_key)
        if _rows_of(write) > SMALL_WRITE:
            return scan_staged(table, write, columns)
        if write.table_key not in self._small:
            kind = self._types[write.table_key]
            wanted = {"id", *(("src", "dst") if isinstance(kind, EdgeType) else ())}
            wanted.update(name for rule in kind.constraints if isinstance(rule, Unique) for name in rule.columns)
            self._small[write.table_key] = list(scan_staged(table, write, sorted(wanted)))
        return [batch.select(columns) for batch in self._small[write.table_key]]

    def _streams(self, write: StagedWrite, column: str) -> list[Iterator[pa.RecordBatch]]:
        """As ``_incoming``, of one column; a large write is read side by side."""
        count = _streams_for(_rows_of(write))
        parts = [replace(write, new_fragments=write.new_fragments[number::count]) for number in range(count)]
        return [self._incoming(part, [column], _KEY) for part in parts]

    def _stored_ids(self, write: StagedWrite, only: str | None) -> list[Iterator[pa.RecordBatch]]:
        """Streams of stored ids: of all rows, or of those that have come since the earlier view."""
        fragments = None if self._since is None else self._delta_of(write.table_key).changed
        return _scans(self._transaction.read(write.table_key), fragments, only, _streams_for(_rows_of(write)))

    def _scan(self, table_key: str, columns: Sequence[str], only: str | None = None) -> Iterator[pa.RecordBatch]:
        """Stored rows: all of them, or those that have come since the earlier view."""
        table = self._transaction.read(table_key)
        fragments = None if self._since is None else self._delta_of(table_key).changed
        yield from table.scan(columns, only, fragment_ids=fragments)

    def _few(self, write: StagedWrite, column: str) -> list[str]:
        """The values of a column, when the write has so few rows that looking them up beats reading a table."""
        if _rows_of(write) > PUSHED_KEYS:
            return []
        batches = self._rows(write, [column])
        return sorted({str(value) for batch in batches for value in batch.column(0).to_pylist()})

    def _nothing_came(self, table_key: str) -> bool:
        return self._since is not None and not self._delta_of(table_key).changed

    def _delta_of(self, table_key: str) -> TableDelta:
        if self._since is None:
            return TableDelta((), lost=True)
        before, now = self._since.table(table_key), self._transaction.read(table_key)
        return TableDelta((), lost=False) if before.ref == now.ref else now.delta_since(before)

    def _details(self, table_key: str, name: str, rule: str, values: _Offenders) -> dict[str, Any]:
        return {
            "type": self._types[table_key].name,
            "table_key": table_key,
            "property": name,
            "rule": rule,
            "count": values.count,
            "values": values.first,
        }


@dataclass(frozen=True)
class _Ends:
    """Endpoints of edges of one type, in one role."""

    edge: EdgeType
    role: str
    streams: Callable[[], list[Iterator[pa.RecordBatch]]]
    rows: int
    few: Sequence[str]  # all of them, where they are so few that looking them up beats reading the nodes


class _Offenders:
    """Values that break a rule, gathered from bucket after bucket: all are counted, the first are kept."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Any] = []

    def __str__(self) -> str:
        more = ", ..." if self.count > SHOWN else ""
        return ", ".join(repr(value) for value in self.first) + more

    def add(self, values: Any) -> None:
        self.count += len(values)
        self.first.extend(values.slice(0, SHOWN - len(self.first)).to_pylist())


def _rows_of(write: StagedWrite) -> int:
    return write.rows_inserted + write.rows_updated


def _streams_for(rows: int) -> int:
    return THREADS if rows > SMALL_WRITE else 1


def _scans(
    table: Table, fragments: Sequence[int] | None, only: str | None, streams: int
) -> list[Iterator[pa.RecordBatch]]:
    """The ids of these fragments, or of all, in streams that may be read side by side."""
    if streams == 1:
        return [map(_as_key, table.scan(["id"], only, fragment_ids=fragments))]
    chosen = [part.fragment_id for part in table.fragments()] if fragments is None else fragments
    shares = [chosen[number::streams] for number in range(min(streams, len(chosen)))]
    return [map(_as_key, table.scan(["id"], only, fragment_ids=share)) for share in shares]


def _as_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return _renamed(batch, _KEY)


def _renamed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _weighed(keys: pa.Array[Any], weight: int) -> pa.RecordBatch:
    weights = pa.repeat(pa.scalar(weight, pa.int64()), len(keys))
    return pa.RecordBatch.from_arrays([keys, weights], schema=_WEIGHED)


def _with_unique_text(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """One text per row that has all members; a row with a null among them is exempt."""
    for name in columns:
        batch = batch.filter(batch.column(name).is_valid())
    text = unique_text([batch.column(name) for name in columns])
    return pa.RecordBatch.from_arrays([text, batch.column("id")], schema=_KEY_AND_ID)


def _repeated(keys: pa.ChunkedArray[Any]) -> Any:
    if len(keys) < 2:
        return keys.slice(0, 0)
    counted = pc.value_counts(keys)
    return counted.field("values").filter(pc.greater(counted.field("counts"), 1))


def _chunks(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= CHUNK_ROWS:
            yield pa.Table.from_batches(held, schema)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


def _members(batches: Iterable[pa.RecordBatch], keys: Any, schema: pa.Schema) -> pa.Table:
    """The rows whose key is one of ``keys``."""
    wanted = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    found = [chunk.filter(pc.is_in(chunk.column(0), value_set=wanted)) for chunk in _chunks(batches, schema)]
    return pa.concat_tables(found) if found else schema.empty_table()


def _strangers(keys: pa.ChunkedArray[Any], known: Iterable[pa.RecordBatch]) -> Any:
    """The distinct keys that are not among the known ones."""
    missing: Any = keys
    for chunk in _chunks(known, _KEY):
        if not len(missing):
            break
        missing = missing.filter(pc.invert(pc.is_in(missing, value_set=chunk["key"].combine_chunks())))
    return pc.unique(missing)
