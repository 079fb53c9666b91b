"""What ``Graph`` asks of whoever can reach the storage: plain functions of the opened graph and plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from omnigraph_engine.branches.merge import Merge, MergeOptions, MergeResult
from omnigraph_engine.branches.table_merge import MergePart, TableWork
from omnigraph_engine.graph import Graph, GraphSchema
from omnigraph_engine.maintenance.cleanup import CleanupReport
from omnigraph_engine.manifest.audit import RecoveryRecord
from omnigraph_engine.manifest.refs import BranchInfo
from omnigraph_engine.manifest.rows import GraphCommit
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.tables.table import TableRef
from omnigraph_engine.write.load import CommitReceipt, Load

from omnigraph_spark.diff import TableChanges
from omnigraph_spark.read import PinnedTable, Scan, plan_scan
from omnigraph_spark.write import TableLoad


def schema(graph: Graph) -> GraphSchema:
    return graph.schema


def snapshot(
    graph: Graph, branch: str | None, commit: str | None, version: int | None, timestamp: datetime | str | None
) -> Snapshot:
    return graph.snapshot(branch=branch, commit=commit, version=version, timestamp=timestamp)


def scan(
    graph: Graph,
    ref: TableRef,
    columns: Sequence[str] | None,
    filter: str | None,  # noqa: A002 - the word that pyarrow, Lance and Spark users know
    limit: int | None,
    partition_rows: int,
) -> Scan:
    pinned = PinnedTable(graph.storage, ref)
    return plan_scan(pinned, pinned.spark_schema(columns), filter, limit, partition_rows)


def begin_load(graph: Graph, branch: str, options: Mapping[str, Any]) -> Load:
    return graph.begin_load(branch, **options)


def finish_load(_graph: Graph, load: Load, staged: Sequence[tuple[TableLoad, Sequence[str]]]) -> CommitReceipt:
    gathered = [table_load.gather(parts) for table_load, parts in staged]
    return load.commit([write for write in gathered if write is not None])


def list_commits(graph: Graph, branch: str, actor: str | None, limit: int | None) -> list[GraphCommit]:
    return graph.commits.list(branch, actor=actor, limit=limit)


def show_commit(graph: Graph, commit_id: str) -> GraphCommit:
    return graph.commits.show(commit_id)


def list_branches(graph: Graph) -> list[BranchInfo]:
    return graph.branches.list()


def get_branch(graph: Graph, name: str) -> BranchInfo:
    return graph.branches.get(name)


def create_branch(graph: Graph, name: str, from_: str, request: str) -> BranchInfo:
    return graph.branches.create(name, from_, request=request)


def delete_branch(graph: Graph, name: str, life: str) -> None:
    graph.branches.delete(name, life=life)


MergeStep = MergeResult | tuple[Merge, dict[str, TableWork]]


def begin_merge(graph: Graph, source: str, into: str, options: MergeOptions, elsewhere: int) -> MergeStep:
    merge = graph.begin_merge(source, into, options)
    return _step(merge, merge.begin(elsewhere=elsewhere))


def go_on_with_merge(
    _graph: Graph, merge: Merge, parts: Mapping[str, Sequence[MergePart]], elsewhere: int
) -> MergeStep:
    return _step(merge, merge.go_on(parts, elsewhere=elsewhere))


def _step(merge: Merge, step: MergeResult | dict[str, TableWork]) -> MergeStep:
    return step if isinstance(step, MergeResult) else (merge, step)


def diff(graph: Graph, from_: str, to: str) -> dict[str, TableChanges]:
    found = graph.diff(from_, to)
    tables = {**dict.fromkeys(found.after.tables), **found.tables}
    return {key: TableChanges.of(found.table(key)) for key in tables}


def recoveries(graph: Graph) -> list[RecoveryRecord]:
    return graph.maintenance.recoveries()


def recover(graph: Graph) -> None:
    graph.maintenance.recover()


def cleanup(graph: Graph, older_than: timedelta, confirm: bool) -> CleanupReport:  # noqa: FBT001 - calls are by position
    return graph.maintenance.cleanup(older_than=older_than, confirm=confirm)
