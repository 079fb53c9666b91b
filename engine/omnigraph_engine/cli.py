"""The command ``omnigraph``: a graph from the shell, for people and, with ``--json``, for programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import click

from omnigraph_engine.branches.conflicts import way_out
from omnigraph_engine.branches.merge import MergeOutcome, MergeResult, OnConflict
from omnigraph_engine.branches.three_way import Granularity, Resolution
from omnigraph_engine.cli_documents import (
    branch_json,
    cleanup_json,
    commit_json,
    counted,
    diff_json,
    merge_json,
    one_line,
    print_cleanup,
    print_json,
    print_merge,
    print_table,
    progress,
    receipt_json,
    recovery_json,
    snapshot_json,
    told_change,
    what_goes,
)
from omnigraph_engine.errors import InvalidInput, MergeConflict, OmnigraphError
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.rows import MAIN
from omnigraph_engine.write.load import LoadMode

EXIT_FAILED = 1
EXIT_RETRYABLE = 3

_HELP = """Create, load, branch, merge and inspect OmniGraph graphs.

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


class _Group(click.Group):
    """Every error of the engine ends as text on standard error and a documented exit code, never as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OmnigraphError as error:
            click.echo(f"error: {error.code} {one_line(error.message)}", err=True)
            if error.hint:
                click.echo(f"hint: {one_line(error.hint)}", err=True)
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


def _on_conflict(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> OnConflict:
    """One word for all types, or TYPE=WORD for each."""
    words = {word.rpartition("=")[2] for word in given}
    unknown = words - {choice.value for choice in Resolution}
    if unknown:
        raise click.BadParameter(f"'{unknown.pop()}' is not one of {', '.join(choice.value for choice in Resolution)}.")
    plain = [word for word in given if "=" not in word]
    if plain and len(given) > 1:
        raise click.BadParameter("give one word for all types, or TYPE=WORD for each.")
    if plain:
        return plain[0]
    return {name: word for name, _, word in (pair.rpartition("=") for pair in given)}


def _duration(_context: click.Context, _parameter: click.Parameter, text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})([dhms])", text)
    if match is None:
        raise click.BadParameter("expected a whole number of days, hours, minutes or seconds, such as 7d or 36h.")
    return int(match[1]) * timedelta(**{{"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}[match[2]]: 1})


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
        print_json({"uri": uri, "commit": snapshot.commit.commit_id, "tables": list(snapshot.tables)})
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
@click.option("--branch", default=MAIN, show_default=True, help="The branch to load into.")
@click.option("--actor", help="Who makes the commit.")
@click.option("--message", help="What the commit is for.")
def load(
    *,
    uri: str,
    file: Path,
    mode: str,
    branch: str,
    actor: str | None,
    message: str | None,
    storage: dict[str, str],
    as_json: bool,
) -> None:
    """Load a file of JSON lines into a branch as one commit: all of its rows, or none."""
    with progress(f"Loading {file}", as_json=as_json):
        graph = Graph.open(uri, storage_options=storage)
        receipt = graph.load_jsonl(file, mode=mode, branch=branch, actor=actor, message=message)
    if as_json:
        print_json(receipt_json(receipt))
    elif receipt.commit is None:
        click.echo("Nothing to commit.")
    else:
        print_table(
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
    document = snapshot_json(shown)
    if as_json:
        print_json(document)
    else:
        click.echo(f"{shown.id}, commit {shown.commit.commit_id}")
        print_table(("key", "version", "branch", "rows"), (table.values() for table in document["tables"]))


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
        print_json({"diagram": accepted.diagram(), "source": accepted.source})
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
        print_json(plan.to_json())
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
    documents = [commit_json(found) for found in _open(uri, storage).commits.list(branch, actor=actor, limit=limit)]
    if as_json:
        print_json({"commits": documents})
    else:
        columns = ("id", "version", "branch", "created_at", "actor", "message")
        print_table(columns, ([document[column] for column in columns] for document in documents))


@commit.command("show")
@_on_graph
@click.argument("commit_id", metavar="COMMIT")
def show_commit(*, uri: str, commit_id: str, storage: dict[str, str], as_json: bool) -> None:
    """Show one commit, whichever branch it was made on."""
    document = commit_json(_open(uri, storage).commits.show(commit_id))
    if as_json:
        print_json(document)
    else:
        print_table(("field", "value"), document.items())


@cli.group()
def branch() -> None:
    """The branches of a graph."""


@branch.command("list")
@_on_graph
def list_branches(*, uri: str, storage: dict[str, str], as_json: bool) -> None:
    """List every branch, main first, then by name."""
    documents = [branch_json(info) for info in _open(uri, storage).branches.list()]
    if as_json:
        print_json({"branches": documents})
    else:
        print_table(("name", "parent", "parent_version", "created_at"), (document.values() for document in documents))


@branch.command("create")
@_on_graph
@click.argument("name")
@click.option("--from", "from_", default=MAIN, show_default=True, help="A branch or a commit: what the new one shows.")
def create_branch(*, uri: str, name: str, from_: str, storage: dict[str, str], as_json: bool) -> None:
    """Make a branch. No data is copied, so it takes the same time for any graph."""
    info = Graph.open(uri, storage_options=storage).branches.create(name, from_)
    if as_json:
        print_json(branch_json(info))
    else:
        click.echo(f"Created branch {name} from {info.parent}, version {info.parent_version}.")


@branch.command("delete")
@_on_graph
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do it. Without this nothing is deleted.")
def delete_branch(*, uri: str, name: str, yes: bool, storage: dict[str, str], as_json: bool) -> None:
    """Show what deleting a branch would take away; with --yes, delete it.

    The exit code is 0 in both cases.
    """
    graph = Graph.open(uri, "rw" if yes else "ro", storage_options=storage)
    goes = what_goes(graph, name)
    if yes:
        graph.branches.delete(name)
    if as_json:
        print_json({"branch": name, "deleted": yes, **goes})
        return
    if goes["commits"]:
        columns = ("id", "merged", "created_at", "actor", "message")
        print_table(columns, ([commit[column] for column in columns] for commit in goes["commits"]))
    own, lost = len(goes["commits"]), sum(not commit["merged"] for commit in goes["commits"])
    changed = f", changing {', '.join(goes['tables'])}" if goes["tables"] else ""
    click.echo(f"{name} has {counted(own, 'commit')} of its own{changed}; {lost} not merged elsewhere.")
    if yes:
        click.echo(f"Deleted branch {name}.")
    elif goes["descendants"]:
        click.echo(f"It cannot be deleted before {', '.join(goes['descendants'])}, made from it.")
    else:
        click.echo("Nothing was deleted. To delete the branch, add --yes.")


@cli.command()
@_on_graph
@click.argument("source")
@click.option("--into", default=MAIN, show_default=True, help="The branch that gets the commit.")
@click.option("--dry-run", is_flag=True, help="Show what would happen, conflicts and all, and change nothing.")
@click.option(
    "--on-conflict",
    multiple=True,
    metavar="[TYPE=]WORD",
    default=[Resolution.FAIL.value],
    show_default=True,
    callback=_on_conflict,
    help="Who wins where both changed an entity: fail, ours (the branch merged into) or theirs (SOURCE). "
    "Repeatable with a type: Person=theirs.",
)
@click.option(
    "--granularity",
    type=click.Choice([choice.value for choice in Granularity]),
    default=Granularity.ROW.value,
    show_default=True,
    help="property: both may change different properties of one entity.",
)
@click.option("--delete-branch", is_flag=True, help="Delete SOURCE once it is merged.")
@click.option("--actor", help="Who makes the commit.")
@click.option("--message", help="What the commit is for.")
def merge(
    *, uri: str, source: str, into: str, dry_run: bool, storage: dict[str, str], as_json: bool, **options: Any
) -> None:
    """Bring what the branch SOURCE did into another one, as one commit: all of it, or nothing.

    Conflicts are printed, also those of a dry run, and the exit code is 1 then.
    """
    graph = Graph.open(uri, storage_options=storage)
    with progress(f"Merging {source} into {into}", as_json=as_json):
        try:
            result = graph.merge(source, into, dry_run=dry_run, **options)
        except MergeConflict as conflict:
            result = MergeResult(
                MergeOutcome.CONFLICTS,
                source,
                into,
                conflict.details["base"],
                conflict.details["source"],
                commit=None,
                conflicts=conflict.conflicts,
            )
    if as_json:
        print_json(merge_json(result))
    else:
        print_merge(result, dry_run=dry_run)
    if result.outcome is MergeOutcome.CONFLICTS:
        raise MergeConflict(
            f"Merging '{source}' into '{into}' has {counted(result.conflicts.num_rows, 'conflict')}.",
            hint=f"Nothing was changed. {way_out(result.conflicts, 'say with --on-conflict which side wins')}",
        )
    if options["delete_branch"] and not dry_run and not as_json:
        click.echo(f"Deleted branch {source}.")


@cli.command("diff")
@_on_graph
@click.argument("from_", metavar="FROM")
@click.argument("to", default=MAIN, metavar="[TO]")
@click.option("--type", "type_name", metavar="TYPE", help="Only this node or edge type.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Show at most this many entities of each type, the first by id. All are counted.",
)
def show_diff(
    *, uri: str, from_: str, to: str, type_name: str | None, limit: int, storage: dict[str, str], as_json: bool
) -> None:
    """Show which entities are different in TO (main by default) against FROM; each is a branch or a commit."""
    found = _open(uri, storage).diff(from_, to)
    only = None if type_name is None else found.after.table(type_name).published.table_key
    told = {key: diff_json(table, limit) for key, table in found.tables.items() if only in (None, key)}
    told = {key: document for key, document in told.items() if any(document["counts"].values())}
    if as_json:
        print_json({"from": found.before.commit.commit_id, "to": found.after.commit.commit_id, "tables": told})
    elif not told:
        click.echo("Nothing is different.")
    else:
        for key, document in told.items():
            click.echo(f"{key}: {', '.join(f'{count} {change}' for change, count in document['counts'].items())}")
            if document["changes"]:
                rows = ((change["change"], change["id"], told_change(change)) for change in document["changes"])
                print_table(("change", "id", "properties"), rows)


@cli.group()
def recovery() -> None:
    """What became of commits whose writer died."""


@recovery.command("list")
@_on_graph
def list_recoveries(*, uri: str, storage: dict[str, str], as_json: bool) -> None:
    """List every operation that was finished or undone after its writer, newest first."""
    documents = [recovery_json(record) for record in _open(uri, storage).maintenance.recoveries()]
    if as_json:
        print_json({"recoveries": documents})
    else:
        columns = ("operation", "kind", "commit", "actor", "writer", "created_at")
        print_table(columns, ([document[column] for column in columns] for document in documents))


@cli.command()
@_on_graph
@click.option(
    "--older-than",
    default="7d",
    show_default=True,
    callback=_duration,
    metavar="DURATION",
    help="Leave what is younger alone. Give more than your longest load takes.",
)
@click.option("--confirm", is_flag=True, help="Do it. Without this nothing is deleted.")
def cleanup(*, uri: str, older_than: timedelta, confirm: bool, storage: dict[str, str], as_json: bool) -> None:
    """Show which files dead operations left behind; with --confirm, delete them.

    What any commit of any branch shows stays. The exit code is 0 in both cases.
    """
    with progress(f"Looking through {uri}", as_json=as_json):
        report = Graph.open(uri, storage_options=storage).maintenance.cleanup(older_than=older_than, confirm=confirm)
    if as_json:
        print_json(cleanup_json(report))
    else:
        print_cleanup(report)


@cli.command()
@_json_option
def version(*, as_json: bool) -> None:
    """Show which release this is."""
    release = installed_version("omnigraph-spark")
    if as_json:
        print_json({"version": release})
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


if __name__ == "__main__":
    main()
