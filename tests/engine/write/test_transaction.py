"""Several loads, one commit: what may stand in one transaction, what it reports, and writes that may be repeated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from omnigraph_engine import failpoints
from omnigraph_engine.errors import DuplicateKey, InvalidArgument
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.write import graph_transaction
from omnigraph_engine.write.load import CommitReceipt, WriteOptions


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    return Graph.create(tmp_path / "graph.omni", social)


def people(*names: str, age: int | None = None) -> pa.Table:
    return pa.table({"name": names, "age": pa.array([age] * len(names), pa.int32())})


def ids(graph: Graph, name: str = "Person") -> list[str]:
    return sorted(graph.snapshot().table(name).to_arrow(["id"])["id"].to_pylist())


# -- the block ----------------------------------------------------------------------------------------------


def test_what_would_never_be_committed_is_refused_outside_of_the_block(graph: Graph) -> None:
    transaction = graph.transaction()
    with pytest.raises(InvalidArgument, match="has not begun: nothing would be committed"):
        transaction.load("Person", people("Ada"))
    with transaction:
        transaction.load("Person", people("Ada"))
    for load in (
        lambda: transaction.load("Person", people("Bob")),
        lambda: transaction.load("Company", pa.table({"name": ["Acme"]})),
        lambda: transaction.load_jsonl(['{"type": "Person", "data": {"name": "Bob"}}']),
    ):
        with pytest.raises(InvalidArgument, match="is over"):
            load()
    with pytest.raises(InvalidArgument, match="entered already"):
        transaction.__enter__()
    assert ids(graph) == ["Ada"]
    assert len(graph.commits.list()) == 2


# -- what may stand in one ----------------------------------------------------------------------------------


def test_types_with_different_modes_become_visible_together(graph: Graph) -> None:
    graph.load({"Person": people("Ada", "Bob", age=1), "Company": pa.table({"name": ["Old"]})})
    with graph.transaction(actor="ada", message="all at once") as transaction:
        transaction.load("Person", people("Bob", "Cleo", age=2), "merge")
        transaction.load("Company", pa.table({"name": ["New"]}), "overwrite")
        transaction.load("WorksAt", pa.table({"src": ["Cleo"], "dst": ["New"]}), "append")
        assert transaction.receipt is None
        assert ids(graph, "Company") == ["Old"]
    assert ids(graph, "Company") == ["New"]
    assert graph.snapshot().version == 3
    receipt = transaction.receipt
    assert receipt is not None
    assert receipt.commit == graph.snapshot().commit
    assert (receipt.commit.actor, receipt.commit.extra["message"]) == ("ada", "all at once")
    counts = {key: (t.version, t.rows, t.inserted, t.updated, t.deleted) for key, t in receipt.tables.items()}
    assert counts == {
        "node:Person": (3, 3, 1, 1, 0),
        "node:Company": (3, 1, 1, 0, 1),
        "edge:WorksAt": (2, 1, 1, 0, 0),
    }
    assert {key: graph.snapshot().tables[key].published.version for key in counts} == {
        k: v[0] for k, v in counts.items()
    }
    assert receipt.attempts == 1
    assert {"capture", "stage", "validate", "arm", "commit", "publish", "disarm"} <= receipt.seconds.keys()
    assert all(seconds >= 0 for seconds in receipt.seconds.values())


def test_arrow_comes_as_tables_batches_and_readers(graph: Graph) -> None:
    table = people(*(f"t{number}" for number in range(5)))

    def stream() -> Iterator[pa.RecordBatch]:
        for number in range(200):
            yield people(f"r{number}").to_batches()[0]

    with graph.transaction() as transaction:
        transaction.load("Person", table)
        transaction.load("Person", people("b0").to_batches()[0])
        transaction.load("Person", pa.RecordBatchReader.from_batches(table.schema, stream()))
        transaction.load("Company", pa.table({"name": ["Acme"]}))
    assert len(ids(graph)) == 206
    assert graph.snapshot().table("Person").count() == 206


def test_a_reader_is_streamed_and_not_collected(graph: Graph) -> None:
    alive: list[int] = []

    def stream() -> Iterator[pa.RecordBatch]:
        for number in range(300):
            before = pa.total_allocated_bytes()
            alive.append(before)
            yield pa.RecordBatch.from_pydict({"name": [f"{number}-{row}" + "x" * 2000 for row in range(200)]})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("name", pa.string())]), stream())
    graph.load({"Person": reader})
    assert graph.snapshot().table("Person").count() == 60_000
    assert max(alive) - alive[0] < 60_000_000  # of 120 MB in all


def test_json_lines_may_stand_beside_arrow(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_transaction, "FLUSH_ROWS", 3)
    lines = [f'{{"type":"Person","data":{{"name":"p{number}"}}}}' for number in range(10)]
    with graph.transaction() as transaction:
        transaction.load_jsonl([*lines, '{"edge":"Knows","from":"p0","to":"p9"}'])
        transaction.load("Person", people("Ada"))
    assert len(ids(graph)) == 11
    assert graph.snapshot().version == 2


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_json_lines_longer_than_one_flush_are_one_load(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(graph_transaction, "FLUSH_ROWS", 3)
    graph.load({"Person": people("p0") if mode != "append" else people("Ada")})
    receipt = graph.load_jsonl([f'{{"type":"Person","data":{{"name":"p{n}"}}}}' for n in range(10)], mode=mode)
    assert receipt.tables["node:Person"].rows == len(ids(graph)) == (11 if mode == "append" else 10)


@pytest.mark.parametrize(
    ("first", "second"), [("append", "merge"), ("merge", "merge"), ("overwrite", "append"), ("overwrite", "overwrite")]
)
def test_a_type_is_loaded_once_unless_it_is_appended(graph: Graph, first: str, second: str) -> None:
    with graph.transaction() as transaction:
        transaction.load("Person", people("Ada"), first)
        with pytest.raises(InvalidArgument, match="node:Person is loaded twice") as caught:
            transaction.load("Person", people("Bob"), second)
    assert caught.value.details == {"table_key": "node:Person", "modes": [first, second]}
    assert caught.value.hint


def test_an_exception_in_the_block_leaves_nothing_visible(graph: Graph) -> None:
    def interrupted() -> None:
        with graph.transaction() as transaction:
            transaction.load("Person", people("Ada"))
            raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        interrupted()
    assert graph.snapshot().version == 1
    assert graph.storage.list("__recovery") == []
    graph.load({"Person": people("Ada")})


def test_an_exception_of_the_source_reaches_the_caller_as_it_is(graph: Graph) -> None:
    def stream() -> Iterator[pa.RecordBatch]:
        yield people("Ada").to_batches()[0]
        raise ZeroDivisionError("in the middle")

    load = graph.begin_load()
    with pytest.raises(ZeroDivisionError, match="in the middle"):
        load.stage("node:Person", stream(), graph_transaction.LoadMode.APPEND)
    assert graph.snapshot().version == 1


def test_a_transaction_without_rows_commits_nothing(graph: Graph) -> None:
    with graph.transaction() as transaction:
        transaction.load("Person", people())
    assert transaction.receipt is not None
    assert (transaction.receipt.commit, graph.snapshot().version) == (None, 1)


# -- writes that may be repeated ----------------------------------------------------------------------------


def numbered(graph: Graph, number: int, *names: str, app: str = "etl") -> CommitReceipt:
    with graph.transaction(txn_app_id=app, txn_version=number) as transaction:
        transaction.load("Person", people(*names))
    assert transaction.receipt is not None
    return transaction.receipt


def test_a_replay_does_nothing_and_returns_the_first_commit(graph: Graph) -> None:
    first = numbered(graph, 7, "Ada")
    graph.load({"Person": people("Bob")})
    version = graph.snapshot().version
    again = numbered(graph, 7, "Ada")
    assert (again.replayed, first.replayed) == (True, False)
    assert again.commit == first.commit
    assert (graph.snapshot().version, ids(graph)) == (version, ["Ada", "Bob"])


def test_an_older_number_does_nothing_and_a_newer_one_works(graph: Graph) -> None:
    numbered(graph, 7, "Ada")
    older = numbered(graph, 6, "Bob")
    assert older.replayed
    assert ids(graph) == ["Ada"]
    assert not numbered(graph, 8, "Cleo").replayed
    assert ids(graph) == ["Ada", "Cleo"]


def test_applications_number_their_writes_independently(graph: Graph) -> None:
    numbered(graph, 7, "Ada")
    assert not numbered(graph, 1, "Bob", app="other").replayed


def test_a_write_that_failed_has_used_up_no_number(graph: Graph) -> None:
    graph.load({"Person": people("Ada")})
    with pytest.raises(DuplicateKey):
        numbered(graph, 1, "Ada")
    assert not numbered(graph, 1, "Bob").replayed


def test_a_number_without_its_application_is_refused(graph: Graph) -> None:
    for given in ({"txn_app_id": "etl"}, {"txn_version": 1}):
        with pytest.raises(InvalidArgument, match="belong together"):
            graph.transaction(**given)  # type: ignore[arg-type]


def test_of_two_concurrent_replays_exactly_one_lands(graph: Graph) -> None:
    handles = [Graph.open(graph.uri) for _ in range(2)]
    meeting = threading.Barrier(2)

    def meet(point: Failpoint, moment: Moment) -> None:
        if (point, moment) == (Failpoint.STAGE, Moment.AFTER):
            meeting.wait(30)

    # Their ids differ, so that only the number can tell them apart.
    with failpoints.installed(meet), ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(numbered, handle, 1, f"p{number}") for number, handle in enumerate(handles)]
        receipts = [run.result() for run in runs]
    assert sorted(receipt.replayed for receipt in receipts) == [False, True]
    assert receipts[0].commit == receipts[1].commit
    assert len(ids(graph)) == 1
    assert len(graph.commits.list()) in (2, 3)  # the loser may have left an undo
    assert graph.storage.list("__recovery") == []


@pytest.mark.parametrize("table", ["Company", "Person"], ids=["on other tables", "on the same table"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_replay_that_loses_at_its_only_attempt_is_still_a_replay(graph: Graph, table: str, mode: str) -> None:
    limited = Graph.open(graph.uri, options=WriteOptions(attempts=1))
    left = [1]

    def meanwhile(point: Failpoint, moment: Moment) -> None:
        if (point, moment) == (Failpoint.ARM, Moment.BEFORE) and left:
            left.pop()
            with graph.transaction(txn_app_id="etl", txn_version=1) as transaction:
                transaction.load(table, pa.table({"name": ["first"]}))

    with (
        failpoints.installed(meanwhile),
        limited.transaction(txn_app_id="etl", txn_version=1) as transaction,
    ):
        transaction.load("Person", people("second"), mode)
    assert transaction.receipt is not None
    assert transaction.receipt.replayed
    assert ids(graph, table) == ["first"]
    assert "second" not in ids(graph)
