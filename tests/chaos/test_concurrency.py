"""Writers that only add rows never see each other: no error reaches a caller, however many of them there are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from omnigraph_engine.graph import Graph

INSERTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inserter.py")
WRITERS, ROWS = 8, 12


def insert_together(graph: Graph, types: Sequence[str]) -> tuple[float, int]:
    """One process for each entry of ``types``, started at the same moment; seconds of the slowest, and attempts in all."""
    processes = [
        subprocess.Popen(
            [sys.executable, INSERTER, graph.uri, name, f"w{number}", str(ROWS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, name in enumerate(types)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        ends = [process.communicate() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    errors = [text for _, text in ends if text]
    assert not errors, errors[0]
    assert [process.returncode for process in processes] == [0] * len(processes)
    spent = [out.split() for out, _ in ends]
    return max(float(seconds) for seconds, _ in spent), sum(int(attempts) for _, attempts in spent)


def names(graph: Graph, type_name: str) -> list[str]:
    return sorted(graph.snapshot().table(type_name).to_arrow(["name"])["name"].to_pylist())


def rows_of(*writers: int) -> list[str]:
    return sorted(f"w{writer}-{number}" for writer in writers for number in range(ROWS))


def say(capsys: pytest.CaptureFixture[str], what: str, seconds: float, attempts: int) -> None:
    with capsys.disabled():
        commits = WRITERS * ROWS
        text = f"{commits / seconds:.1f} commits/s, {attempts / commits:.2f} attempts each"
        sys.stdout.write(f"\n{WRITERS} writers, {what}: {text}\n")


def test_eight_processes_inserting_rows_into_one_table_all_succeed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph.create(tmp_path / "one.omni", "node Person { name: String @key }")
    seconds, attempts = insert_together(graph, ["Person"] * WRITERS)

    assert names(graph, "Person") == rows_of(*range(WRITERS))
    made = Counter(commit.actor for commit in graph.commits.list() if commit.actor is not None)
    assert {actor: number for actor, number in made.items() if actor.startswith("w")} == {
        f"w{number}": ROWS for number in range(WRITERS)
    }
    say(capsys, "one table", seconds, attempts)


def test_eight_processes_inserting_rows_into_eight_tables_all_succeed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = [f"Person{number}" for number in range(WRITERS)]
    graph = Graph.create(tmp_path / "eight.omni", "\n".join(f"node {name} {{ name: String @key }}" for name in types))
    seconds, attempts = insert_together(graph, types)

    for number, name in enumerate(types):
        assert names(graph, name) == rows_of(number)
    made = Counter(commit.actor for commit in graph.commits.list() if commit.actor is not None)
    assert made == {f"w{number}": ROWS for number in range(WRITERS)}
    assert not graph.maintenance.recoveries()
    say(capsys, "eight tables", seconds, attempts)
