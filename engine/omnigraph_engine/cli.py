"""The command ``omnigraph``: a graph from the shell, for people and, with ``--json``, for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from omnigraph_engine.errors import InvalidInput, OmnigraphError
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.audit import RecoveryRecord
from omnigraph_engine.manifest.dataset import BranchInfo
from omnigraph_engine.manifest.rows import MAIN, GraphCommit
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.write.load import CommitReceipt, LoadMode

EXIT_FAILED = 1
EXIT_RETRYABLE = 3

_HELP = """Create, load and inspect OmniGraph graphs.

URI is a folder or the URL of a store, such as s3://bucket/social.omni.

\b
Exit codes:
  0  done
  1  the request failed
  2  wrong usage
  3  the request failed, but the same command may succeed later

A failure is one line on standard error, "error: CODE MESSAGE", and where there is advice a second one, "hint: ...".
"""

_Command = Callable[..., None]
_UNBOUNDED = 100_000  # columns: nothing is cut or folded where no person looks at it


class _Group(click.Group):
    """Every error of the engine ends as text on standard error and a documented exit code, never as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OmnigraphError as error:
            click.echo(f"error: {error.code} {_one_line(error.message)}", err=True)
            if error.hint:
                click.echo(f"hint: {_one_line(error.hint)}", err=True)
            ctx.exit(EXIT_RETRYABLE if error.retryable else EXIT_FAILED)


def _storage_options(_context: click.Context, _parameter: click.Parameter, pairs: Sequence[str]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not key or not separator:
            # The text may hold a secret, so it is not repeated.
            raise click.BadParameter("expected KEY=VALUE.")
        options[key] = value
    return options


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def _on_graph(command: _Command) -> _Command:
    """What every command on a graph takes: URI first, then ``--storage`` and ``--json``."""
    storage_option = click.option(
        "--storage",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_storage_options,
        help="A setting of the store, such as aws_region=eu-west-1. Repeatable.",
    )
    return click.argument("uri")(storage_option(_json_option(command)))


@click.group(cls=_Group, help=_HELP)
def cli() -> None:
    pass


def main() -> None:
    """The entry point of the ``omnigraph`` command; ends the process with a documented exit code."""
    cli(prog_name="omnigraph")


@cli.command()
@_on_graph
@click.argument("schema_file", type=_file)
def init(*, uri: str, schema_file: Path, storage: dict[str, str], as_json: bool) -> None:
    """Create an empty graph with the schema in SCHEMA_FILE."""
    snapshot = Graph.create(uri, _read_schema(schema_file), storage_options=storage).snapshot()
    if as_json:
        _print_json({"uri": uri, "commit": snapshot.commit.commit_id, "tables": list(snapshot.tables)})
    else:
        click.echo(f"Created {uri} with {', '.join(snapshot.tables)}.")
        click.echo(f"Commit {snapshot.commit.commit_id}.")


@cli.command()
@_on_graph
@click.argument("file", type=_file, metavar="FILE.jsonl")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in LoadMode]),
    default=LoadMode.APPEND.value,
    show_default=True,
    help="append refuses ids that exist; merge replaces their rows; overwrite replaces all rows of the types in the file.",
)
@click.option("--actor", help="Who makes the commit.")
@click.option("--message", help="What the commit is for.")
def load(
    *,
    uri: str,
    file: Path,
    mode: str,
    actor: str | None,
    message: str | None,
    storage: dict[str, str],
    as_json: bool,
) -> None:
    """Load a file of JSON lines into main as one commit: all of its rows, or none."""
    with _progress(f"Loading {file}", as_json=as_json):
        graph = Graph.open(uri, storage_options=storage)
        receipt = graph.load_jsonl(file, mode=mode, actor=actor, message=message)
    if as_json:
        _print_json(_receipt_json(receipt))
    elif receipt.commit is None:
        click.echo("Nothing to commit.")
    else:
        _print_table(
            ("table", "version", "rows", "inserted", "updated", "deleted"),
            (
                (key, table.version, table.rows, table.inserted, table.updated, table.deleted)
                for key, table in receipt.tables.items()
            ),
        )
        click.echo(f"Commit {receipt.commit.commit_id}.")


@cli.command()
@_on_graph
@click.option("--branch", help="The branch to show; main when not given.")
@click.option("--commit", help="Show the graph as of this commit, whichever branch it is on.")
@click.option("--version", type=click.IntRange(min=1), help="Show the branch as of this version of its manifest.")
@click.option("--timestamp", help="Show the branch as of this time, in ISO 8601; UTC when it names no zone.")
def snapshot(
    *,
    uri: str,
    branch: str | None,
    commit: str | None,
    version: int | None,
    timestamp: str | None,
    storage: dict[str, str],
    as_json: bool,
) -> None:
    """Show every table of the graph: its key, version, branch and number of rows."""
    shown = _open(uri, storage).snapshot(branch=branch, commit=commit, version=version, timestamp=timestamp)
    document = _snapshot_json(shown)
    if as_json:
        _print_json(document)
    else:
        click.echo(f"{shown.id}, commit {shown.commit.commit_id}")
        _print_table(("key", "version", "branch", "rows"), (table.values() for table in document["tables"]))


@cli.group()
def schema() -> None:
    """The schema of a graph."""


@schema.command("show")
@_on_graph
@click.option("--source", is_flag=True, help="Show the schema's text, exactly as it was given.")
def show_schema(*, uri: str, source: bool, storage: dict[str, str], as_json: bool) -> None:
    """Show the schema as a diagram. With --json: both the diagram and the source text."""
    accepted = _open(uri, storage).schema
    if as_json:
        _print_json({"diagram": accepted.diagram(), "source": accepted.source})
    elif source:
        click.echo(accepted.source, nl=False)
    else:
        click.echo(accepted.diagram())


@schema.command("plan")
@_on_graph
@click.argument("new_schema_file", type=_file)
def plan_schema(*, uri: str, new_schema_file: Path, storage: dict[str, str], as_json: bool) -> None:
    """Show what a change to the schema in NEW_SCHEMA_FILE would do. Nothing is applied.

    The exit code is 0 for every plan, also for one with unsupported steps.
    """
    plan = _open(uri, storage).schema.plan(_read_schema(new_schema_file))
    if as_json:
        _print_json(plan.to_json())
    elif plan.is_empty:
        click.echo("Nothing to change.")
    else:
        for step in plan.steps:
            click.echo(f"{step} (destructive)" if step.destructive else str(step))


@cli.group()
def commit() -> None:
    """The commits of a graph."""


@commit.command("list")
@_on_graph
@click.option("--branch", default=MAIN, show_default=True, help="The branch whose commits to list.")
@click.option("--actor", help="Only the commits that this actor made.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many.")
def list_commits(
    *, uri: str, branch: str, actor: str | None, limit: int | None, storage: dict[str, str], as_json: bool
) -> None:
    """List the commits of a branch, newest first."""
    documents = [_commit_json(found) for found in _open(uri, storage).commits.list(branch, actor=actor, limit=limit)]
    if as_json:
        _print_json({"commits": documents})
    else:
        columns = ("id", "version", "branch", "created_at", "actor", "message")
        _print_table(columns, ([document[column] for column in columns] for document in documents))


@commit.command("show")
@_on_graph
@click.argument("commit_id", metavar="COMMIT")
def show_commit(*, uri: str, commit_id: str, storage: dict[str, str], as_json: bool) -> None:
    """Show one commit, whichever branch it was made on."""
    document = _commit_json(_open(uri, storage).commits.show(commit_id))
    if as_json:
        _print_json(document)
    else:
        _print_table(("field", "value"), document.items())


@cli.group()
def branch() -> None:
    """The branches of a graph."""


@branch.command("list")
@_on_graph
def list_branches(*, uri: str, storage: dict[str, str], as_json: bool) -> None:
    """List every branch, main first, then by name."""
    documents = [_branch_json(info) for info in _open(uri, storage).branches.list()]
    if as_json:
        _print_json({"branches": documents})
    else:
        _print_table(("name", "parent", "parent_version", "created_at"), (document.values() for document in documents))


@cli.group()
def recovery() -> None:
    """What became of commits whose writer died."""


@recovery.command("list")
@_on_graph
def list_recoveries(*, uri: str, storage: dict[str, str], as_json: bool) -> None:
    """List every operation that was finished or undone after its writer, newest first."""
    documents = [_recovery_json(record) for record in _open(uri, storage).maintenance.recoveries()]
    if as_json:
        _print_json({"recoveries": documents})
    else:
        columns = ("operation", "kind", "commit", "actor", "writer", "created_at")
        _print_table(columns, ([document[column] for column in columns] for document in documents))


@cli.command()
@_json_option
def version(*, as_json: bool) -> None:
    """Show which release this is."""
    release = installed_version("omnigraph-spark")
    if as_json:
        _print_json({"version": release})
    else:
        click.echo(f"omnigraph {release}")


def _open(uri: str, storage: dict[str, str]) -> Graph:
    return Graph.open(uri, "ro", storage_options=storage)


def _read_schema(path: Path) -> str:
    # Decoded from bytes: text mode would rewrite line ends, and a graph keeps its schema exactly as given.
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"'{path}' is not UTF-8 text.", details={"path": str(path)}) from error


def _snapshot_json(shown: Snapshot) -> dict[str, Any]:
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


def _receipt_json(receipt: CommitReceipt) -> dict[str, Any]:
    return {
        "commit": None if receipt.commit is None else _commit_json(receipt.commit),
        "tables": {key: asdict(table) for key, table in receipt.tables.items()},
    }


def _commit_json(found: GraphCommit) -> dict[str, Any]:
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


def _recovery_json(record: RecoveryRecord) -> dict[str, Any]:
    return {
        "operation": record.operation_id,
        "kind": record.kind.value,
        "commit": record.commit_id,
        "actor": record.actor,
        "writer": record.writer_kind,
        "created_at": record.created_at.isoformat(),
        "tables": [asdict(table) for table in record.tables],
    }


def _branch_json(info: BranchInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "parent": info.parent,
        "parent_version": info.parent_version,
        "created_at": None if info.created_at is None else _utc(info.created_at),
    }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _progress(what: str, *, as_json: bool) -> AbstractContextManager[object]:
    """A spinner for a person who waits; nothing where standard error is a file or a program reads the answer."""
    if as_json or not sys.stderr.isatty():
        return nullcontext()
    return Console(stderr=True).status(Text(what))


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _print_table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        # Text, because rich would take square brackets in a plain string for markup.
        table.add_row(*(Text("-" if value is None else str(value), overflow="fold") for value in row))
    table.columns[0].no_wrap = True
    Console(highlight=False, width=None if sys.stdout.isatty() else _UNBOUNDED).print(table)


if __name__ == "__main__":
    main()
