"""Whose a line of a table is. Pure.

A branch writes only on lines of its own: main on the tables' main lines, every other branch on lines that it forks when it
first writes to a table. A line's name says for which life of which branch it was forked, and by which operation, so no two
operations ever meet on a name, and a line that was adopted by a merge is not taken for one's own.
"""

from __future__ import annotations

import re

from omnigraph_engine.manifest.refs import BranchInfo
from omnigraph_engine.manifest.rows import MAIN

_NAME = re.compile(r"(?P<branch>.+)-(?P<life>[0-9a-f]{32}|main)-(?P<operation>[0-9A-Z]{26})")


def owns(branch: BranchInfo, line: str | None) -> bool:
    """Whether the branch may commit on this line of a table."""
    if line is None:
        return branch.name == MAIN
    return life_of(line) == branch.life


def life_of(line: str) -> str | None:
    """The life of the branch that the line was forked for; None when it was not forked by us."""
    match = _NAME.fullmatch(line)
    return None if match is None else match["life"]


def new_line(branch: BranchInfo, operation_id: str) -> str:
    """The name of a line that only this operation can fork. Flat: a folder never lies within another."""
    return f"{branch.name.replace('/', '_')}-{branch.life}-{operation_id}"
