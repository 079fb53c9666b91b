"""Sessions of other kinds: Spark Connect, whose client cannot reach the graph, and a cluster of executor processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

SCRIPTS = Path(__file__).parent / "scripts"
WORK = Path(pyspark.__file__).parent / "work"  # where a local cluster's executors leave their logs


def environment() -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


@contextmanager
def server(master: str = "local[2]", **more: str) -> Iterator[str]:
    started = subprocess.Popen(
        [sys.executable, SCRIPTS / "connect_server.py", master],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environment(), **more},
    )
    try:
        assert started.stdout is not None
        yield started.stdout.readline().strip()
    finally:
        started.communicate(timeout=60)


@pytest.mark.spark
def test_a_connect_client_that_cannot_reach_the_graph_does_all_that_a_classic_session_does(tmp_path: Path) -> None:
    with server() as port:
        done = subprocess.run(
            [sys.executable, SCRIPTS / "connect_client.py", port, tmp_path / "graph.omni"],
            check=False,
            capture_output=True,
            text=True,
            cwd=SCRIPTS,
            timeout=240,
            env=environment(),
        )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.spark
def test_what_a_worker_did_that_died_before_it_could_answer_is_done_once_and_answered(tmp_path: Path) -> None:
    dies = "sidecar.disarm:after=kill;branch.create:after=kill;branch.delete:after=kill"
    with server("local[2,3]", OMNIGRAPH_FAILPOINTS=dies) as port:
        done = subprocess.run(
            [sys.executable, SCRIPTS / "connect_retries.py", port, tmp_path / "graph.omni"],
            check=False,
            capture_output=True,
            text=True,
            cwd=SCRIPTS,
            timeout=240,
            env=environment(),
        )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.spark
def test_executors_in_processes_of_their_own_write_and_read(tmp_path: Path) -> None:
    there_before = WORK.exists()
    try:
        done = subprocess.run(
            [sys.executable, SCRIPTS / "on_a_cluster.py", tmp_path],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=240,
            env=environment(),
        )
    finally:
        if not there_before:
            shutil.rmtree(WORK, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-4000:]
