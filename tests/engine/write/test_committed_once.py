"""A load is committed once, however often its commit is asked for: Spark may repeat a task whose answer was lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from omnigraph_engine.errors import BranchNotFound
from omnigraph_engine.failpoints import Failpoint, Handler, Moment, installed
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.write.load import CommitReceipt, Load, LoadMode, WriteOptions

SCHEMA = """
node Person { name: String @key  age: I32? }
node Note { text: String }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""
APPEND, MERGE, OVERWRITE = LoadMode.APPEND, LoadMode.MERGE, LoadMode.OVERWRITE
Rows = tuple[str, pa.RecordBatch, LoadMode]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.create(tmp_path / "graph.omni", SCHEMA)
    graph.load({"Person": people("Ada", "Bob", age=36), "Note": notes("old")})
    return graph


def people(*names: str, age: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"name": list(names), "age": pa.array([age] * len(names), pa.int32())})


def companies(*names: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"name": list(names)})


def notes(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"text": list(texts)})


def pairs(*ends: tuple[str, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"src": [src for src, _ in ends], "dst": [dst for _, dst in ends]})


LOADS: dict[str, list[Rows]] = {
    "nodes without a key": [("node:Note", notes("a", "b"), APPEND)],
    "edges": [("edge:Knows", pairs(("Ada", "Bob"), ("Bob", "Ada")), APPEND)],
    "nodes with a key": [("node:Person", people("Cleo"), APPEND)],
    "a merge": [("node:Person", people("Ada", "Cleo", age=40), MERGE)],
    "an overwrite": [("node:Note", notes("new"), OVERWRITE)],
    "an overwrite with nothing": [("node:Note", notes(), OVERWRITE)],
    "a type of which nothing is left": [
        ("node:Note", notes("a"), APPEND),
        ("edge:WorksAt", pairs(("Ada", "Nowhere")), APPEND),
    ],
    "several tables": [
        ("node:Person", people("Ada", "Cleo", age=40), MERGE),
        ("node:Note", notes("new", "newer"), OVERWRITE),
        ("edge:Knows", pairs(("Ada", "Cleo"), ("Ada", "Nobody")), APPEND),
    ],
}


def elsewhere(load: Load) -> Load:
    """The load as it arrives in another process."""
    arrived: Load = pickle.loads(pickle.dumps(load))  # noqa: S301
    return arrived


def staged(load: Load, rows: list[Rows]) -> list[StagedWrite]:
    writes = [load.stage(table_key, [batch], mode) for table_key, batch, mode in rows]
    return [write for write in writes if write is not None]


class Crash(BaseException):
    """The death of a process: nothing in the engine may catch it."""


def die() -> None:
    raise Crash


def at(point: Failpoint, action: Callable[[], None]) -> Handler:
    """Does something once, just before the point; what it does itself passes there freely."""
    left = [action]

    def handle(reached: Failpoint, moment: Moment) -> None:
        if (reached, moment) == (point, Moment.BEFORE) and left:
            left.pop()()

    return handle


def content(graph: Graph) -> dict[str, list[dict[str, object]]]:
    tables = graph.snapshot().tables
    return {key: sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) for key, table in tables.items()}


def told(receipt: CommitReceipt) -> tuple[object, object]:
    return receipt.commit, receipt.tables


@pytest.mark.parametrize("rows", LOADS.values(), ids=LOADS.keys())
def test_whoever_commits_a_load_again_gets_the_receipt_of_the_commit_that_is_there(
    graph: Graph, rows: list[Rows]
) -> None:
    load = graph.begin_load(skip_dangling=True, message="once")
    writes = staged(elsewhere(load), rows)
    first = elsewhere(load).commit(writes)
    assert first.commit is not None
    after = content(graph)
    commits = graph.commits.list()

    assert told(elsewhere(load).commit(writes)) == told(first)  # unpickled: it captures the graph anew
    assert told(load.commit(writes)) == told(first)  # it still holds the view from before the commit
    graph.load({"Person": people("Somebody else"), "Note": notes("of somebody else")})
    others = graph.commits.list()
    assert told(elsewhere(load).commit(writes)) == told(first)

    assert others[1:] == commits
    assert graph.commits.list() == others
    assert {key: len(found) for key, found in content(graph).items()} == {
        key: len(found) + (key in ("node:Person", "node:Note")) for key, found in after.items()
    }


def test_two_loads_of_the_same_rows_are_two_commits(graph: Graph) -> None:
    for _ in range(2):
        load = graph.begin_load()
        load.commit(staged(load, LOADS["nodes without a key"]))
    assert len(graph.snapshot().table("Note").to_arrow()) == 5


def test_a_load_on_a_branch_is_found_there(graph: Graph) -> None:
    graph.branches.create("dev")
    load = graph.begin_load("dev")
    writes = staged(load, LOADS["nodes without a key"])
    first = elsewhere(load).commit(writes)
    assert told(elsewhere(load).commit(writes)) == told(first)
    assert graph.snapshot(branch="dev").table("Note").count() == 3


def test_a_load_that_was_begun_on_a_branch_is_not_committed_to_a_later_branch_of_that_name(graph: Graph) -> None:
    graph.branches.create("dev")
    load = graph.begin_load("dev")
    writes = staged(load, LOADS["nodes without a key"])
    graph.branches.delete("dev")
    for _ in range(2):
        with pytest.raises(BranchNotFound, match="'dev'"):
            elsewhere(load).commit(writes)
        if not graph.branches.list()[1:]:
            graph.branches.create("dev")
    assert graph.snapshot(branch="dev").table("Note").count() == 1


def test_a_numbered_load_that_is_committed_again_gets_its_whole_receipt(graph: Graph) -> None:
    load = graph.begin_load(txn_app_id="job", txn_version=7)
    writes = staged(load, LOADS["a merge"])
    first = elsewhere(load).commit(writes)
    again = elsewhere(load).commit(writes)
    assert told(again) == told(first)
    assert graph.begin_load(txn_app_id="job", txn_version=7).commit([]).replayed


@pytest.mark.parametrize("name", ["edges", "an overwrite", "several tables"])
def test_a_load_whose_committer_died_before_the_publish_is_finished_and_found(graph: Graph, name: str) -> None:
    load = Graph.open(graph.uri, options=WriteOptions(lease=1.0)).begin_load(skip_dangling=True)
    writes = staged(load, LOADS[name])
    with installed(at(Failpoint.PUBLISH, die)), pytest.raises(Crash):
        elsewhere(load).commit(writes)
    assert len(graph.commits.list()) == 2

    receipt = elsewhere(load).commit(writes)

    assert graph.commits.list()[0] == receipt.commit
    assert len(graph.commits.list()) == 3
    assert {key: table.rows for key, table in receipt.tables.items()} == {
        key: graph.snapshot().table(key).count() for key in receipt.tables
    }
    assert [record.kind.value for record in graph.maintenance.recoveries()] == ["RolledForward"]


@pytest.mark.parametrize("rows", LOADS.values(), ids=LOADS.keys())
def test_of_two_committers_of_one_load_one_lands_and_both_get_its_receipt(graph: Graph, rows: list[Rows]) -> None:
    load = graph.begin_load(skip_dangling=True)
    writes = staged(load, rows)
    others: list[CommitReceipt] = []

    with installed(at(Failpoint.ARM, lambda: others.append(elsewhere(load).commit(writes)))):
        ours = elsewhere(load).commit(writes)

    assert told(ours) == told(others[0])
    assert len(graph.commits.list()) == 3


def test_two_committers_that_leave_out_different_edges_and_so_touch_different_types_are_one_commit_all_the_same(
    graph: Graph,
) -> None:
    """One saw the state before an overwrite, the other the state after it, and now it is undone."""
    load = graph.begin_load(skip_dangling=True)
    writes = staged(
        load, [("edge:Knows", pairs(("Ada", "Bob")), APPEND), ("edge:WorksAt", pairs(("Ada", "Acme")), APPEND)]
    )
    others: list[CommitReceipt] = []

    def others_come() -> None:
        graph.load({"Person": people("Ada")}, mode="overwrite")
        graph.load({"Company": companies("Acme")})
        others.append(elsewhere(load).commit(writes))
        graph.load({"Person": people("Bob")})

    with installed(at(Failpoint.ARM, others_come)):
        ours = elsewhere(load).commit(writes)

    assert told(ours) == told(others[0])
    assert {key: len(rows) for key, rows in content(graph).items() if key.startswith("edge:")} == {
        "edge:Knows": 0,
        "edge:WorksAt": 1,
    }
