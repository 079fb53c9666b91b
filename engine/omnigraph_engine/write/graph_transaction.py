"""Several loads, one commit: what users hold between the first row and the publish."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

import pyarrow as pa

from omnigraph_engine.errors import InvalidArgument, UnknownType, did_you_mean
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.write.jsonl import read_json_lines
from omnigraph_engine.write.load import CommitReceipt, Load, LoadMode

ArrowData = pa.Table | pa.RecordBatch | pa.RecordBatchReader
JsonLines = str | os.PathLike[str] | Iterable[bytes | str]

FLUSH_ROWS = 100_000  # rows of one type that JSON lines collect before they are staged


class Block:
    """The ``with`` block of a transaction: its end is what commits, so nothing may be loaded before it or after it."""

    def __init__(self) -> None:
        self._state = "not entered"

    def enter(self) -> None:
        if self._state != "not entered":
            raise InvalidArgument("The transaction's block was entered already.", hint=_BLOCK)
        self._state = "inside"

    def leave(self) -> None:
        self._state = "over"

    def check_inside(self) -> None:
        if self._state == "not entered":
            raise InvalidArgument("The transaction has not begun: nothing would be committed.", hint=_BLOCK)
        if self._state == "over":
            raise InvalidArgument("The transaction is over: its block has ended.", hint=_BLOCK)


_BLOCK = "Load inside of one with block: with graph.transaction() as tx: tx.load(...). Its end commits."


class GraphTransaction:
    """Everything that is loaded inside the ``with`` block becomes visible at its end, as one commit.

    An exception inside leaves nothing visible. Rows are staged as they come, so memory does not follow their number.

    Attributes:
        receipt: What the commit did; None before the block has ended.
    """

    def __init__(self, load: Load, accepted: AcceptedSchema) -> None:
        self._load = load
        self._accepted = accepted
        self._modes: list[tuple[str, LoadMode]] = []
        self._parts: list[StagedWrite] = []
        self._block = Block()
        self.receipt: CommitReceipt | None = None

    def __enter__(self) -> GraphTransaction:
        self._block.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._block.leave()
        if kind is None:
            self.receipt = self._load.commit(self._parts)

    def load(self, type_name: str, data: ArrowData, mode: LoadMode | str = LoadMode.APPEND) -> None:
        """Stages rows of one type. Only ``append`` may be repeated for a type within one transaction."""
        self._block.check_inside()
        self._stage(self._table_key(type_name), _batches(data), load_mode(mode))

    def load_jsonl(self, lines: JsonLines, mode: LoadMode | str = LoadMode.APPEND) -> None:
        """Stages a file of JSON lines, by its path, or the lines themselves; the lines say which type they are of."""
        self._block.check_inside()
        chosen = load_mode(mode)
        held: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        staged: dict[str, LoadMode] = {}
        for table_key, batch in read_json_lines(_lines(lines), self._accepted):
            held[table_key].append(batch)
            # A merge is staged at once: two of them would not know of each other's rows.
            if chosen is not LoadMode.MERGE and sum(part.num_rows for part in held[table_key]) >= FLUSH_ROWS:
                self._stage(table_key, held.pop(table_key), chosen, goes_on=table_key in staged)
                staged[table_key] = chosen
        for table_key, batches in held.items():
            self._stage(table_key, batches, chosen, goes_on=table_key in staged)

    def _stage(
        self, table_key: str, batches: Iterable[pa.RecordBatch], mode: LoadMode, *, goes_on: bool = False
    ) -> None:
        if self._load.replayed is not None:
            return
        if not goes_on:
            self._modes.append((table_key, mode))
            refuse_mixed_modes(self._modes)
        staged = self._load.stage(table_key, batches, mode)
        if staged is not None:
            self._parts.append(staged)

    def _table_key(self, name: str) -> str:
        types = {table.name: table.table_key for table in self._accepted.catalog.table_types()}
        if name in types:
            return types[name]
        if name in types.values():
            return name
        raise UnknownType(
            f"The schema has no node or edge type '{name}'.", details={"type": name}, hint=did_you_mean(name, types)
        )


def refuse_mixed_modes(loads: Sequence[tuple[str, LoadMode]]) -> None:
    """Two loads of one table would not know of each other's rows, unless both only add."""
    seen: dict[str, LoadMode] = {}
    for table_key, mode in loads:
        earlier = seen.get(table_key)
        seen[table_key] = mode
        if earlier is not None and (earlier, mode) != (LoadMode.APPEND, LoadMode.APPEND):
            raise InvalidArgument(
                f"{table_key} is loaded twice in one transaction, with {earlier.value} and {mode.value}.",
                details={"table_key": table_key, "modes": [earlier.value, mode.value]},
                hint="Load each type once, or use two transactions; only append may be repeated.",
            )


def load_mode(mode: LoadMode | str) -> LoadMode:
    try:
        return LoadMode(mode)
    except ValueError as error:
        raise InvalidArgument(f"There is no load mode '{mode}'.", hint="Use append, merge or overwrite.") from error


def _batches(data: ArrowData) -> Iterable[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        return data.to_batches()
    return data


def _lines(lines: JsonLines) -> Iterator[bytes | str]:
    if isinstance(lines, str | os.PathLike):
        with open(lines, "rb") as file:
            yield from file
    else:
        yield from lines
