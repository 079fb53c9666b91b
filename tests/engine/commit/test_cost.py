"""The price of a commit: counted operations, flat in history and in proportion to the tables that it moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from crash_scene import Faulty, companies, edges, graph_on, people
from lance import LanceDataset
from omnigraph_engine.commit.sidecar import RECOVERY
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.manifest.publisher import Publication, publish
from omnigraph_engine.manifest.state import commits
from omnigraph_engine.schema.contract import STATE_FILE
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.fold import FOLD_AT
from omnigraph_engine.write.graph_transaction import ArrowData
from ulid import ULID


@dataclass
class Cost:
    asked: list[tuple[str, str]] = field(default_factory=list)  # of small objects: verb and path
    opened: Counter[str] = field(default_factory=Counter)  # datasets, by address
    reads: int = 0
    writes: int = 0

    @property
    def operations(self) -> int:
        return len(self.asked) + self.reads + self.writes


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    graph = Graph.create(tmp_path / "graph.omni", social)
    graph.load({"Person": people("Ada"), "Company": companies("Acme"), "Knows": edges(("Ada", "Ada"))})
    return graph_on(Faulty(graph.storage))


@contextmanager
def counted(graph: Graph) -> Iterator[Cost]:
    """What the block costs: every small object, and every read and write of a dataset that is opened in it."""
    storage = graph.storage
    assert isinstance(storage, Faulty)
    cost, handles = Cost(), []
    real = LanceDataset.__init__

    def record(self: LanceDataset, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        handles.append(self)

    storage.asked.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LanceDataset, "__init__", record)
        yield cost
    cost.asked = list(storage.asked)
    for handle in handles:
        cost.opened[handle.uri.removeprefix(f"{storage.root}/")] += 1
        stats = handle.io_stats_incremental()
        cost.reads += stats.read_iops
        cost.writes += stats.write_iops


def data_tables(cost: Cost) -> dict[str, int]:
    return {path: times for path, times in cost.opened.items() if path.startswith(("nodes/", "edges/"))}


def test_a_keyed_write_reads_the_schema_state_once_and_opens_its_table_once(graph: Graph) -> None:
    for mode in ("append", "merge"):
        with counted(graph) as cost:
            graph.load({"Company": companies(f"new by {mode}")}, mode=mode)
        assert cost.asked.count(("get", STATE_FILE)) == 1
        assert data_tables(cost) == {graph.snapshot().table("Company").published.location: 1}


def test_every_table_that_a_write_touches_or_checks_against_is_opened_once(graph: Graph) -> None:
    with counted(graph) as cost:
        graph.load({"Person": people("Bob"), "WorksAt": edges(("Ada", "Acme"))})
    locations = [graph.snapshot().table(name).published.location for name in ("Person", "Company", "WorksAt")]
    assert data_tables(cost) == dict.fromkeys(locations, 1)


def test_without_sidecars_the_barrier_costs_one_listing(graph: Graph) -> None:
    with counted(graph) as cost:
        graph.load({"Person": people("Bob")})
    small = [(verb, path.split("/")[0]) for verb, path in cost.asked]
    assert Counter(verb for verb, path in small if path == RECOVERY) == {"list": 1, "put_if_absent": 1, "delete": 1}


def dearest(graph: Graph, first: int, make: Any) -> tuple[int, Counter[str]]:
    """The most that a commit of one whole fold period costs: all operations, and small objects by verb."""
    operations, verbs = 0, Counter[str]()
    for number in range(first, first + FOLD_AT):
        with counted(graph) as cost:
            graph.load(make(number))
        operations = max(operations, cost.operations)
        verbs |= Counter(verb for verb, _ in cost.asked)
    return operations, verbs


def lengthen(storage: Storage, length: int) -> None:
    """Commits that move nothing make the graph's history this long."""
    for _ in range(length - sum(1 for _ in commits(open_manifest(storage).rows))):
        publish(storage, Publication(str(ULID()), None, (), {}))


def test_the_price_of_a_commit_does_not_grow_with_history(graph: Graph) -> None:
    def one_person(number: int) -> dict[str, ArrowData]:
        return {"Person": people(f"p{number}")}

    prices: dict[int, tuple[int, Counter[str]]] = {}
    done = 0
    for history in (10, 100, 1000):
        for number in range(done, history // 10):
            graph.load(one_person(number))
        done = max(done, history // 10)
        lengthen(graph.storage, history)
        prices[history] = dearest(graph, done, one_person)
        done += FOLD_AT
    few, some, many = (prices[history] for history in (10, 100, 1000))
    # A fold of the table and one of the manifest may fall on one commit, or not.
    for longer in (some, many):
        assert max((longer[1] - few[1]).values(), default=0) <= 1
    # A few reads more for each size class that folding has filled by then; nothing that follows the number of commits.
    # Reads that come close together in time are joined by Lance, so on a busy machine their number wavers.
    assert many[0] <= 1.5 * few[0]


def test_two_tables_cost_at_most_twice_as_much_as_one(graph: Graph) -> None:
    with counted(graph) as one:
        graph.load({"Person": people("Bob")})
    with counted(graph) as two:
        graph.load({"Person": people("Cleo"), "Company": companies("Brno")})
    assert one.operations < two.operations <= 2 * one.operations
