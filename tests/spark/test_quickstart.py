"""The first thing a newcomer runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


@pytest.mark.spark
def test_the_quickstart_writes_a_graph_and_shows_it(tmp_path: Path) -> None:
    """As ``python examples/quickstart.py`` in somebody's own folder, with nothing set up for Spark's workers."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [sys.executable, QUICKSTART, tmp_path], check=True, capture_output=True, text=True, cwd=tmp_path, env=bare
    )
    assert "fork-safe" not in done.stderr
    assert "Person ──Knows──▶ Person" in done.stdout
    assert "Snapshot manifest:main:v5, after 5 commits" in done.stdout
    for line in ("node:Person    version 2, rows: 3", "edge:Knows     version 2, rows: 2"):
        assert line in done.stdout
    rows = [line.replace(" ", "") for line in done.stdout.splitlines() if line.startswith("|")]
    assert {"|Ada|1815|Ada|", "|Ada|Charles|1833|AnalyticalEngine|"} <= set(rows)
    assert done.stdout.rstrip().splitlines()[-1] == f"Next, try: omnigraph commit list {tmp_path}/pioneers.omni"
