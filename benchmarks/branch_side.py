"""Branches: what must not follow the size of a graph or the length of its history, and what may follow the change alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from omnigraph_engine import Graph

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
node Visit { city: String?  seconds: I32? }
"""
HISTORY = 1_000
SMALL, LARGE = 100_000, 10_000_000
CHANGED = 1_000
ADDED = 1_000_000
ROUNDS = 5
CREATIONS = 25

Say = Callable[[str, str, str], None]

_AGES = count()  # so that no two writes of a person are equal


def measure(folder: Path, say: Say) -> None:
    _create(folder, say)
    small, large = (_graph(folder / f"{rows}.omni", rows) for rows in (SMALL, LARGE))
    _first_write(small, large, say)
    _merge(small, large, say)
    _fast_forward(large, say)


def _create(folder: Path, say: Say) -> None:
    """In turn on a graph with little history and on one with much, so that both meet the same moments of the disk."""
    graphs = {commits: Graph.create(folder / f"history{commits}.omni", SCHEMA) for commits in (10, HISTORY)}
    for commits, graph in graphs.items():
        while graph.snapshot().version <= commits:
            graph.load({"Person": _people(graph.snapshot().version, 1)})
    taken: dict[int, list[float]] = {commits: [] for commits in graphs}
    for number in range(CREATIONS):
        for commits, graph in graphs.items():
            taken[commits].append(_timed(lambda: graph.branches.create(f"b{number}")))  # noqa: B023
    early, late = map(median, taken.values())
    say("branch create at 10 commits", f"{early * 1e3:.1f} ms", "1.0x")
    say(f"branch create at {HISTORY:,} commits", f"{late * 1e3:.1f} ms", f"{late / early:.2f}x, to be flat")


def _first_write(small: Graph, large: Graph, say: Say) -> None:
    """One row, without a key, so that nothing has to be looked up; and one with a key that nobody may have."""
    writes = {
        "without a key": ("Visit", lambda _: _visits(1)),
        "with a key": ("Person", lambda rows: _people(2 * rows, 1)),
    }
    for kind, (table, row) in writes.items():
        seconds = []
        for graph, rows in ((small, SMALL), (large, LARGE)):
            taken = []
            for number in range(ROUNDS):
                branch = f"first{number}"
                graph.branches.create(branch)
                taken.append(_timed(lambda: graph.load({table: row(rows)}, branch=branch)))  # noqa: B023
                graph.branches.delete(branch)
            seconds.append(median(taken))
        _pair(say, f"first write on a branch, a row {kind}", seconds, "independent of the size")


def _merge(small: Graph, large: Graph, say: Say) -> None:
    seconds = []
    for graph, rows in ((small, SMALL), (large, LARGE)):
        taken = []
        for number in range(ROUNDS):
            branch = f"merge{number}"
            graph.branches.create(branch)
            step = rows // CHANGED
            graph.load({"Person": _people(number, CHANGED, step)}, branch=branch, mode="merge")
            graph.load({"Person": _people(number + step // 2, CHANGED, step)}, mode="merge")
            taken.append(_timed(lambda: graph.merge(branch)))  # noqa: B023
            graph.branches.delete(branch)
        seconds.append(median(taken))
    _pair(say, f"merge of {CHANGED:,} changed rows", seconds, "target at most 2x")


def _fast_forward(graph: Graph, say: Say) -> None:
    graph.branches.create("grown")
    written = _timed(lambda: graph.load({"Person": _people(2 * LARGE, ADDED)}, branch="grown"))
    merged = _timed(lambda: graph.merge("grown"))
    say(f"writing {ADDED:,} new rows on a branch", f"{written:.2f} s", "1.0x")
    say("fast-forward of them", f"{merged:.3f} s", f"{merged / written:.3f}x, target at most 0.3x")


def _pair(say: Say, what: str, seconds: list[float], remark: str) -> None:
    small, large = seconds
    say(f"{what}, {SMALL:,} rows", f"{small * 1e3:.0f} ms", "1.0x")
    say(f"{what}, {LARGE:,} rows", f"{large * 1e3:.0f} ms", f"{large / small:.2f}x, {remark}")


def _graph(uri: Path, rows: int) -> Graph:
    graph = Graph.create(uri, SCHEMA)
    with graph.transaction() as transaction:
        transaction.load("Person", _reader(lambda start: _people(start, SMALL), rows))
        transaction.load("Visit", _reader(lambda _: _visits(SMALL), rows))
    return graph


def _reader(made: Callable[[int], pa.Table], rows: int) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, SMALL):
            yield from made(start).to_batches()

    return pa.RecordBatchReader.from_batches(made(0).schema, batches())


def _visits(rows: int) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {"city": np.char.add("city-", (numbers % 1000).astype(str)), "seconds": pa.array(numbers, pa.int32())}
    )


def _people(start: int, count: int, step: int = 1) -> pa.Table:
    numbers = np.arange(start, start + count * step, step)
    names = pa.array(np.char.add("person-", numbers.astype(str)))
    return pa.table(
        {
            "name": names,
            "age": pa.array(numbers % 100 + next(_AGES), pa.int32()),
            "city": pa.array(np.char.add("city-", (numbers % 1000).astype(str))),
        }
    )


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
