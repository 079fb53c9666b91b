"""What the tests of cleanup share: files that grow old, and what every commit of every branch shows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from omnigraph_engine.graph import Graph
from omnigraph_engine.maintenance.cleanup import CleanupReport
from omnigraph_engine.snapshot import Snapshot

NOW = timedelta(0)
OLD = 8 * 24 * 3600  # seconds; a day more than the grace period


def stored(graph: Graph) -> dict[str, tuple[int, Any]]:
    """Every object of the graph, its size and when it was written."""
    return {found.path: (found.size, found.modified) for found in graph.storage.objects()}


def age(graph: Graph, paths: Iterable[str] | None = None, seconds: float = OLD) -> None:
    """These files, or all, were written that long ago."""
    then = time.time() - seconds
    for path in graph.storage.list() if paths is None else paths:
        os.utime(Path(graph.storage.root) / path, (then, then))


def everything(graph: Graph) -> dict[str, dict[str, Any]]:
    """What every commit of every branch shows: all values of all rows of all tables."""
    found: dict[str, dict[str, Any]] = {}
    for branch in graph.branches.list():
        for commit in graph.commits.list(branch.name):
            if commit.commit_id not in found:
                found[commit.commit_id] = content_of(graph.snapshot(commit=commit.commit_id))
        found[branch.name] = content_of(graph.snapshot(branch=branch.name))
    return found


def content_of(snapshot: Snapshot) -> dict[str, Any]:
    return {key: sorted(table.to_arrow().to_pylist(), key=by_id) for key, table in snapshot.tables.items()}


def by_id(row: dict[str, Any]) -> str:
    return str(row["id"])


def clean(graph: Graph, older_than: timedelta = NOW) -> CleanupReport:
    """A confirmed cleanup after which every commit of every branch shows what it showed, and nothing more is left over."""
    before = everything(graph)
    preview = graph.maintenance.cleanup(older_than=older_than)
    report = graph.maintenance.cleanup(older_than=older_than, confirm=True)
    assert everything(graph) == before
    assert report.warnings == ()
    assert (report.tables, report.skipped) == (preview.tables, preview.skipped)
    assert [left.operation_id for left in report.staged] == [left.operation_id for left in preview.staged]
    again = graph.maintenance.cleanup(older_than=older_than)
    assert (dict(again.tables), again.staged) == ({}, ())
    return report


def left_over(report: CleanupReport) -> dict[str, dict[str, int]]:
    """How many files of each kind are left over, by table; and under "lines" those of lines, by name."""
    found: dict[str, dict[str, int]] = {}
    for key, table in report.tables.items():
        found[key] = {kind.value: amount.files for kind, amount in table.files.items()}
        found[key] |= {f"line {name}": amount.files for name, amount in table.lines.items()}
    return found


def new_files(graph: Graph, before: Iterable[str]) -> list[str]:
    return sorted(set(graph.storage.list()) - set(before))


def location(graph: Graph, table: str) -> str:
    return graph.snapshot().table(table).published.location
