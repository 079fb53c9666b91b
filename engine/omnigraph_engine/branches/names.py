"""Which names a branch may have (FORMAT 4). Pure."""

from __future__ import annotations

import re
from urllib.parse import quote

from omnigraph_engine.errors import BranchExists, InvalidArgument
from omnigraph_engine.manifest.rows import MAIN

# As part of a URL within a URL, which is how Lance names files. A table's line is named by its branch and 60 characters more,
# Lance adds 44 to that for a moment, and the name of a file has 255 at most.
LONGEST = 150

_SEGMENT = re.compile(r"[\w.-]+")


def check_name(name: str) -> None:
    """Raises ``InvalidArgument`` unless a branch may be called so."""
    problem = None
    if not isinstance(name, str):
        raise InvalidArgument(f"A branch cannot be called {name!r}: a name is text.")
    if name == MAIN:
        problem = "it is the branch that every graph has"
    elif name.startswith("__"):
        problem = "names that start with '__' are the engine's own"
    elif not all(map(_SEGMENT.fullmatch, name.split("/"))):
        problem = "a name consists of letters, digits, '.', '-' and '_', in parts separated by '/'"
    elif ".." in name or name.endswith(".lock") or name.startswith(".") or "/." in name:
        problem = "'..', a part that begins with '.' and the ending '.lock' are not allowed"
    elif len(quote(quote(name), safe="")) > LONGEST:
        problem = f"it is longer than {LONGEST} characters; '/' counts as 3, a letter beyond a-z as up to 20"
    if problem is not None:
        raise InvalidArgument(f"A branch cannot be called '{name}': {problem}.", details={"branch": name})


def overlaps(name: str, other: str) -> bool:
    """Whether two branches of these names cannot both be: the names are one, or one is a folder of the other."""
    return other == name or other.startswith(f"{name}/") or name.startswith(f"{other}/")


def taken(name: str, other: str) -> BranchExists:
    """What to raise when there is a branch whose name overlaps with the one that is wanted."""
    if other == name:
        return BranchExists(
            f"The graph has a branch '{name}' already.",
            details={"branch": name},
            hint="Use it, choose another name, or delete it first.",
        )
    return BranchExists(
        f"'{name}' and the existing branch '{other}' cannot both be: one name is a folder of the other.",
        details={"branch": name, "other": other},
        hint=f"Choose a name that does not continue '{min(name, other, key=len)}/'.",
    )
