"""A writer in a process of its own: ``staging_child.py ROOT MODE BRANCH``, its failpoints as the environment says."""

from __future__ import annotations

import sys

import pyarrow as pa
from omnigraph_engine.graph import Graph
from omnigraph_engine.write.load import LoadMode


def main() -> None:
    root, mode, branch = sys.argv[1:]
    graph = Graph.open(root)
    names = {"append": ["Child"], "merge": ["Ada", "Child"], "overwrite": ["Ada", "Bob", "Child"]}[mode]
    rows = pa.table({"name": names, "age": pa.array([1] * len(names), pa.int32())})
    load = graph.begin_load(branch)
    part = load.stage_part("node:Person", rows.to_batches(), LoadMode(mode))
    assert part is not None
    staged = load.gather("node:Person", [part], LoadMode(mode))
    assert staged is not None
    load.commit([staged])


if __name__ == "__main__":
    main()
