"""``__manifest`` as a Lance dataset: creating it, opening a branch or a version of it, listing its branches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset

from omnigraph_engine.errors import (
    BranchNotFound,
    CommitNotFound,
    GraphDamaged,
    GraphTooNew,
    GraphTooOld,
    ObjectNotFound,
    did_you_mean,
)
from omnigraph_engine.manifest.rows import (
    INTERNAL_SCHEMA_VERSION,
    MAIN,
    MANIFEST_SCHEMA,
    STAMP_KEY,
    GraphCommit,
    Row,
    to_table,
)
from omnigraph_engine.manifest.state import ManifestState, find_commit, rebuild
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import lance_errors, one_line

MANIFEST = "__manifest"


@dataclass(frozen=True)
class BranchInfo:
    """A branch of the graph: a Lance branch of its manifest."""

    name: str
    parent: str | None  # None for main itself
    parent_version: int | None  # the manifest version it was forked at
    created_at: int | None  # seconds since the epoch
    identifier: tuple[tuple[int, str], ...]  # which life of the name this is; empty for main


class Manifest:
    """One version of one branch's manifest, read once."""

    def __init__(
        self,
        storage: Storage,
        branch: str | None,
        dataset: LanceDataset,
        branch_identifier: tuple[tuple[int, str], ...] = (),
    ) -> None:
        self.storage = storage
        self.branch = branch
        self.branch_identifier = branch_identifier
        self._dataset = dataset

    @property
    def version(self) -> int:
        return int(self._dataset.version)

    @cached_property
    def rows(self) -> pa.Table:
        with lance_errors(f"Reading version {self.version} of the manifest"):
            return self._dataset.to_table()

    @cached_property
    def state(self) -> ManifestState:
        return rebuild(self.rows, branch=self.branch, version=self.version)

    def is_overtaken(self) -> bool:
        """Whether the branch has a newer version by now."""
        with lance_errors("Looking for the newest version of the manifest"):
            return int(self._dataset.latest_version) != self.version

    def find_commit(self, commit_id: str) -> GraphCommit | None:
        """The commit of that id, when it is visible here."""
        return find_commit(self.rows, commit_id)


def branch_path(branch: str | None) -> str:
    """Where a branch's manifest lives, relative to the graph root."""
    return MANIFEST if branch is None else f"{MANIFEST}/tree/{branch}"


def create_manifest(storage: Storage, rows: Iterable[Row]) -> None:
    """The manifest exists afterwards with these rows as version 1, in one commit, or nothing of it is visible."""
    with lance_errors(f"Creating '{storage.uri(MANIFEST)}'"):
        lance.write_dataset(
            to_table(rows),
            storage.uri(MANIFEST),
            mode="create",
            data_storage_version="2.2",
            enable_stable_row_ids=True,
            storage_options=storage.options or None,
        )


def open_manifest(storage: Storage, branch: str | None = None, version: int | None = None) -> Manifest:
    """The manifest of a branch (None is main), at its newest version or at the one given.

    Raises:
        ObjectNotFound: there is no manifest here at all.
        BranchNotFound: the graph has no such branch.
        CommitNotFound: the branch has no such version.
        GraphTooOld, GraphTooNew, GraphDamaged: the stamp is not ours to read.
    """
    if branch is None:
        return Manifest(storage, None, _open(storage, None, version))
    known = {info.name: info for info in list_branches(storage)}
    if branch not in known:
        raise BranchNotFound(
            f"The graph has no branch '{branch}'.",
            details={"branch": branch},
            hint=did_you_mean(branch, known),
        )
    return Manifest(storage, branch, _open(storage, branch, version), known[branch].identifier)


def list_branches(storage: Storage) -> list[BranchInfo]:
    """Every branch, main first, then by name; the engine's own are not shown.

    A branch is what its ref file says: a dead creation may leave a readable folder without one.
    """
    root = _open(storage, None, None)
    with lance_errors("Listing the branches of the graph"):
        refs: dict[str, Any] = root.branches.list()
    visible = sorted((name, ref) for name, ref in refs.items() if not name.startswith("__"))
    return [
        BranchInfo(MAIN, None, None, None, ()),
        *(
            BranchInfo(
                name=name,
                parent=ref["parent_branch"] or MAIN,
                parent_version=ref["parent_version"],
                created_at=ref["create_at"],
                identifier=tuple((int(version), str(life)) for version, life in ref["branch_identifier"]),
            )
            for name, ref in visible
        ),
    ]


def check_stamp(schema: pa.Schema) -> None:
    """Raises unless a manifest with this schema is of the one format version that we read and write."""
    stamp = (schema.metadata or {}).get(STAMP_KEY)
    if stamp is None and "stable_table_id" in schema.names:
        raise GraphDamaged(
            "The manifest has the columns of a current graph but no format stamp.",
            hint="It is torn or damaged; restore __manifest from a backup.",
        )
    text = "1" if stamp is None else stamp.decode(errors="replace")
    if not text.isdecimal():
        raise GraphDamaged(f"The format stamp of the manifest is '{text}', not a number.")
    found = int(text)
    if found < INTERNAL_SCHEMA_VERSION:
        raise GraphTooOld(
            f"The graph has format version {found}; this package reads version {INTERNAL_SCHEMA_VERSION}.",
            details={"found": found, "supported": INTERNAL_SCHEMA_VERSION},
            hint="Export it with the OmniGraph release that wrote it and load the export into a new graph.",
        )
    if found > INTERNAL_SCHEMA_VERSION:
        raise GraphTooNew(
            f"The graph has format version {found}; this package knows versions up to {INTERNAL_SCHEMA_VERSION}.",
            details={"found": found, "supported": INTERNAL_SCHEMA_VERSION},
            hint="Upgrade the package: pip install -U omnigraph-spark.",
        )
    if not schema.equals(MANIFEST_SCHEMA):
        raise GraphDamaged("The manifest does not have the columns of its format version.")


def _open(storage: Storage, branch: str | None, version: int | None) -> LanceDataset:
    uri = storage.uri(branch_path(branch))
    try:
        dataset = lance.dataset(uri, version=version, storage_options=storage.options or None)
    except (OSError, ValueError) as error:
        if "not found" in str(error) and version is not None:
            raise CommitNotFound(
                f"The manifest of '{branch or MAIN}' has no version {version}.",
                details={"branch": branch or MAIN, "version": version},
                hint="It never existed, or it was cleaned up; graph.commits.list() shows what there is.",
            ) from error
        stored = storage.list(f"{branch_path(branch)}/_versions", limit=1)  # raises when the store is out of reach
        if "not found" in str(error) and not stored:
            raise ObjectNotFound(f"There is no manifest at '{uri}'.", details={"path": branch_path(branch)}) from error
        raise GraphDamaged(
            f"The manifest '{uri}' cannot be opened: {one_line(error)}",
            hint="If the store is reachable, the manifest is damaged; restore it from a backup.",
        ) from error
    if branch is None:
        check_stamp(dataset.schema)
    return dataset
