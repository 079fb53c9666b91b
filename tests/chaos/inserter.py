"""Inserts single rows, each as a commit of its own: ``python inserter.py GRAPH TYPE WRITER ROWS``.

Says ``ready`` when the graph is open, starts when its input has a line or ends, and says how long it took.
"""

from __future__ import annotations

import logging
import sys
import time

import pyarrow as pa
from omnigraph_engine.graph import Graph


def main() -> None:
    uri, type_name, writer, rows = sys.argv[1:]
    logging.disable(logging.WARNING)
    graph = Graph.open(uri)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    attempts, started = 0, time.monotonic()
    for number in range(int(rows)):
        receipt = graph.load({type_name: pa.table({"name": [f"{writer}-{number}"]})}, actor=writer)
        attempts += receipt.attempts
    sys.stdout.write(f"{time.monotonic() - started:.3f} {attempts}\n")


if __name__ == "__main__":
    main()
