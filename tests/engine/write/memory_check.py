"""How much memory a load of many rows takes: ``python memory_check.py ROWS``, in a process of its own.

Prints one JSON object: the peak of resident memory before and during the load, in bytes, and how long the load took.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from omnigraph_engine.graph import Graph

BATCH = 50_000
SCHEMA = pa.schema([("name", pa.string())])


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def named(first: int, last: int) -> pa.RecordBatchReader:
    """Ids that come in no order, made as they are asked for."""

    def stream() -> Iterator[pa.RecordBatch]:
        for start in range(first, last, BATCH):
            names = [f"user-{number * 2654435761 % 2**32:010d}" for number in range(start, min(start + BATCH, last))]
            yield pa.RecordBatch.from_arrays([pa.array(names)], schema=SCHEMA)

    return pa.RecordBatchReader.from_batches(SCHEMA, stream())


def measure(rows: int) -> dict[str, float]:
    """Loads ``rows`` new people into a graph that holds a tenth as many."""
    with tempfile.TemporaryDirectory() as folder:
        graph = Graph.create(Path(folder) / "graph.omni", "node Person { name: String @key }")
        graph.load({"Person": named(0, min(rows // 10, BATCH))})
        before, started = peak(), time.perf_counter()
        receipt = graph.load({"Person": named(rows // 10, rows // 10 + rows)})
        if receipt.tables["node:Person"].inserted != rows:
            raise AssertionError(receipt)
        return {"before": before, "peak": peak(), "seconds": time.perf_counter() - started, **receipt.seconds}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))  # noqa: T201 - its answer
