"""Committing on one line of a table what was staged on another.

Staging comes first and may take hours; the line that a commit forks comes to be only then. Staged files stay where they are:
Lance lets a line refer to files below another one that it descends from, by the number of a base path.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from omnigraph_engine.errors import VersionConflict
from omnigraph_engine.tables.exact import lance_errors
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.tables.table import Table, TableRef


def rehomed(table: Table, staged: StagedWrite) -> StagedWrite:
    """The same write, its files named as this line of the table must name them.

    Raises:
        VersionConflict: the line does not descend from the one it was staged on.
    """
    base = _base_number(table, replace(table.ref, branch=staged.line))
    return replace(
        staged,
        line=table.ref.branch,
        new_fragments=tuple(_rehomed(text, base) for text in staged.new_fragments),
        updated_fragments=tuple(_rehomed(text, base) for text in staged.updated_fragments),
    )


def _base_number(table: Table, line: TableRef) -> int:
    with lance_errors(f"Reading the base paths of {table.ref.table_key}"):
        bases: dict[int, Any] = table.dataset.base_paths()
    for number, base in bases.items():
        if str(base.path).rstrip("/").endswith(f"/{line.path}"):
            return number
    raise VersionConflict(
        f"{table.ref.table_key} was staged on the line '{line.branch}', and '{table.ref.branch}' does not descend from it.",
        details={"table_key": table.ref.table_key, "expected": line.branch, "actual": table.ref.branch},
        hint="The branch was replaced by another since. Nothing was committed; read again and retry.",
    )


def _rehomed(text: str, base: int) -> str:
    fragment: dict[str, Any] = json.loads(text)
    for file in (*fragment["files"], fragment["deletion_file"]):
        if file is not None and file["base_id"] is None:
            file["base_id"] = base
    return json.dumps(fragment)
