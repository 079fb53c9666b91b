"""Leases: who counts as alive, who waits for whom, and when a writer must stop. Time is a number that the tests move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash_scene import (
    AFTER,
    BEFORE,
    assert_at_rest,
    at,
    companies,
    content,
    dying,
    edges,
    graph_on,
    left_behind,
    names,
    new_local_graph,
    people,
    sidecar_paths,
)
from omnigraph_engine import failpoints
from omnigraph_engine.commit import coordinator, recovery, watch
from omnigraph_engine.commit.sidecar import Sidecar
from omnigraph_engine.errors import OperationUndone, WriterBusy
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.audit import RecoveryKind
from omnigraph_engine.storage import Storage
from omnigraph_engine.write.load import WriteOptions


class Clock:
    """A monotonic clock that moves when somebody sleeps or a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()

    def perf_counter(self) -> float:
        return time.perf_counter()

    def pass_time(self, seconds: float) -> Callable[[], None]:
        def move() -> None:
            self.now += seconds

        return move


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    for module in (coordinator, watch, recovery):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    graph = new_local_graph(tmp_path, social)
    graph.load({"Person": people("Ada")})
    return graph


def load_two_tables(graph: Graph, mode: str = "append") -> None:
    graph.load(
        {"Person": people("Ada", "Bob")[1 if mode == "append" else 0 :], "Knows": edges(("Ada", "Ada"))}, mode=mode
    )


def beat(storage: Storage) -> None:
    """The writer of the sidecar says that it lives."""
    sidecar = left_behind(storage)
    storage.put(sidecar.path, sidecar.renewed().to_json(storage))


# -- the writer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [Failpoint.ARM, Failpoint.COMMIT_TABLE], ids=["before the first", "after the first"])
def test_a_writer_whose_lease_ran_out_stops_before_its_next_effect_and_is_undone(
    graph: Graph, clock: Clock, point: Failpoint
) -> None:
    before = content(graph.storage)
    with (
        failpoints.installed(at(point, AFTER, clock.pass_time(30.0))),
        pytest.raises(OperationUndone, match="lease") as caught,
    ):
        load_two_tables(graph, "overwrite")
    assert caught.value.retryable
    assert caught.value.details["lease"] == 30.0
    assert content(graph.storage) == before
    assert_at_rest(graph.storage)
    assert [record.kind for record in graph.maintenance.recoveries()] == [RecoveryKind.ROLLED_BACK]


def test_an_append_whose_lease_ran_out_starts_over(graph: Graph, clock: Clock) -> None:
    with failpoints.installed(at(Failpoint.COMMIT_TABLE, AFTER, clock.pass_time(30.0))):
        load_two_tables(graph)
    assert names(graph.storage) == ["Ada", "Bob"]
    assert_at_rest(graph.storage)


def test_a_writer_that_has_used_up_half_its_lease_renews_it(graph: Graph, clock: Clock) -> None:
    beats: list[Sidecar] = []

    def handle(point: Failpoint, moment: Moment) -> None:
        if (point, moment) in {(Failpoint.ARM, AFTER), (Failpoint.COMMIT_TABLE, AFTER)}:
            clock.now += 20
        if (point, moment) in {(Failpoint.COMMIT_TABLE, BEFORE), (Failpoint.PUBLISH, BEFORE)}:
            beats.append(left_behind(graph.storage))

    with failpoints.installed(handle):
        load_two_tables(graph)  # sixty seconds on a lease of thirty
    assert [sidecar.beat for sidecar in beats] == [1, 2, 3]
    assert graph.maintenance.recoveries() == []
    assert_at_rest(graph.storage)


def test_a_writer_that_is_quick_does_not_rewrite_its_sidecar(graph: Graph, clock: Clock) -> None:
    beats: list[int] = []
    look = at(Failpoint.PUBLISH, BEFORE, lambda: beats.append(left_behind(graph.storage).beat))
    with failpoints.installed(look):
        load_two_tables(graph)
    assert beats == [0]
    assert clock.now == 1000.0


# -- the observer -------------------------------------------------------------------------------------------


def dead_writer(graph: Graph) -> None:
    """One that has armed with a lease of six seconds."""
    with dying(Failpoint.ARM, AFTER):
        graph_on(graph.storage, WriteOptions(lease=6)).load({"Person": people("Cleo")})


def test_a_writer_waits_out_the_lease_of_a_silent_one_on_its_tables(graph: Graph, clock: Clock) -> None:
    dead_writer(graph)
    graph.load({"Person": people("Bob")})
    assert 6 <= clock.now - 1000 < 7
    assert names(graph.storage) == ["Ada", "Bob"]
    assert_at_rest(graph.storage)


def test_a_writer_does_not_wait_for_others_on_other_tables(graph: Graph, clock: Clock) -> None:
    dead_writer(graph)
    graph.load({"Company": companies("Acme"), "Knows": edges(("Ada", "Ada"))})
    assert clock.now == 1000
    assert len(sidecar_paths(graph.storage)) == 1


def test_a_sidecar_that_changes_is_alive_for_another_lease(graph: Graph, clock: Clock) -> None:
    dead_writer(graph)
    beats = iter([1004.0, 1009.0])
    following = [next(beats)]

    def live_for_a_while() -> None:
        if following and clock.now >= following[0]:
            beat(graph.storage)
            following[:] = [moment for moment in [next(beats, None)] if moment is not None]

    clock.on_sleep = live_for_a_while
    graph.load({"Person": people("Bob")})
    assert 1015 <= clock.now < 1017
    assert_at_rest(graph.storage)


def test_a_writer_that_finishes_lets_the_next_one_in_at_once(graph: Graph, clock: Clock) -> None:
    dead_writer(graph)

    def finish() -> None:
        if clock.now >= 1002:
            clock.on_sleep = lambda: None
            graph.storage.delete(left_behind(graph.storage).path)

    clock.on_sleep = finish
    graph.load({"Person": people("Bob")})
    assert 1002 <= clock.now < 1003
    assert names(graph.storage) == ["Ada", "Bob"]


def test_a_wait_for_a_living_writer_ends_with_its_name(graph: Graph, clock: Clock) -> None:
    dead_writer(graph)
    operation = left_behind(graph.storage)
    clock.on_sleep = lambda: beat(graph.storage)
    patient = graph_on(graph.storage, WriteOptions(patience=10))
    with pytest.raises(WriterBusy) as caught:
        patient.load({"Person": people("Bob")})
    assert 1010 < clock.now < 1011
    assert caught.value.retryable
    assert caught.value.details == {"operations": [operation.operation_id], "tables": ["node:Person"]}
    assert names(graph.storage) == ["Ada"]
    assert sidecar_paths(graph.storage) == [operation.path]


def test_an_open_leaves_the_living_to_themselves(graph: Graph, clock: Clock) -> None:
    dead_writer(graph)
    clock.on_sleep = lambda: beat(graph.storage)
    Graph.open(graph.uri)
    assert clock.now < 1001
    assert len(sidecar_paths(graph.storage)) == 1
