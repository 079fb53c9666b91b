"""A short run of chaos: writers that are killed, stopped and failed leave nothing that the oracle objects to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHAOS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chaos.py")


@pytest.mark.parametrize("seed", [1, 2])
def test_every_acknowledged_commit_stands_once_and_no_failed_one_does(seed: int) -> None:
    run = [sys.executable, CHAOS, "--seeds", str(seed), "--writers", "4", "--operations", "10"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
