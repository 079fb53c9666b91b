"""A short run of chaos: writers that are killed, stopped and failed leave nothing that the oracle objects to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHAOS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chaos.py")


@pytest.mark.parametrize(("seed", "writers", "branchers"), [(1, 4, 0), (2, 2, 2)])
def test_every_acknowledged_commit_stands_once_and_no_failed_one_does(seed: int, writers: int, branchers: int) -> None:
    run = [sys.executable, CHAOS, "--seeds", str(seed), "--operations", "10"]
    run += ["--writers", str(writers), "--branchers", str(branchers)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
