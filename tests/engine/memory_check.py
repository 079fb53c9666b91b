"""How much memory a verb takes, in a process of its own.

    python memory_check.py load ROWS     new people into a graph that holds a tenth as many
    python memory_check.py merge ROWS    a branch that replaced so many rows of 20 kB, with one that got as many new ones

Prints one JSON object: by how many bytes the peak of resident memory grew during the verb, and how long that took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from omnigraph_engine.graph import Graph

BATCH = 50_000
NAMES = pa.schema([("name", pa.string())])

WIDE_ROW = 20_000
WIDE_BATCH = 500
DOCUMENTS = pa.schema([("name", pa.string()), ("body", pa.string())])


def peak() -> int:
    """Of this process alone; ``getrusage`` would tell that of whoever started it, when that was higher."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024


def grown(act: Callable[[], None]) -> dict[str, float]:
    before, started = peak(), time.perf_counter()
    act()
    return {"grown": peak() - before, "seconds": time.perf_counter() - started}


def named(first: int, last: int) -> pa.RecordBatchReader:
    """Ids that come in no order, made as they are asked for."""

    def stream() -> Iterator[pa.RecordBatch]:
        for start in range(first, last, BATCH):
            names = [f"user-{number * 2654435761 % 2**32:010d}" for number in range(start, min(start + BATCH, last))]
            yield pa.RecordBatch.from_arrays([pa.array(names)], schema=NAMES)

    return pa.RecordBatchReader.from_batches(NAMES, stream())


def load(folder: Path, rows: int) -> dict[str, float]:
    graph = Graph.create(folder / "graph.omni", "node Person { name: String @key }")
    graph.load({"Person": named(0, min(rows // 10, BATCH))})

    def act() -> None:
        receipt = graph.load({"Person": named(rows // 10, rows // 10 + rows)})
        if receipt.tables["node:Person"].inserted != rows:
            raise AssertionError(receipt)

    return grown(act)


def documents(first: int, count: int, mark: str) -> pa.RecordBatchReader:
    """Wide rows that cannot be compressed to nothing, made as they are asked for."""

    def stream() -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(first)
        for start in range(first, first + count, WIDE_BATCH):
            numbers = range(start, min(start + WIDE_BATCH, first + count))
            bodies = [mark + random.bytes(WIDE_ROW // 2).hex() for _ in numbers]
            names = [f"doc-{number}" for number in numbers]
            yield pa.RecordBatch.from_arrays([pa.array(names), pa.array(bodies)], schema=DOCUMENTS)

    return pa.RecordBatchReader.from_batches(DOCUMENTS, stream())


def diverge(folder: Path, rows: int) -> None:
    graph = Graph.create(folder / "graph.omni", "node Doc { name: String @key  body: String }")
    graph.load({"Doc": documents(0, rows, "base")})
    graph.branches.create("dev")
    graph.load({"Doc": documents(0, rows, "dev")}, branch="dev", mode="merge")
    graph.load({"Doc": documents(rows, rows, "main")})


def merge(folder: Path, rows: int) -> dict[str, float]:
    subprocess.run([sys.executable, __file__, "diverge", str(rows), str(folder)], check=True)  # with memory of its own
    graph = Graph.open(folder / "graph.omni")

    def act() -> None:
        told = graph.merge("dev").tables["node:Doc"]
        if (told.updated, told.inserted, told.deleted) != (rows, 0, 0):
            raise AssertionError(told)

    return grown(act)


if __name__ == "__main__":
    verb, count = sys.argv[1], int(sys.argv[2])
    if verb == "diverge":
        diverge(Path(sys.argv[3]), count)
    else:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps({"load": load, "merge": merge}[verb](Path(name), count)))  # noqa: T201 - its answer
