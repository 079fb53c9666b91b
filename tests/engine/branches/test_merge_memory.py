"""Merging takes memory for a bucket of rows, however many rows there are and however wide they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from omnigraph_engine.graph import Graph

WIDE = 20_000


def test_merging_wide_rows_takes_less_memory_than_they_have_bytes() -> None:
    """15,000 rows on either side, of which 900 MB are read and 300 MB written; three times as many take hardly more."""
    script = Path(__file__).parents[1] / "memory_check.py"
    done = subprocess.run([sys.executable, str(script), "merge", "15000"], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["grown"] < 1_000 * 2**20


def test_wide_rows_are_read_few_at_a_time(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path / "g", "node Doc { name: String @key  body: String }")
    graph.load({"Doc": pa.table({"name": list(map(str, range(1_000))), "body": ["x" * WIDE] * 1_000})})
    batches = list(graph.snapshot().table("Doc").table.scan())
    assert sum(batch.num_rows for batch in batches) == 1_000
    assert max(batch.nbytes for batch in batches) < 4 * 2**20
