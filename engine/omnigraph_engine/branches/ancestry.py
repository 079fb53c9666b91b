"""Where two lines of history meet. Pure, over the commits that manifests hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph_engine.manifest.rows import GraphCommit


def ancestors(commit_id: str, known: Mapping[str, GraphCommit]) -> set[str]:
    """The commit and all that it contains, by either parent. One that nobody knows any more counts, but leads no further."""
    found: set[str] = set()
    todo = [commit_id]
    while todo:
        current = todo.pop()
        if current in found:
            continue
        found.add(current)
        todo += _parents(current, known)
    return found


def _parents(commit_id: str, known: Mapping[str, GraphCommit]) -> list[str]:
    commit = known.get(commit_id)
    if commit is None:
        return []
    return [parent for parent in (commit.parent_id, commit.merged_parent_id) if parent is not None]


def nearest_common(source: str, target: str, known: Mapping[str, GraphCommit]) -> list[str]:
    """The commits that both contain and that no other such commit contains, newest first.

    There is one, unless the histories merged each other crosswise.
    """
    common = ancestors(source, known) & ancestors(target, known)
    # What common commits contain is common too, so their parents are all that is passed over.
    passed = {parent for commit_id in common for parent in _parents(commit_id, known)}
    return sorted(common - passed, reverse=True)  # ids begin with the time at which they were made


def by_id(commits: Iterable[GraphCommit]) -> dict[str, GraphCommit]:
    return {commit.commit_id: commit for commit in commits}
