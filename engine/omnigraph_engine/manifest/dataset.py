"""``__manifest`` as a Lance dataset: creating it, opening a branch or a version of it, giving a branch its first version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import (
    BranchNotFound,
    CommitNotFound,
    GraphDamaged,
    GraphTooNew,
    GraphTooOld,
    ObjectNotFound,
    StorageError,
    VersionConflict,
    did_you_mean,
)
from omnigraph_engine.manifest.refs import (
    MAIN_BRANCH,
    MANIFEST,
    BranchInfo,
    Identifier,
    list_refs,
    read_ref,
    stored_branch,
    withdraw_ref,
)
from omnigraph_engine.manifest.rows import (
    INTERNAL_SCHEMA_VERSION,
    MAIN,
    MANIFEST_SCHEMA,
    STAMP_KEY,
    BranchStart,
    GraphCommit,
    Row,
    to_table,
)
from omnigraph_engine.manifest.state import ManifestState, commits, find_commit, find_request, rebuild
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import commit_exact, lance_errors, one_line
from omnigraph_engine.tables.staged import new_transaction_uuid


class Manifest:
    """One version of one branch's manifest, read once. It may be pickled: what it says travels, what is open does not."""

    def __init__(
        self,
        storage: Storage,
        branch: str | None,
        dataset: LanceDataset,
        info: BranchInfo = MAIN_BRANCH,
        *,
        borrowed: bool = False,
    ) -> None:
        self.storage = storage
        self.branch = branch
        self.info = info
        self.borrowed = (
            borrowed  # the branch has no version of its own yet; this is the one of its parent that it starts from
        )
        self.version = int(dataset.version)
        self._uri: str = dataset.uri
        self._open_dataset: LanceDataset | None = dataset

    def __getstate__(self) -> dict[str, Any]:
        state = self.state  # small; the rows hold all of history
        kept = {name: value for name, value in self.__dict__.items() if name != "rows"}
        return {**kept, "_open_dataset": None, "state": state}

    @property
    def _dataset(self) -> LanceDataset:
        if self._open_dataset is None:
            with lance_errors(f"Opening version {self.version} of the manifest"):
                self._open_dataset = lance.dataset(
                    self._uri, version=self.version, storage_options=self.storage.options or None
                )
        return self._open_dataset

    @property
    def branch_identifier(self) -> Identifier:
        return self.info.identifier

    @cached_property
    def rows(self) -> pa.Table:
        with lance_errors(f"Reading version {self.version} of the manifest"):
            return self._dataset.to_table()

    @cached_property
    def state(self) -> ManifestState:
        return rebuild(self.rows, branch=self.branch, version=self.version, lineage=self._lineage())

    def commits(self) -> Iterator[GraphCommit]:
        """The commits visible here, newest first: the branch's own, then those it inherited. Decoded as they are asked for."""
        return commits(self.rows, self._lineage())

    def _lineage(self) -> Iterator[str | None]:
        """The branch, the one it was made from, and so on up to main. Refs are read as far as they are needed."""
        yield self.branch
        info: BranchInfo | None = self.info
        while info is not None and info.parent is not None:
            yield stored_branch(info.parent)
            info = read_ref(self.storage, info.parent)

    def is_overtaken(self) -> bool:
        """Whether the branch has a newer version by now."""
        with lance_errors("Looking for the newest version of the manifest"):
            return int(self._dataset.latest_version) != self.version

    def holds(self, start: BranchStart) -> bool:
        """Whether the branch has begun: a version from before it does not say so."""
        return bool(pc.any(pc.equal(self.rows["object_id"], start.object_id)).as_py())

    def find_commit(self, commit_id: str) -> GraphCommit | None:
        """The commit of that id, when it is visible here."""
        return find_commit(self.rows, commit_id)

    def find_request(self, request: str) -> GraphCommit | None:
        """The commit that was made for this request, when it is visible here."""
        return find_request(self.rows, request)


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

    A branch whose creation died before its first version was written shows what that version will hold.

    Raises:
        ObjectNotFound: there is no manifest here at all.
        BranchNotFound: the graph has no such branch.
        CommitNotFound: the branch has no such version.
        GraphTooOld, GraphTooNew, GraphDamaged: the stamp is not ours to read.
    """
    if branch is None:
        return Manifest(storage, None, _open(storage, None, version))
    info = read_ref(storage, branch)
    if info is None:
        raise branch_not_found(storage, branch)
    try:
        own = Manifest(storage, branch, _open(storage, branch, version), info)
        if not info.marked or own.holds(BranchStart(info.life)):
            return own
        if version is not None:
            raise _no_version(branch, version)
    except ObjectNotFound:
        pass
    if not _parent_lives(storage, info):  # it died with its creator; nobody has ever used it
        raise branch_not_found(storage, branch)
    return Manifest(storage, branch, _parent_dataset(storage, info), info, borrowed=True)


def open_former(storage: Storage, branch: str | None, version: int) -> Manifest:
    """A version of a branch that may have been deleted since: what it wrote is there until it is cleaned up."""
    return Manifest(storage, branch, _open(storage, branch, version))


def list_branches(storage: Storage) -> list[BranchInfo]:
    """Every branch, main first, then by name. One whose creator died when its parent had gone never came to be."""
    refs = list_refs(storage)
    lives = {info.identifier for info in refs}
    return [info for info in refs if info.identifier[:-1] in lives or _has_begun(storage, info)]


def came_to_be(storage: Storage, info: BranchInfo) -> bool:
    """Whether a ref is that of a branch, as ``list_branches`` tells it of all."""
    return _parent_lives(storage, info) or _has_begun(storage, info)


def _has_begun(storage: Storage, info: BranchInfo) -> bool:
    try:
        open_manifest(storage, info.stored_name)
    except BranchNotFound:
        return False
    return True


def living_manifests(storage: Storage) -> Iterator[Manifest]:
    """The newest manifest of every branch; those that are deleted meanwhile are left out."""
    for info in list_refs(storage):
        try:
            yield open_manifest(storage, info.stored_name)
        except BranchNotFound:  # noqa: PERF203 - opening is what takes the time
            continue


def branch_not_found(storage: Storage, branch: str) -> BranchNotFound:
    known = [info.name for info in list_refs(storage) if info.name != branch]
    return BranchNotFound(
        f"The graph has no branch '{branch}'.", details={"branch": branch}, hint=did_you_mean(branch, known)
    )


def give_first_version(storage: Storage, info: BranchInfo) -> None:
    """The branch has a version of its own afterwards: what its parent held when it was forked. Anyone may call it, any
    number of times; only the first call has an effect.

    A name's very first version is Lance's clone of the parent's. On top of that, or of whatever else stands there, comes one
    that says which life begins with it: what does not say so is not of this life.

    Raises:
        BranchNotFound: it was deleted, or its parent was before it was complete, so that it never came to be.
    """
    if not _parent_lives(storage, info) or read_ref(storage, info.name) != info:
        raise branch_not_found(storage, info.name)
    _occupy(storage, info)
    while info.marked:
        # Exactly above what stands there: of several callers one writes it, and a publish of the name's former life that was
        # under way all the time can come before it but never after. The ref is read when HEAD is known, so that a caller
        # who was asleep finds either a later life's ref or a HEAD that has moved.
        dataset = _open(storage, info.stored_name, None)
        if read_ref(storage, info.name) != info:
            raise branch_not_found(storage, info.name)
        cloned = _is_clone(dataset, info)
        if not cloned and Manifest(storage, info.stored_name, dataset, info).holds(BranchStart(info.life)):
            return
        begin = _beginning(storage, info, dataset, cloned=cloned)
        try:
            transaction = Transaction(dataset.version, begin, uuid=new_transaction_uuid())
            commit_exact(storage, branch_path(info.stored_name), dataset, transaction)
        except VersionConflict:
            continue
        return


def end_life(storage: Storage, info: BranchInfo) -> None:
    """This life of the branch does not exist any more, and nobody who was about to begin it can disturb a later one.

    Lance writes the clone that begins a branch of a new name at the number of the parent's version, wherever HEAD is by then.
    One that comes late would hide a later life. So the number is taken before the ref goes.
    """
    _occupy(storage, info)
    withdraw_ref(storage, info)


def _occupy(storage: Storage, info: BranchInfo) -> None:
    """Some version stands below the branch's name, and where there was none it is the clone of its parent's."""
    if not _has_versions(storage, info.stored_name):
        _clone(storage, info)


def _clone(storage: Storage, info: BranchInfo) -> None:
    """Lance writes a branch's first version and then its ref. The ref is there, so it stops after the first half."""
    parent = stored_branch(info.parent or MAIN)
    # A version that is named is opened without a look at all the others.
    dataset = _open(storage, None, info.parent_version if parent is None else None)
    try:
        dataset.create_branch(info.name, (parent, info.parent_version))
    except (OSError, ValueError) as error:
        if not _has_versions(storage, info.stored_name):
            raise StorageError(
                f"Writing the first version of branch '{info.name}' failed: {one_line(error)}"
            ) from error


def _beginning(storage: Storage, info: BranchInfo, dataset: LanceDataset, *, cloned: bool) -> Any:
    """What makes the version below a name one of this life: a row more, where the parent's clone stands there as it was
    made; else its rows are taken over too.
    """
    row = to_table([BranchStart(info.life).to_row()])
    rows = row if cloned else pa.concat_tables([_parent_dataset(storage, info).to_table().cast(MANIFEST_SCHEMA), row])
    with lance_errors(f"Writing the first version of branch '{info.name}'"):
        parts = write_fragments(
            rows,
            dataset,
            mode="append" if cloned else "overwrite",
            data_storage_version="2.2",
            enable_stable_row_ids=True,
            storage_options=storage.options or None,
        )
    return LanceOperation.Append(parts) if cloned else LanceOperation.Overwrite(MANIFEST_SCHEMA, parts)


def _is_clone(dataset: LanceDataset, info: BranchInfo) -> bool:
    """Whether this is the version of the branch's parent, and nothing else: a branch's version is what it is for ever."""
    try:
        transaction: Any = dataset.read_transaction(dataset.version)
    except (OSError, ValueError, TypeError):  # then it is not one that pylance can read, and its rows are replaced
        return False
    made = transaction.operation
    parent = (stored_branch(info.parent or MAIN), info.parent_version)
    return isinstance(made, LanceOperation.Clone) and (made.ref_name, made.ref_version) == parent


def _parent_lives(storage: Storage, info: BranchInfo) -> bool:
    parent = read_ref(storage, info.parent or MAIN)
    return parent is not None and parent.identifier == info.identifier[:-1]


def _parent_dataset(storage: Storage, info: BranchInfo) -> LanceDataset:
    return _open(storage, stored_branch(info.parent or MAIN), info.parent_version)


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


def _open(storage: Storage, branch: str | None, version: int | None, *, again: bool = False) -> LanceDataset:
    uri = storage.uri(branch_path(branch))
    try:
        dataset = lance.dataset(uri, version=version, storage_options=storage.options or None)
    except (OSError, ValueError) as error:
        absent = "not found" in str(error)
        if absent and version is not None:
            raise _no_version(branch, version) from error
        stored = _has_versions(storage, branch)  # raises when the store is out of reach
        if absent and not stored:
            raise ObjectNotFound(f"There is no manifest at '{uri}'.", details={"path": branch_path(branch)}) from error
        if absent and not again:  # unless it was written in this moment
            return _open(storage, branch, version, again=True)
        raise GraphDamaged(
            f"The manifest '{uri}' cannot be opened: {one_line(error)}",
            hint="If the store is reachable, the manifest is damaged; restore it from a backup.",
        ) from error
    if branch is None:
        check_stamp(dataset.schema)
    return dataset


def _has_versions(storage: Storage, branch: str | None) -> bool:
    return bool(storage.list(f"{branch_path(branch)}/_versions", limit=1))


def _no_version(branch: str | None, version: int) -> CommitNotFound:
    return CommitNotFound(
        f"The manifest of '{branch or MAIN}' has no version {version}.",
        details={"branch": branch or MAIN, "version": version},
        hint="It never existed, or it was cleaned up; graph.commits.list() shows what there is.",
    )
