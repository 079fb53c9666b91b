"""Branches: what must not follow the size of a graph or the length of its history, and what may follow the change alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from omnigraph_engine import Graph

SCHEMA = "node Person { name: String @key  age: I32?  city: String? }"
HISTORY = 1_000
SMALL, LARGE = 100_000, 10_000_000
CHANGED = 1_000
ADDED = 1_000_000
ROUNDS = 5

Say = Callable[[str, str, str], None]


def measure(folder: Path, say: Say) -> None:
    _create(folder, say)
    small, large = (_graph(folder / f"{rows}.omni", rows) for rows in (SMALL, LARGE))
    _first_write(small, large, say)
    _merge(small, large, say)
    _fast_forward(large, say)


def _create(folder: Path, say: Say) -> None:
    graph = Graph.create(folder / "history.omni", SCHEMA)
    seconds = []
    for commits in (10, HISTORY):
        while graph.snapshot().version <= commits:
            graph.load({"Person": _people(graph.snapshot().version, 1)})
        seconds.append(median(_timed(lambda n=n: graph.branches.create(f"b{n}")) for n in range(commits, commits + 9)))  # type: ignore[misc]
    early, late = seconds
    say("branch create at 10 commits", f"{early * 1e3:.1f} ms", "1.0x")
    say(f"branch create at {HISTORY:,} commits", f"{late * 1e3:.1f} ms", f"{late / early:.2f}x, to be flat")


def _first_write(small: Graph, large: Graph, say: Say) -> None:
    """The first write forks the table; the second one on the same branch does all the rest again, ids looked up and all."""
    forks = []
    for graph, rows in ((small, SMALL), (large, LARGE)):
        first, second = [], []
        for number in range(ROUNDS):
            branch = f"first{number}"
            graph.branches.create(branch)
            first.append(_timed(lambda: graph.load({"Person": _people(2 * rows, 1)}, branch=branch)))  # noqa: B023
            second.append(_timed(lambda: graph.load({"Person": _people(2 * rows + 1, 1)}, branch=branch)))  # noqa: B023
            graph.branches.delete(branch)
        say(f"first write on a branch, {rows:,} rows", f"{median(first) * 1e3:.0f} ms", "")
        say(f"second write on it, {rows:,} rows", f"{median(second) * 1e3:.0f} ms", "")
        forks.append(median(first) - median(second))
    say(
        "forking, by difference", " and ".join(f"{fork * 1e3:.0f}" for fork in forks) + " ms", "independent of the size"
    )


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
        transaction.load("Person", pa.RecordBatchReader.from_batches(_people(0, 1).schema, _batches(rows)))
    return graph


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, SMALL):
        yield from _people(start, SMALL).to_batches()


def _people(start: int, count: int, step: int = 1) -> pa.Table:
    numbers = np.arange(start, start + count * step, step)
    names = pa.array(np.char.add("person-", numbers.astype(str)))
    return pa.table(
        {
            "name": names,
            "age": pa.array(numbers % 100 + time.time_ns() % 7, pa.int32()),
            "city": pa.array(np.char.add("city-", (numbers % 1000).astype(str))),
        }
    )


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
