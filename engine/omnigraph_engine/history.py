"""Which commits a graph has, and which manifest version a point in its history is."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import islice

from omnigraph_engine.arguments import whole_number
from omnigraph_engine.errors import CommitNotFound, InvalidArgument
from omnigraph_engine.manifest.dataset import Manifest, living_manifests, open_manifest
from omnigraph_engine.manifest.refs import stored_branch
from omnigraph_engine.manifest.rows import MAIN, GraphCommit
from omnigraph_engine.storage import Storage

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Commits:
    """The commits of a graph."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def list(self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None) -> list[GraphCommit]:
        """The commits visible on a branch, newest first: its own, then those it inherited."""
        if limit is not None:
            whole_number("limit", limit, least=0)
        found = open_manifest(self._storage, stored_branch(branch)).commits()
        return list(islice((commit for commit in found if actor is None or commit.actor == actor), limit))

    def show(self, commit_id: str) -> GraphCommit:
        """One commit, whichever branch it was made on."""
        for manifest in living_manifests(self._storage):
            commit = manifest.find_commit(commit_id)
            if commit is not None:
                return commit
        raise CommitNotFound(
            f"No branch of the graph has a commit '{commit_id}'.",
            details={"commit": commit_id},
            hint="graph.commits.list(branch) shows the commits of a branch.",
        )


def manifest_at(
    storage: Storage,
    *,
    branch: str | None = None,
    commit: str | None = None,
    version: int | None = None,
    timestamp: datetime | str | None = None,
) -> Manifest:
    """The manifest that a reader asks for: a branch's newest by default, or that of a commit, version or time.

    A commit names its branch itself; version and timestamp are of ``branch`` (main when not given).
    """
    given = [
        name
        for name, value in (("commit", commit), ("version", version), ("timestamp", timestamp))
        if value is not None
    ]
    if len(given) > 1:
        raise InvalidArgument(
            f"{' and '.join(given)} exclude each other.", hint="Give one of commit, version, timestamp."
        )
    if commit is not None:
        if branch is not None:
            raise InvalidArgument(
                "commit and branch exclude each other: a commit is of one branch.", hint="Drop branch."
            )
        found = Commits(storage).show(commit)
        return open_manifest(storage, found.branch, found.manifest_version)
    name = stored_branch(MAIN if branch is None else branch)
    if timestamp is not None:
        found = _commit_at(storage, name, _moment(timestamp))
        # What a branch showed before it was forked is what the branch it inherits from showed.
        return open_manifest(storage, found.branch, found.manifest_version)
    if version is not None and not (isinstance(version, int) and 0 < version < 2**63):
        raise InvalidArgument(f"version is {version!r}.", hint="Manifest versions are whole numbers, the first is 1.")
    return open_manifest(storage, name, version)


def _commit_at(storage: Storage, branch: str | None, moment: datetime) -> GraphCommit:
    micros = (moment - _EPOCH) // timedelta(microseconds=1)  # a float of seconds would be off by one here and there
    for commit in open_manifest(storage, branch).commits():
        if commit.created_at <= micros:
            return commit
    raise CommitNotFound(
        f"'{branch or MAIN}' has no commit as early as {moment.isoformat()}.",
        details={"branch": branch or MAIN, "timestamp": moment.isoformat()},
    )


def _moment(timestamp: datetime | str) -> datetime:
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
        except ValueError as error:
            raise InvalidArgument(
                f"'{timestamp}' is not a time.",
                hint="Use ISO 8601, e.g. 2026-11-18T09:30:00Z; without a zone it is UTC.",
            ) from error
    if not isinstance(timestamp, datetime):
        raise InvalidArgument(f"timestamp is {timestamp!r}.", hint="Give a datetime or a text in ISO 8601.")
    return timestamp.replace(tzinfo=timezone.utc) if timestamp.tzinfo is None else timestamp
