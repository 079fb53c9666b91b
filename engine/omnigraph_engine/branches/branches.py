"""Branches over the whole graph: made in one step, deleted in one step, whatever dies in between.

Making a branch puts its ref; deleting it removes the ref. That is all the authority there is. A branch copies no data: its
tables are those of its parent until it writes to them. What a deleted branch leaves behind (lines of tables that nobody else
shows) is reclaimed afterwards, as far as that works, and blocks nobody when it does not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from omnigraph_engine.branches.names import check_name, overlaps, taken
from omnigraph_engine.commit.lines import life_of
from omnigraph_engine.commit.recovery import settle
from omnigraph_engine.commit.shown import shown_lines, sidecars
from omnigraph_engine.errors import (
    BranchExists,
    BranchHasDescendants,
    BranchNotFound,
    CommitNotFound,
    InvalidArgument,
    ObjectExists,
    OmnigraphError,
    StorageError,
)
from omnigraph_engine.failpoints import Failpoint, effect
from omnigraph_engine.history import manifest_at
from omnigraph_engine.manifest.dataset import (
    Manifest,
    came_to_be,
    end_life,
    give_first_version,
    list_branches,
    living_manifests,
    open_manifest,
)
from omnigraph_engine.manifest.refs import (
    BranchInfo,
    new_branch,
    put_ref,
    read_ref,
    ref_names,
    stored_branch,
)
from omnigraph_engine.manifest.rows import MAIN
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.heads import drop_line, forks_of
from omnigraph_engine.tables.table import TableRef

_log = logging.getLogger(__name__)


class Branches:
    """The branches of a graph."""

    def __init__(self, storage: Storage, require_writable: Callable[[], None]) -> None:
        self._storage = storage
        self._require_writable = require_writable

    def list(self) -> list[BranchInfo]:
        """Every branch, main first, then by name."""
        return list_branches(self._storage)

    def get(self, name: str) -> BranchInfo:
        """One branch. Raises ``BranchNotFound`` when there is none of that name."""
        return open_manifest(self._storage, stored_branch(name)).info

    def create(self, name: str, from_: str = MAIN, *, request: str | None = None) -> BranchInfo:
        """A branch of that name exists afterwards and shows what ``from_``, a branch or a commit, shows now.

        It takes the same time for any graph: no data is copied and no commit is made.

        Args:
            name: The new branch.
            from_: A branch or a commit.
            request: A text that no other creation has. A call that may have succeeded although its answer was lost can be
                repeated with it: it finds the branch that it has made.

        Raises:
            BranchExists: the name is taken, or a folder of a name that is.
            BranchNotFound, CommitNotFound: there is no such origin, or it was deleted meanwhile.
        """
        self._require_writable()
        check_name(name)
        try:
            info = self._put(name, from_, request)
        except BranchExists:
            made = read_ref(self._storage, name)
            if request is None or made is None or made.request != request:
                raise
            info = made
        self._begin(info)
        return info

    def _put(self, name: str, from_: str, request: str | None) -> BranchInfo:
        start = origin(self._storage, from_)
        if start.borrowed:  # its versions begin with the one that is missing
            give_first_version(self._storage, start.info)
            start = origin(self._storage, from_)
        self._check_free(name)
        info = new_branch(name, start.info, start.version, request)
        try:
            with effect(Failpoint.CREATE_BRANCH):
                put_ref(self._storage, info)
        except ObjectExists as error:
            raise BranchExists(
                f"The graph has a branch '{name}' already; it has just been made.", details={"branch": name}
            ) from error
        except StorageError:
            if read_ref(self._storage, name) != info:  # the answer was lost, but was the branch?
                raise
        return info

    def delete(self, name: str, *, life: str | None = None) -> None:
        """There is no such branch afterwards, and the name may be used again at once.

        Commits that only this branch had are gone with it; what was merged elsewhere stays there.

        Args:
            name: The branch.
            life: Which branch of that name, as its ``BranchInfo`` has it. When that one is gone already nothing is left to
                do, so that a call whose answer was lost can be repeated.

        Raises:
            BranchNotFound: there is no such branch.
            BranchHasDescendants: others were made from it; delete them first.
        """
        self._require_writable()
        if life is not None:
            standing = read_ref(self._storage, name)
            if standing is None or standing.life != life:
                return
        self._delete(self.check_deletable(name))

    def delete_merged(self, info: BranchInfo, merged: str) -> None:
        """This life of a branch does not exist afterwards, unless it holds more than the commit that was merged.

        What was merged is merged, so whatever stands against deleting it is a warning.
        """
        try:
            manifest = open_manifest(self._storage, info.name)
            if manifest.info != info:
                return
            if manifest.state.head.commit_id == merged:
                self._delete(self.check_deletable(info.name))
                return
            reason = "it has newer commits."
        except BranchNotFound:
            return
        except OmnigraphError as error:
            reason = error.message
        _log.warning("branch '%s' was merged and not deleted: %s", info.name, reason)

    def _delete(self, info: BranchInfo) -> None:
        name = info.name
        former = open_manifest(self._storage, name)
        try:
            with effect(Failpoint.DELETE_BRANCH):
                end_life(self._storage, info)
        except StorageError:
            if read_ref(self._storage, name) == info:  # the answer was lost, but is the branch gone?
                raise
        try:
            with effect(Failpoint.RECLAIM):
                self._discard_operations(info)
                self._reclaim(info, former)
        except OmnigraphError as error:
            _log.warning("what branch '%s' left behind is still there: %s", name, error.message)

    def check_deletable(self, name: str) -> BranchInfo:
        """The branch, which may be deleted; raises as ``delete`` does when it may not."""
        if name == MAIN or name.startswith("__"):
            raise InvalidArgument(f"'{name}' cannot be deleted.", hint="Only branches that were created can.")
        info = self.get(name)
        heirs = [other.name for other in self.list() if other.descends_from(info)]
        if heirs:
            raise BranchHasDescendants(
                f"'{name}' cannot be deleted: {', '.join(heirs)} were made from it.",
                details={"branch": name, "descendants": heirs},
                hint="Delete them first.",
            )
        return info

    def _check_free(self, name: str) -> None:
        """Nobody else's branch has the name, or one that overlaps with it, when this returns. Other refs are not read.

        A creation that died and whose parent is gone too never came to be a branch; its ref is removed where it is in the way.
        """
        for other in filter(partial(overlaps, name), ref_names(self._storage)):
            info = read_ref(self._storage, other)
            if info is not None and came_to_be(self._storage, info):
                raise taken(name, other)
            if info is not None and other == name:
                end_life(self._storage, info)

    def _begin(self, info: BranchInfo) -> None:
        """The branch exists already. When its first version cannot be written now, whoever writes to it first will do it."""
        try:
            with effect(Failpoint.BEGIN_BRANCH):
                give_first_version(self._storage, info)
        except StorageError as error:
            _log.warning("branch '%s' has no version of its own yet: %s", info.name, error.message)
        except BranchNotFound as error:
            end_life(self._storage, info)
            raise BranchNotFound(
                f"'{info.parent}' was deleted while '{info.name}' was being made from it.",
                details={"branch": info.parent},
            ) from error

    def _discard_operations(self, info: BranchInfo) -> None:
        """Nothing of an operation on the deleted branch can become visible any more; the audit trail says so."""
        for sidecar in sidecars(self._storage):
            authority = sidecar.authority
            if sidecar.branch == info.name and authority is not None and authority.branch_identifier == info.identifier:
                settle(self._storage, sidecar)

    def _reclaim(self, info: BranchInfo, former: Manifest) -> None:
        """Drops the lines that were forked for this life of the branch and that nobody can come to show."""
        kept = shown_lines(self._storage)
        own = {commit.commit_id for commit in former.commits() if commit.branch == info.name}
        merged_into = {
            commit.branch
            for manifest in living_manifests(self._storage)
            for commit in manifest.commits()
            if commit.merged_parent_id in own
        }
        if len(merged_into) > 1:
            return  # its commits may be what those branches have in common, and merging them takes the rows of that
        for table in former.state.tables.values():
            for line in forks_of(self._storage, table.location):
                if life_of(line) == info.life and line not in kept:
                    drop_line(self._storage, TableRef(table.table_key, table.location, line, 0))


def origin(storage: Storage, name: str) -> Manifest:
    """The manifest of a branch or of a commit. A name is a branch's first."""
    try:
        return manifest_at(storage, branch=name)
    except BranchNotFound as error:
        try:
            return manifest_at(storage, commit=name)
        except CommitNotFound:
            raise error from None
