"""Which lines of tables somebody shows, or is about to show: all others may be dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from omnigraph_engine.commit.sidecar import RECOVERY, Sidecar
from omnigraph_engine.commit.sidecar_reader import read_sidecar
from omnigraph_engine.compute import pc
from omnigraph_engine.errors import BranchNotFound, CommitNotFound, ObjectNotFound, WriterBusy
from omnigraph_engine.manifest.dataset import Manifest, living_manifests, open_former, open_manifest
from omnigraph_engine.manifest.refs import BranchInfo, list_refs, read_ref, stored_branch
from omnigraph_engine.manifest.rows import MAIN
from omnigraph_engine.storage import Storage

LOOKS = 20


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

    A line that is not among them can never be shown again: only a living branch that shows it can pass it on. While we look
    it may do so, and be deleted, and we have read the other one too early. So refs come first, then sidecars, then manifests;
    when a branch is gone by the time that its manifest is read, all is looked at anew. Otherwise whoever showed a line when we
    began still does, or its sidecar was there, or the commit of that is.

    Raises:
        WriterBusy: again and again a branch was gone.
    """
    for _ in range(LOOKS):
        refs = list_refs(storage)
        named = {
            intent.branch for sidecar in sidecars(storage) if sidecar.operation_id != but for intent in sidecar.tables
        }
        found = [_lines_of(storage, info) for info in refs]
        if None not in found:
            return named.union(*filter(None, found))
    raise WriterBusy(
        f"In each of {LOOKS} looks at what the branches show one of them was deleted.",
        hint="Nothing was dropped. A cleanup does it when fewer branches are deleted.",
    )


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


def _lines_of(storage: Storage, info: BranchInfo) -> set[str | None] | None:
    """What any commit of a branch shows; None when the branch is gone."""
    try:
        manifest = open_manifest(storage, info.stored_name)
    except BranchNotFound:
        if read_ref(storage, info.name) != info:
            return None
        # Its parent was deleted before it had begun; but its creator may be about to begin it.
        try:
            return _lines(open_former(storage, stored_branch(info.parent or MAIN), info.parent_version or 0))
        except (ObjectNotFound, CommitNotFound):
            return set()
    return _lines(manifest) if manifest.info == info else None


def _lines(manifest: Manifest) -> set[str | None]:
    # Of rows about versions of tables: those of commits have the graph's branch in the same column.
    versions = manifest.rows.filter(pc.equal(manifest.rows["object_type"], "table_version"))
    return set(pc.unique(versions["table_branch"]).to_pylist())
