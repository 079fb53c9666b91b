"""What the command ``omnigraph`` says: JSON documents for programs, tables and lines for people."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import date, datetime, timezone
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from omnigraph_engine.branches.diff import TableDiff, diff
from omnigraph_engine.branches.entities import Change
from omnigraph_engine.branches.merge import MergeResult
from omnigraph_engine.errors import InvalidArgument
from omnigraph_engine.graph import Graph
from omnigraph_engine.maintenance.cleanup import CleanupReport
from omnigraph_engine.manifest.audit import RecoveryRecord
from omnigraph_engine.manifest.refs import BranchInfo
from omnigraph_engine.manifest.rows import MAIN, GraphCommit
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.write.load import CommitReceipt

_UNBOUNDED = 100_000  # columns: nothing is cut or folded where no person looks at it
_FEW = 20  # conflicts that a person is shown; a program gets all


def snapshot_json(shown: Snapshot) -> dict[str, Any]:
    return {
        "id": shown.id,
        "branch": shown.branch,
        "version": shown.version,
        "commit": shown.commit.commit_id,
        "tables": [
            {
                "key": key,
                "version": table.published.version,
                "branch": table.published.branch or MAIN,
                "rows": table.published.row_count,
            }
            for key, table in shown.tables.items()
        ],
    }


def receipt_json(receipt: CommitReceipt) -> dict[str, Any]:
    return {
        "commit": None if receipt.commit is None else commit_json(receipt.commit),
        "tables": {key: asdict(table) for key, table in receipt.tables.items()},
    }


def commit_json(found: GraphCommit) -> dict[str, Any]:
    return {
        "id": found.commit_id,
        "version": found.manifest_version,
        "branch": found.branch or MAIN,
        "created_at": _utc(found.created_at / 1_000_000),
        "parent": found.parent_id,
        "merged_parent": found.merged_parent_id,
        "actor": found.actor,
        "message": found.extra.get("message"),
    }


def recovery_json(record: RecoveryRecord) -> dict[str, Any]:
    return {
        "operation": record.operation_id,
        "kind": record.kind.value,
        "commit": record.commit_id,
        "actor": record.actor,
        "writer": record.writer_kind,
        "created_at": record.created_at.isoformat(),
        "tables": [asdict(table) for table in record.tables],
    }


def cleanup_json(report: CleanupReport) -> dict[str, Any]:
    return {
        "confirmed": report.confirmed,
        "older_than_seconds": report.older_than.total_seconds(),
        **asdict(report.total),
        "tables": {
            key: {
                "lines": {name: asdict(amount) for name, amount in table.lines.items()},
                "files": {kind.value: asdict(amount) for kind, amount in table.files.items()},
            }
            for key, table in report.tables.items()
        },
        "staged": [
            {"operation": left.operation_id, **asdict(left.amount), "age_seconds": left.age.total_seconds()}
            for left in report.staged
        ],
        "skipped": dict(report.skipped),
        "warnings": list(report.warnings),
    }


def branch_json(info: BranchInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "parent": info.parent,
        "parent_version": info.parent_version,
        "created_at": None if info.created_at is None else _utc(info.created_at),
    }


def what_goes(graph: Graph, name: str) -> dict[str, Any]:
    """What only this branch has: its commits, whether they were merged elsewhere, and the tables that they changed."""
    info = graph.branches.get(name)
    if info.parent is None:
        raise InvalidArgument(f"'{name}' cannot be deleted.", hint="Only branches that were created can.")
    others = [other for other in graph.branches.list() if other.name != name]
    merged = {commit.merged_parent_id for other in others for commit in graph.commits.list(other.name)}
    seen, own = False, []
    for commit in graph.commits.list(name):
        if commit.branch == name:
            seen = seen or commit.commit_id in merged  # and with it every commit before it
            own.append({**commit_json(commit), "merged": seen})
    start = graph.snapshot(branch=info.parent, version=info.parent_version)
    return {
        "commits": own,
        "tables": list(diff(start, graph.snapshot(branch=name)).tables),
        "descendants": [other.name for other in others if other.descends_from(info)],
    }


def merge_json(result: MergeResult) -> dict[str, Any]:
    return {
        "outcome": result.outcome.value,
        "source": result.source,
        "into": result.into,
        "base": result.base_commit,
        "merged": result.source_commit,
        "commit": None if result.commit is None else commit_json(result.commit),
        "tables": {key: asdict(table) for key, table in result.tables.items()},
        "conflicts": [_conflict_json(row) for row in result.conflicts.to_pylist()],
        "resolved": [_conflict_json(row) for row in result.resolved.to_pylist()],
    }


def _conflict_json(row: dict[str, Any]) -> dict[str, Any]:
    entities = {side: _plain(json.loads(row[side] or "null")) for side in ("base", "source", "target")}
    return {**row, **entities}


def diff_json(table: TableDiff, limit: int) -> dict[str, Any]:
    """How many entities differ, and the first of them; memory is bounded by the limit."""
    counts: Counter[str] = Counter()
    first = table.schema.empty_table()
    for batch in table.to_batches():
        counts.update(map(str, batch["change"].to_pylist()))
        first = pa.concat_tables([first, pa.Table.from_batches([batch])]).sort_by("id").slice(0, limit)
    shown = first.cast(pa.schema([field.with_type(_with_instants(field.type)) for field in first.schema]))
    return {
        "counts": {change.value: counts[change.value] for change in Change},
        "changes": [_plain(row) for row in shown.to_pylist()],
    }


def _with_instants(kind: pa.DataType) -> pa.DataType:
    """The type with instants for dates in milliseconds, of which Python would keep the day alone."""
    if isinstance(kind, pa.StructType):
        return pa.struct([field.with_type(_with_instants(field.type)) for field in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(kind.value_field.with_type(_with_instants(kind.value_type)))
    return pa.timestamp("ms", "UTC") if pa.types.is_date64(kind) else kind


def _plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def print_merge(result: MergeResult, *, dry_run: bool) -> None:
    if result.tables:
        columns = ("table", "action", "rows", "inserted", "updated", "deleted")
        rows = ((key, table.action.value, *list(asdict(table).values())[1:]) for key, table in result.tables.items())
        print_table(columns, rows)
    if result.resolved.num_rows:
        click.echo(f"{counted(result.resolved.num_rows, 'conflict')} resolved:")
        _print_conflicts(result.resolved, ("resolution", "kind", "type", "id", "base", "source", "target"))
    if result.conflicts.num_rows:
        _print_conflicts(result.conflicts, ("kind", "type", "id", "base", "source", "target"))
        return
    click.echo(f"{result.source} into {result.into}: {result.outcome.value}.")
    if result.commit is not None:
        click.echo(f"Commit {result.commit.commit_id}.")
    elif dry_run:
        click.echo("Nothing was changed: a dry run.")


def _print_conflicts(conflicts: pa.Table, columns: Sequence[str]) -> None:
    print_table(columns, ([row[column] for column in columns] for row in conflicts.slice(0, _FEW).to_pylist()))
    if conflicts.num_rows > _FEW:
        click.echo(f"and {conflicts.num_rows - _FEW} more; --json shows all.")


def print_cleanup(report: CleanupReport) -> None:
    rows = [
        (key, what, amount.files, amount.bytes)
        for key, table in report.tables.items()
        for what, amount in [
            *((f"line {name}", amount) for name, amount in table.lines.items()),
            *((f"{kind.value} files", amount) for kind, amount in table.files.items()),
        ]
    ]
    staged = ((left, f"staged by {left.operation_id}, {left.age.days} days old") for left in report.staged)
    rows += [("-", what, left.amount.files, left.amount.bytes) for left, what in staged]
    if rows:
        print_table(("table", "left over", "files", "bytes"), rows)
    for key, reason in report.skipped.items():
        click.echo(f"{key} was left alone: {one_line(reason)}")
    for warning in report.warnings:
        click.echo(f"Not deleted: {one_line(warning)}")
    total = f"{counted(report.total.files, 'file')}, {counted(report.total.bytes, 'byte')}"
    if report.confirmed:
        click.echo(f"Deleted {total}.")
    elif rows:
        click.echo(f"{total}. Nothing was deleted. To delete them, add --confirm.")
    else:
        click.echo("Nothing is left over.")


def told_change(change: Mapping[str, Any]) -> str:
    """An entity's properties, or of one that was updated those that changed."""
    before, after = change["before"], change["after"]
    if before is None or after is None:
        entity = after if before is None else before
        return ", ".join(f"{name}: {_word(value)}" for name, value in entity.items() if name != "id")
    changed = (name for name in after if before[name] != after[name])
    return ", ".join(f"{name}: {_word(before[name])} -> {_word(after[name])}" for name in changed)


def _word(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def one_line(text: str) -> str:
    return " ".join(text.split())


def progress(what: str, *, as_json: bool) -> AbstractContextManager[object]:
    """A spinner for a person who waits; nothing where standard error is a file or a program reads the answer."""
    if as_json or not sys.stderr.isatty():
        return nullcontext()
    return Console(stderr=True).status(Text(what))


def print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        # Text, because rich would take square brackets in a plain string for markup.
        table.add_row(*(Text("-" if value is None else str(value), overflow="fold") for value in row))
    table.columns[0].no_wrap = True
    Console(highlight=False, width=None if sys.stdout.isatty() else _UNBOUNDED).print(table)
