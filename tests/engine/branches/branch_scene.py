"""What the tests of branches share: what a branch shows, which lines its tables have, and what must hold at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lance
import pytest
from crash_scene import Crash, at, die, sidecar_paths
from omnigraph_engine import failpoints
from omnigraph_engine.commit.lines import life_of
from omnigraph_engine.failpoints import Failpoint, Handler, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.manifest.refs import stored_branch
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.heads import forks_of, head_version

PERSON, KNOWS, COMPANY = "node:Person", "edge:Knows", "node:Company"


def shown(graph: Graph, branch: str = "main", table: str = PERSON) -> list[str]:
    """The ids that a reader of the branch sees, each as often as it is there."""
    return sorted(graph.snapshot(branch=branch).table(table).to_arrow(["id"])["id"].to_pylist())


def line(graph: Graph, branch: str, table: str = PERSON) -> str | None:
    """The line of a table that the branch shows."""
    return graph.snapshot(branch=branch).table(table).published.branch


def forks(graph: Graph, table: str = PERSON) -> list[str]:
    """Every line of a table but its main one."""
    return forks_of(graph.storage, graph.snapshot().table(table).published.location)


def forks_for(graph: Graph, life: str) -> list[str]:
    """The lines of all tables that were forked for one life of a branch."""
    return [name for key in graph.snapshot().tables for name in forks(graph, key) if life_of(name) == life]


def branch_names(graph: Graph) -> list[str]:
    return [info.name for info in graph.branches.list()]


def ref_path(name: str) -> str:
    return f"__manifest/_refs/branches/{name.replace('/', '%2F')}.json"


def newest(storage: Storage, branch: str) -> int:
    """The newest manifest version that stands under a name, whoever left it there."""
    return int(lance.dataset(storage.uri(f"__manifest/tree/{branch}"), storage_options=storage.options or None).version)


def is_borrowed(graph: Graph, branch: str) -> bool:
    """Whether the branch has no version of its own yet."""
    return open_manifest(graph.storage, stored_branch(branch)).borrowed


def assert_all_at_rest(graph: Graph) -> None:
    """Nothing is left to settle: no sidecar, and on every branch each table's newest version is the one that it shows."""
    assert sidecar_paths(graph.storage) == []
    assert_heads_are_pins(graph)


def assert_heads_are_pins(graph: Graph) -> None:
    for branch in branch_names(graph):
        for table in graph.snapshot(branch=branch).tables.values():
            if table.ref.branch is not None or branch == "main":
                assert head_version(graph.storage, table.ref) == table.published.version, (branch, table)


def each_time(point: Failpoint, moment: Moment, *actions: Callable[[], None]) -> Handler:
    """Does the n-th action when a failpoint is reached for the n-th time."""
    left = list(actions)

    def handle(reached: Failpoint, now: Moment) -> None:
        if (reached, now) == (point, moment) and left:
            left.pop(0)()

    return handle


def both(first: Handler, second: Handler) -> Handler:
    def handle(point: Failpoint, moment: Moment) -> None:
        first(point, moment)
        second(point, moment)

    return handle


@contextmanager
def meanwhile(point: Failpoint, moment: Moment, action: Callable[[], None]) -> Iterator[None]:
    """Somebody else does something while the block's process stands at a failpoint."""
    with failpoints.installed(at(point, moment, action)):
        yield


def dies(point: Failpoint, moment: Moment, action: Callable[[], object]) -> None:
    """Somebody's process dies at the point while doing something, also within another's ``meanwhile``."""
    with failpoints.installed(at(point, moment, die)), pytest.raises(Crash):
        action()
