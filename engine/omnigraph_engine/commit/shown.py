"""Which lines of tables somebody shows, or is about to show: all others may be dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from omnigraph_engine.commit.sidecar import RECOVERY, Sidecar
from omnigraph_engine.commit.sidecar_reader import read_sidecar
from omnigraph_engine.compute import pc
from omnigraph_engine.errors import BranchNotFound, CommitNotFound, ObjectNotFound
from omnigraph_engine.manifest.dataset import Manifest, living_manifests, open_former, open_manifest
from omnigraph_engine.manifest.refs import BranchInfo, list_refs, stored_branch
from omnigraph_engine.manifest.rows import MAIN
from omnigraph_engine.storage import Storage


def sidecars(storage: Storage) -> Iterator[Sidecar]:
    """Every operation that is under way or was left behind. Raises when one of them cannot be read."""
    for path in storage.list(RECOVERY):
        try:
            data = storage.get(path)
        except ObjectNotFound:  # it has just ended
            continue
        yield read_sidecar(path, data)


def shown_lines(storage: Storage, *, but: str | None = None) -> set[str | None]:
    """The lines that any commit of a living branch shows, and those of operations under way, ``but`` one of them.

    Sidecars are looked at first: when one is gone by then, its commit stands in a manifest.
    """
    named = {intent.branch for sidecar in sidecars(storage) if sidecar.operation_id != but for intent in sidecar.tables}
    for manifest in _manifests(storage):
        named.update(_lines(manifest))
    return named


def lines_in_common(storage: Storage) -> set[str | None]:
    """The lines that merges into several living branches have in common, of commits whose branch was deleted.

    Merging these branches may take the rows of such a commit as its base. What was merged into one branch alone is behind
    that merge for everybody who has it. Merges under way count; they are looked at first, as in ``shown_lines``.
    """
    under_way = [(sidecar.branch, sidecar.merged_commit_id, sidecar.extra) for sidecar in sidecars(storage)]
    known = {commit.commit_id: commit for manifest in living_manifests(storage) for commit in manifest.commits()}
    visible = [(commit.branch, commit.merged_parent_id, commit.extra) for commit in known.values()]
    former = [
        (into, extra["merge"])
        for into, merged, extra in (*under_way, *visible)
        if merged is not None and merged not in known and "merge" in extra
    ]
    if len({into for into, _ in former}) < 2:
        return set()
    shown_by: dict[str | None, set[str | None]] = defaultdict(set)
    for into, merge in former:
        try:
            manifest = open_former(storage, stored_branch(merge["source"]), int(merge["source_version"]))
        except (ObjectNotFound, CommitNotFound):  # its rows are gone: it is nobody's base
            continue
        for line in _lines(manifest):
            shown_by[line].add(into)
    return {line for line, branches in shown_by.items() if len(branches) > 1}


def _manifests(storage: Storage) -> Iterator[Manifest]:
    """The newest manifest of every branch, also of one that is just being made."""
    for info in list_refs(storage):
        manifest = _newest(storage, info)
        if manifest is not None:
            yield manifest


def _newest(storage: Storage, info: BranchInfo) -> Manifest | None:
    try:
        return open_manifest(storage, info.stored_name)
    except BranchNotFound:  # deleted, or its parent was before it had begun: but its creator may be about to begin it
        parent, version = stored_branch(info.parent or MAIN), info.parent_version
    try:
        return None if version is None else open_former(storage, parent, version)
    except (ObjectNotFound, CommitNotFound):
        return None


def _lines(manifest: Manifest) -> list[str | None]:
    # Of rows about versions of tables: those of commits have the graph's branch in the same column.
    versions = manifest.rows.filter(pc.equal(manifest.rows["object_type"], "table_version"))
    return list(pc.unique(versions["table_branch"]).to_pylist())
