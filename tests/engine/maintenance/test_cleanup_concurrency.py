"""A cleanup beside writers, branches that come and go, and other cleanups: nobody loses what they commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from branch_scene import KNOWS, PERSON, forks, line, shown
from cleanup_scene import NOW, age, clean, everything, left_over, stored
from crash_scene import BEFORE, Crash, Faulty, dying, edges, graph_on, people, reopened
from omnigraph_engine.errors import ObjectNotFound
from omnigraph_engine.failpoints import ENVIRONMENT_VARIABLE, Failpoint
from omnigraph_engine.graph import Graph
from omnigraph_engine.maintenance.cleanup import GRACE
from omnigraph_engine.write.load import LoadMode

CHILD = Path(__file__).parent / "staging_child.py"


def start(graph: Graph, fault: str, mode: str = "append", branch: str = "main") -> subprocess.Popen[bytes]:
    environment = {**os.environ, ENVIRONMENT_VARIABLE: fault}
    return subprocess.Popen([sys.executable, CHILD, graph.uri, mode, branch], env=environment)


def killed(graph: Graph, fault: str, mode: str = "append", branch: str = "main") -> None:
    assert start(graph, fault, mode, branch).wait(60) == -signal.SIGKILL


@contextmanager
def stopped(graph: Graph, fault: str, mode: str = "append", branch: str = "main") -> Iterator[None]:
    """Inside the block the writer stands at a place; afterwards it goes on, and must succeed."""
    process = start(graph, fault, mode, branch)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield
    finally:
        process.send_signal(signal.SIGCONT)
        code = process.wait(60)
    assert code == 0


def between_the_looks(graph: Graph, action: Callable[[], object]) -> Graph:
    """A handle whose cleanup is interrupted once by ``action``: after the first look at Person, before the second."""
    place = graph.snapshot().table(PERSON).published.location
    left, listed = [action], [0]

    def watch(verb: str, path: str) -> bool:
        listed[0] += (verb, path) == ("list", place)
        if (verb, path) == ("list", "__recovery") and listed[0] == 1 and left:
            left.pop()()
        return False

    return graph_on(Faulty(graph.storage, watch))


# -- a writer in another process --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "fault", "expected"),
    [
        ("append", "sidecar.arm:before=kill", {"data": 1}),
        ("overwrite", "sidecar.arm:before=kill", {"data": 1}),
        ("merge", "stage.write#2:before=kill", {"data": 1}),  # staged, and not yet gathered
        ("merge", "sidecar.arm:before=kill", {"data": 1, "deletions": 1}),
    ],
)
def test_what_a_killed_writer_staged_is_taken(graph: Graph, mode: str, fault: str, expected: dict[str, int]) -> None:
    killed(graph, fault, mode)
    assert left_over(graph.maintenance.cleanup(confirm=True)) == {}
    age(graph)
    report = clean(graph, GRACE)
    assert left_over(report) == {PERSON: expected}
    assert len(report.staged) == ("stage.write" in fault)
    assert shown(graph) == ["Ada", "Bob"]


@pytest.mark.parametrize("branch", ["main", "dev"])
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_writer_that_has_staged_and_lives_loses_nothing(graph: Graph, mode: str, branch: str) -> None:
    graph.branches.create("dev")
    with stopped(graph, "sidecar.arm:before=stop", mode, branch):
        assert graph.maintenance.cleanup(older_than=timedelta(hours=1), confirm=True).total.files == 0
    assert shown(graph, branch) == ["Ada", "Bob", "Child"]
    clean(graph)


@pytest.mark.parametrize("branch", ["main", "dev"])
@pytest.mark.parametrize("place", ["sidecar.arm:after", "table.commit:after", "manifest.publish:after"])
def test_a_writer_that_is_committing_loses_nothing_however_old_its_files_are(
    graph: Graph, place: str, branch: str
) -> None:
    graph.branches.create("dev")
    with stopped(graph, f"{place}=stop", "merge", branch):
        age(graph)
        report = graph.maintenance.cleanup(confirm=True)
        assert (dict(report.tables), list(report.skipped)) == ({}, [PERSON])
    assert shown(graph, branch) == ["Ada", "Bob", "Child"]
    clean(graph)


def test_a_load_whose_staged_rows_were_taken_is_refused_also_where_no_rule_reads_them(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path / "notes.omni", "node Note { text: String }")
    load = graph.begin_load()
    staged = load.stage("node:Note", [pa.RecordBatch.from_pydict({"text": ["kept for too long"]})], LoadMode.APPEND)
    assert staged is not None
    assert graph.maintenance.cleanup(older_than=timedelta(0), confirm=True).total.files == 1

    with pytest.raises(ObjectNotFound, match=r"Staged rows of node:Note .* load again"):
        load.commit([staged])

    assert len(graph.commits.list()) == 1
    graph.load({"Note": pa.table({"text": ["written at once"]})})
    assert graph.snapshot().table("Note").to_arrow(columns=["text"])["text"].to_pylist() == ["written at once"]


# -- between the first look and the second ----------------------------------------------------------------------


@pytest.mark.parametrize("branch", ["main", "dev"])
@pytest.mark.parametrize("mode", list(LoadMode))
def test_old_files_that_are_committed_after_the_first_look_stay(graph: Graph, mode: LoadMode, branch: str) -> None:
    graph.branches.create("dev")
    load = graph.begin_load(branch)
    names = ("Cleo",) if mode is LoadMode.APPEND else ("Ada", "Bob", "Cleo")
    staged = load.stage(PERSON, people(*names).to_batches(), mode)
    assert staged is not None
    age(graph)
    cleaner = between_the_looks(graph, lambda: load.commit([staged]))
    assert cleaner.maintenance.cleanup(confirm=True).total.files == 0
    assert shown(graph, branch) == ["Ada", "Bob", "Cleo"]
    everything(graph)


def test_a_table_that_an_operation_takes_up_after_the_first_look_is_left_alone(graph: Graph) -> None:
    load = graph.begin_load()
    load.stage(PERSON, people("Cleo").to_batches(), LoadMode.APPEND)

    def arm() -> None:
        with dying(Failpoint.COMMIT_TABLE, BEFORE):
            graph.load({"Person": people("Dead")})

    before = stored(graph)
    report = between_the_looks(graph, arm).maintenance.cleanup(older_than=NOW, confirm=True)
    assert list(report.skipped) == [PERSON]
    assert before.keys() <= stored(graph).keys()


def test_a_line_that_is_adopted_after_the_first_look_stays_although_its_branch_goes(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    name = line(graph, "dev")
    graph.branches.create("gone", "dev")  # so that there is something to take
    graph.load({"Person": people("Dora")}, branch="gone")
    lost = line(graph, "gone")
    with dying(Failpoint.RECLAIM, BEFORE):
        graph.branches.delete("gone")

    def merge_and_delete() -> None:
        graph.merge("dev")
        with dying(Failpoint.RECLAIM, BEFORE):
            graph.branches.delete("dev")

    report = between_the_looks(graph, merge_and_delete).maintenance.cleanup(older_than=NOW, confirm=True)
    assert list(report.tables[PERSON].lines) == [lost]
    assert forks(graph) == [name]
    assert shown(graph) == ["Ada", "Bob", "Cleo"]


def test_lines_of_a_branch_that_is_deleted_after_the_first_look_stay_until_the_next_cleanup(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    load = graph.begin_load()
    load.stage(PERSON, people("Lost").to_batches(), LoadMode.APPEND)

    def delete() -> None:
        with dying(Failpoint.RECLAIM, BEFORE):
            graph.branches.delete("dev")

    report = between_the_looks(graph, delete).maintenance.cleanup(older_than=NOW, confirm=True)
    assert left_over(report) == {PERSON: {"data": 1}}
    assert len(forks(graph)) == 1
    assert len(clean(graph).tables[PERSON].lines) == 1


def test_a_branch_that_is_made_and_written_after_the_first_look_keeps_all_it_shows(graph: Graph) -> None:
    load = graph.begin_load()
    load.stage(PERSON, people("Lost").to_batches(), LoadMode.APPEND)

    def make() -> None:
        graph.branches.create("dev")
        graph.load({"Person": people("Cleo"), "Knows": edges(("Cleo", "Ada"))}, branch="dev", mode="merge")

    report = between_the_looks(graph, make).maintenance.cleanup(older_than=NOW, confirm=True)
    assert left_over(report) == {PERSON: {"data": 1}}
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]
    assert shown(graph, "dev", KNOWS) == ["Ada-Bob", "Cleo-Ada"]


# -- cleanups that fail, die, or meet -----------------------------------------------------------------------------


def litter(graph: Graph) -> dict[str, dict[str, int]]:
    for name in ("L1", "L2", "L3"):
        load = graph.begin_load()
        load.stage(PERSON, people(name).to_batches(), LoadMode.APPEND)
    for name in ("a", "b"):
        graph.branches.create(name)
        graph.load({"Person": people("Cleo")}, branch=name)
        with dying(Failpoint.RECLAIM, BEFORE):
            graph.branches.delete(name)
    return left_over(graph.maintenance.cleanup(older_than=NOW))


def test_what_the_store_does_not_delete_is_a_warning_and_the_next_cleanup_takes_it(graph: Graph) -> None:
    litter(graph)
    refused = next(path for path in stored(graph) if "/data/" in path and "tree" not in path)
    before = graph.maintenance.cleanup(older_than=NOW).total.files
    broken = graph_on(Faulty(graph.storage, lambda verb, path: verb == "delete" and "/data/" in path))
    report = broken.maintenance.cleanup(older_than=NOW, confirm=True)
    assert "no answer" in report.warnings[0]
    assert len(report.warnings) == 5  # three that were staged, and two that the lines which went had named
    assert set(left_over(report)[PERSON]) == {f"line {name}" for name in report.tables[PERSON].lines}
    assert refused in stored(graph)
    assert left_over(clean(graph)) == {PERSON: {"data": 5}}
    assert before > 5


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_what_a_cleanup_that_died_left_the_next_one_takes(graph: Graph, nth: int) -> None:
    litter(graph)
    deletions = [0]

    def die(verb: str, path: str) -> bool:
        deletions[0] += verb == "delete" and not path.startswith("__staged")
        if deletions[0] == nth:
            raise Crash
        return False

    before = everything(graph)
    with pytest.raises(Crash):
        graph_on(Faulty(graph.storage, die)).maintenance.cleanup(older_than=NOW, confirm=True)
    assert everything(graph) == before
    clean(graph)
    assert forks(graph) == []


def test_cleanups_at_the_same_time_do_not_disturb_each_other(graph: Graph) -> None:
    litter(graph)
    before = everything(graph)
    with ThreadPoolExecutor(4) as threads:
        runs = [
            threads.submit(reopened(graph.storage).maintenance.cleanup, older_than=NOW, confirm=True) for _ in range(4)
        ]
        for run in runs:
            run.result()
    assert everything(graph) == before
    clean(graph)
    assert forks(graph) == []


def test_cleanups_beside_loads_and_branches_take_nothing_from_them(graph: Graph) -> None:
    def write(number: int) -> None:
        writer = reopened(graph.storage)
        for turn in range(6):
            name = f"b{number}-{turn}"
            writer.branches.create(name)
            writer.load({"Person": people(f"P{number}-{turn}", "Ada", age=turn)}, branch=name, mode="merge")
            writer.merge(name, on_conflict="theirs", delete_branch=turn % 2 == 0)

    def sweep() -> None:
        cleaner = reopened(graph.storage)
        for _ in range(12):
            cleaner.maintenance.cleanup(older_than=timedelta(seconds=60), confirm=True)

    with ThreadPoolExecutor(3) as threads:
        runs = [threads.submit(write, 1), threads.submit(write, 2), threads.submit(sweep)]
        for run in runs:
            run.result()
    assert shown(graph) == sorted(["Ada", "Bob", *(f"P{number}-{turn}" for number in (1, 2) for turn in range(6))])
    assert len(graph.branches.list()) == 7
    clean(graph)
