"""The refs of graph branches: small documents that say which branches there are (FORMAT 4).

A ref is the one authority on a branch: the branch exists exactly while its ref does. It is put if absent, so of several
creators one wins, and it names everything that the branch's first manifest version follows from; whoever finds that version
missing writes it. What else lies under a branch's name, left by a creation or a deletion that died, is residue: versions of a
branch say of which life they are, and nobody has to delete anything before the name can be used again.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from omnigraph_engine.errors import GraphDamaged, ObjectNotFound
from omnigraph_engine.manifest.rows import MAIN
from omnigraph_engine.storage import Storage

MANIFEST = "__manifest"
_REFS = f"{MANIFEST}/_refs/branches"
_START = "spark.start"  # in a ref's metadata: how a version of the branch is told from residue
_REQUEST = "spark.request"  # the request that made the branch

Identifier = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class BranchInfo:
    """A branch of the graph: a Lance branch of its manifest."""

    name: str
    parent: str | None  # None for main itself
    parent_version: int | None  # the manifest version it was forked at
    created_at: int | None  # seconds since the epoch
    identifier: Identifier  # which life of the name this is; empty for main
    marked: bool = False  # its versions say whose they are; those of branches that another engine made do not
    request: str | None = None  # whoever asked for it knows it by this, should the answer be lost

    @property
    def life(self) -> str:
        """What no other branch has, not even an earlier or later one of the same name."""
        return self.identifier[-1][1] if self.identifier else MAIN

    @property
    def stored_name(self) -> str | None:
        """The branch as the manifest spells it: main is the absence of a name."""
        return stored_branch(self.name)

    def descends_from(self, other: BranchInfo) -> bool:
        """Whether this branch was made of the other one, or of one that was."""
        return len(self.identifier) > len(other.identifier) and (
            self.identifier[: len(other.identifier)] == other.identifier
        )


MAIN_BRANCH = BranchInfo(MAIN, None, None, None, ())


def stored_branch(name: str) -> str | None:
    """A branch as the manifest spells it: main is the absence of a name."""
    return None if name == MAIN else name


def new_branch(name: str, parent: BranchInfo, parent_version: int, request: str | None = None) -> BranchInfo:
    """A life that nobody has lived yet."""
    return BranchInfo(
        name=name,
        parent=parent.name,
        parent_version=parent_version,
        created_at=int(time.time()),
        identifier=(*parent.identifier, (parent_version, uuid.uuid4().hex)),
        marked=True,
        request=request,
    )


def put_ref(storage: Storage, info: BranchInfo) -> None:
    """The branch exists afterwards. Raises ``ObjectExists`` when the name is taken."""
    ours = {_START: "row" if info.marked else None, _REQUEST: info.request}
    document = {
        "parentBranch": stored_branch(info.parent or MAIN),
        "identifier": {"version_mapping": [list(pair) for pair in info.identifier]},
        "parentVersion": info.parent_version,
        "createAt": info.created_at,
        "manifestSize": 0,  # of a version that is not written yet; nobody reads by it
        "metadata": {key: value for key, value in ours.items() if value is not None},
    }
    storage.put_if_absent(_ref_path(info.name), (json.dumps(document, indent=2) + "\n").encode())


def read_ref(storage: Storage, name: str) -> BranchInfo | None:
    """The branch as its ref describes it, or None when there is no such branch. Main has no ref and always is."""
    if name == MAIN:
        return MAIN_BRANCH
    try:
        data = storage.get(_ref_path(name))
    except ObjectNotFound:
        return None
    try:
        return _info(name, json.loads(data))
    except (ValueError, KeyError, TypeError) as error:
        raise GraphDamaged(
            f"The ref of branch '{name}' cannot be read: {error}.",
            details={"branch": name, "path": _ref_path(name)},
            hint="Nothing was changed. Restore the file from a backup.",
        ) from error


def withdraw_ref(storage: Storage, info: BranchInfo) -> None:
    """This life of the branch does not exist any more; a later one of the same name is left alone."""
    if read_ref(storage, info.name) == info:
        storage.delete(_ref_path(info.name))


def ref_names(storage: Storage) -> list[str]:
    """The names that have a ref, sorted, from one listing; the engine's own are not shown."""
    names = sorted(unquote(path.rsplit("/", 1)[-1].removesuffix(".json")) for path in storage.list(_REFS))
    return [name for name in names if not name.startswith("__")]


def list_refs(storage: Storage) -> list[BranchInfo]:
    """Everything that has a ref, main first, then by name; the engine's own are not shown."""
    found = (read_ref(storage, name) for name in ref_names(storage))
    return [MAIN_BRANCH, *(info for info in found if info is not None)]  # None: deleted meanwhile


def _info(name: str, ref: Mapping[str, Any]) -> BranchInfo:
    metadata = ref.get("metadata") or {}
    return BranchInfo(
        name=name,
        parent=ref["parentBranch"] or MAIN,
        parent_version=int(ref["parentVersion"]),
        created_at=int(ref["createAt"]),
        identifier=tuple((int(version), str(life)) for version, life in ref["identifier"]["version_mapping"]),
        marked=_START in metadata,
        request=metadata.get(_REQUEST),
    )


def _ref_path(name: str) -> str:
    return f"{_REFS}/{quote(name, safe='')}.json"
