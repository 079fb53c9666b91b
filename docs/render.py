"""Renders the reference pages that follow from the code: ``errors.md``, ``cli.md`` and ``options.md``.

``python docs/render.py`` writes them; with ``--check`` it writes nothing and exits 1 when one is out of date.
"""  # noqa: INP001 - a script beside the pages, not a package

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from omnigraph_engine.cli import cli
from omnigraph_engine.errors import all_errors

from omnigraph_spark.options import OPTIONS, SESSION_BRANCH, SPARK_PREFIX, STORAGE_PREFIX, Option

DOCS = Path(__file__).parent
_WIDTH = 100
_NOTICE = "<!-- Written by docs/render.py from the code; edit that, then run it. -->"


def pages() -> dict[str, str]:
    """The text of every rendered page, by its file name."""
    return {"errors.md": _errors_page(), "cli.md": _cli_page(), "options.md": _options_page()}


def outdated() -> list[str]:
    """The pages whose file is missing or differs from what the code says now."""
    return [
        name
        for name, text in pages().items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != text
    ]


def _errors_page() -> str:
    lines = [
        "# Errors",
        "",
        _NOTICE,
        "",
        "Every error is an `OmnigraphError` with a stable `code`, a `message`, `details` as data and, where there is",
        "advice, a `hint`. A retryable error says that the same call may succeed later.",
        "",
        "| Code | Name | Retryable | Meaning |",
        "|---|---|---|---|",
    ]
    for error in all_errors():
        meaning = " ".join((error.__doc__ or "").split()).replace("``", "`").replace("|", "\\|")
        lines.append(f"| {error.code} | `{error.__name__}` | {'yes' if error.retryable else 'no'} | {meaning} |")
    return "\n".join(lines) + "\n"


def _options_page() -> str:
    session = SESSION_BRANCH.name
    lines = [
        '# Options of `format("omnigraph")`',
        "",
        _NOTICE,
        "",
        "An option that is not listed is refused, with the one that was probably meant.",
        f"`{STORAGE_PREFIX}*` options are passed to the store without the prefix, for example `storage.aws_region`.",
        "",
        *_options(OPTIONS),
        "",
        "## Settings of a session",
        "",
        f'As in `spark.conf.set("{session}", "dev")`, or `spark-submit --conf {SPARK_PREFIX}{session}=dev`: a setting means',
        f'the same with `{SPARK_PREFIX}` before its name. `format("omnigraph")` does not see them, because it runs in',
        "processes that Spark gives no settings of the session.",
        "",
        *_options([SESSION_BRANCH]),
    ]
    return "\n".join(lines) + "\n"


def _options(options: Iterable[Option]) -> Iterator[str]:
    yield "| Option | Type | Default | For | Meaning |"
    yield "|---|---|---|---|---|"
    for option in options:
        default = "" if option.default is None else f"`{option.default}`"
        kind = option.type.__name__
        yield f"| `{option.name}` | {kind} | {default} | {', '.join(option.sides)} | {option.doc} |"


def _cli_page() -> str:
    lines = ["# The command `omnigraph`", "", _NOTICE]
    for path, help_text in _helps(cli, "omnigraph", None):
        lines += ["", f"## `{path}`", "", "```text", help_text, "```"]
    return "\n".join(lines) + "\n"


def _helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """The help of a command, then of the commands below it, in the order in which click lists them."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            yield from _helps(command.commands[child_name], child_name, context)


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a page is out of date.")
def main(*, check: bool) -> None:
    """Write the rendered pages."""
    if not check:
        for name, text in pages().items():
            (DOCS / name).write_text(text, encoding="utf-8")
    elif stale := outdated():
        raise click.ClickException(f"out of date: {', '.join(stale)}. Run: python docs/render.py")


if __name__ == "__main__":
    main()
