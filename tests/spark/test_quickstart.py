"""The first thing a newcomer runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


@pytest.mark.spark
def test_the_quickstart_tours_a_graph(tmp_path: Path) -> None:
    """As ``python examples/quickstart.py`` in somebody's own folder, with nothing set up for Spark's workers."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [sys.executable, QUICKSTART, tmp_path], check=False, capture_output=True, text=True, cwd=tmp_path, env=bare
    )
    assert done.returncode == 0, done.stderr[-4000:]
    noise = [line for line in done.stderr.splitlines() if "incubator" not in line]  # a notice of the JVM itself
    assert noise == []

    parts = done.stdout.split("\n---")  # each heading is underlined
    created, loaded, read, merged, back, failed, branched, tables = (part.replace(" ", "") for part in parts[1:])
    assert "Person──Knows──▶Person" in created
    assert all(
        line in loaded for line in ("edge:Knows1rows", "edge:WorkedOn2rows", "node:Machine1rows", "node:Person2rows")
    )
    assert "|Charles|1791|" in read
    assert "|Ada|Charles|AnalyticalEngine|" in read
    assert "|Ada|1815|" in merged
    assert "|Mary|1781|" in merged
    assert "|Ada|1816|" in back
    assert "Mary" not in back
    assert "MissingEndpoint:OG4005edge:Knows.dst" in failed
    assert "3commits,7rows,asbefore" in failed
    assert "|updated|Mary|{Mary,1781,Mary}|{Mary,1780,Mary}|" in branched
    assert "|inserted|Luigi|NULL|{Luigi,1809,Luigi}|" in branched
    assert "Bothhadmoved:mergedinonecommit" in branched
    assert all(line in branched for line in ("|Ada|1815|", "|Grace|1906|", "|Luigi|1809|", "|Mary|1780|"))
    assert all(
        line in tables
        for line in ("|edge:Knows|3|2|", "|edge:WorkedOn|2|2|", "|node:Machine|2|1|", "|node:Person|5|5|")
    )
    assert "neverseen" not in tables
    assert done.stdout.splitlines()[-1] == f"Next, try: omnigraph commit list {tmp_path}/pioneers.omni"
