"""Random histories: whatever was loaded, branched, merged, deleted and left half done, a cleanup takes nothing that shows."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from branch_scene import PERSON, forks, shown
from cleanup_scene import clean, everything
from crash_scene import AFTER, BEFORE, Crash, abandon, at, dataset, die, reopened
from omnigraph_engine import failpoints
from omnigraph_engine.errors import MergeConflict, OmnigraphError
from omnigraph_engine.failpoints import Failpoint
from omnigraph_engine.graph import Graph
from omnigraph_engine.write.load import LoadMode

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
STEPS = 24
DEATHS = [
    Failpoint.STAGE,
    Failpoint.ARM,
    Failpoint.FORK,
    Failpoint.COMMIT_TABLE,
    Failpoint.CONFIRM,
    Failpoint.PUBLISH,
    Failpoint.DISARM,
    Failpoint.BEGIN_BRANCH,
    Failpoint.RECLAIM,
    Failpoint.OWN_UNDO,
    Failpoint.ABORT,
    Failpoint.RESTORE,
    Failpoint.CONVERGE,
]


class History:
    """One random history of a graph."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.graph = graph
        self.random = random.Random(seed)  # noqa: S311 - a history, not a secret
        self.names = 0

    def step(self) -> None:
        verbs: list[Callable[[], object]] = [
            *[self.load] * 6,
            *[self.load_little] * 2,
            self.empty,
            *[self.create] * 2,
            self.branch_off_a_commit,
            *[self.merge] * 3,
            self.delete,
            self.give_up,
            self.fork_by_hand,
        ]
        verb = self.random.choice(verbs)
        if self.random.random() < 0.3:
            self.dying(verb)
        else:
            with suppress(OmnigraphError):  # a merge that conflicts, a branch that has heirs
                verb()

    def dying(self, verb: Callable[[], object]) -> None:
        """Its process dies somewhere; sometimes a recoverer comes, which may die too."""
        point, moment = self.random.choice(DEATHS), self.random.choice([BEFORE, AFTER])
        with failpoints.installed(at(point, moment, die)):
            try:
                verb()
            except Crash:
                pass
            except OmnigraphError:
                return
        abandon(self.graph.storage)
        if self.random.random() < 0.3:
            with failpoints.installed(at(self.random.choice(DEATHS[-4:]), moment, die)), suppress(Crash):
                reopened(self.graph.storage)
            abandon(self.graph.storage)
        self.graph = reopened(self.graph.storage)

    def load(self) -> None:
        mode = self.random.choice([LoadMode.MERGE, LoadMode.MERGE, LoadMode.APPEND])
        data = {"Person": self.people(self.random.randint(1, 4), fresh=mode is LoadMode.APPEND)}
        branch = self.branch()
        if self.random.random() < 0.5:
            known = shown(self.graph, branch)
            pairs = [(self.random.choice(known), self.random.choice(known)) for _ in range(2 if known else 0)]
            data["Knows"] = pa.table(
                {
                    "id": [self.name() for _ in pairs],
                    "src": [source for source, _ in pairs],
                    "dst": [target for _, target in pairs],
                    "since": pa.array([1] * len(pairs), pa.int32()),
                }
            )
        self.graph.load(data, mode=mode, branch=branch)

    def load_little(self) -> None:
        """So many small fragments that they are folded."""
        branch = self.branch()
        for _ in range(self.random.randint(3, 9)):
            self.graph.load({"City": pa.table({"name": [self.name()]})}, branch=branch)

    def empty(self) -> None:
        self.graph.load({"City": pa.table({"name": [self.name()]})}, mode="overwrite", branch=self.branch())

    def create(self) -> None:
        self.graph.branches.create(self.random.choice("abcde"), self.branch())

    def branch_off_a_commit(self) -> None:
        commit = self.random.choice(self.graph.commits.list(self.branch()))
        self.graph.branches.create(self.random.choice("abcde"), commit.commit_id)

    def merge(self) -> None:
        on_conflict = self.random.choice(["ours", "theirs"])
        self.graph.merge(self.branch(), self.branch(), on_conflict=on_conflict)

    def delete(self) -> None:
        self.graph.branches.delete(self.branch())

    def give_up(self) -> None:
        """A load that is staged, and never committed."""
        load = self.graph.begin_load(self.branch())
        mode = self.random.choice(list(LoadMode))
        load.stage_part(PERSON, self.people(3, fresh=mode is LoadMode.APPEND).to_batches(), mode)

    def fork_by_hand(self) -> None:
        root = dataset(self.graph.storage, PERSON)
        name = self.random.choice("abcde")
        if name not in root.branches.list():
            root.create_branch(name, root.version)

    def branch(self) -> str:
        return self.random.choice([info.name for info in self.graph.branches.list()])

    def people(self, count: int, *, fresh: bool) -> pa.Table:
        names = [self.name() if fresh else f"p{number}" for number in self.random.sample(range(8), count)]
        photos = [self.random.choice([None, b"", b"small", b"large" * 50_000]) for _ in names]
        ages = [self.random.randint(0, 99) for _ in names]
        return pa.table(
            {"name": names, "age": pa.array(ages, pa.int32()), "photo": pa.array(photos, pa.large_binary())}
        )

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"


@pytest.mark.parametrize("seed", range(3))
def test_after_a_cleanup_every_commit_of_every_branch_reads_as_before_and_all_goes_on(
    tmp_path: Path, seed: int
) -> None:
    history = History(Graph.create(tmp_path / "graph.omni", SCHEMA), seed)
    reclaimed = 0
    for step in range(1, STEPS + 1):
        history.step()
        if step % 12 == 0:
            reclaimed += clean(history.graph).total.files
    graph = history.graph
    assert reclaimed > 0
    assert not [name for name in forks(graph) if len(name) == 1]
    for info in graph.branches.list():
        graph.load({"City": pa.table({"name": ["Last"]})}, mode="merge", branch=info.name)
        if info.name != "main":
            with suppress(MergeConflict):  # of branches that merged each other crosswise
                graph.merge(info.name, on_conflict="theirs")
    before = everything(graph)
    clean(graph)
    assert everything(graph) == before
