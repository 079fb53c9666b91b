"""A write that others were faster than: what is prepared anew, what is checked anew, and what is a conflict."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from crash_scene import (
    BEFORE,
    assert_at_rest,
    at,
    content,
    dataset,
    edges,
    graph_on,
    names,
    new_local_graph,
    people,
    pins,
    reopened,
)
from omnigraph_engine import failpoints
from omnigraph_engine.errors import (
    CardinalityViolation,
    ConstraintViolation,
    DuplicateKey,
    MissingEndpoint,
    UniqueViolation,
    VersionConflict,
)
from omnigraph_engine.failpoints import Failpoint, Handler, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.audit import RecoveryKind
from omnigraph_engine.storage import Storage
from omnigraph_engine.write.load import LoadMode, WriteOptions

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
}
node Company { name: String @key }
edge Knows: Person -> Person @card(0..2) { @unique(src, dst) }
edge WorksAt: Person -> Company
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_local_graph(tmp_path, SCHEMA)
    graph.load({"Person": people("Ada", "Bob"), "Knows": edges(("Ada", "Bob"))})
    return graph


def mails(**given: str) -> pa.Table:
    return pa.table({"name": list(given), "email": list(given.values())})


def meanwhile(graph: Graph, action: Callable[[Graph], object], point: Failpoint = Failpoint.ARM) -> Handler:
    """Somebody else commits something just before the writer reaches the point."""
    return at(point, BEFORE, lambda: action(graph_on(Storage(graph.uri, graph.storage.options))))


def data_files(storage: Storage, table_key: str) -> set[str]:
    location = reopened(storage).snapshot().tables[table_key].published.location
    return set(storage.list(f"{location}/data"))


# -- the table moved ----------------------------------------------------------------------------------------


def test_an_append_to_a_table_that_moved_lands_with_the_files_it_has(storage: Storage) -> None:
    graph = Graph.create(storage.root, SCHEMA, storage_options=storage.options)
    graph.load({"Person": people("Ada")})
    staged: list[set[str]] = []

    def rival(other: Graph) -> None:
        staged.append(data_files(storage, "node:Person"))
        other.load({"Person": people("Bob")})
        staged.append(data_files(storage, "node:Person"))

    with failpoints.installed(meanwhile(graph, rival)):
        receipt = graph.load({"Person": people("Cleo", "Dora")})
    assert receipt.attempts == 2
    assert names(storage) == ["Ada", "Bob", "Cleo", "Dora"]
    assert data_files(storage, "node:Person") == staged[1]
    assert len(staged[1] - staged[0]) == 1
    assert receipt.tables["node:Person"].rows == 4
    assert receipt.tables["node:Person"].version == pins(storage)["node:Person"] == 4
    assert graph.maintenance.recoveries() == []
    assert_at_rest(storage)


def test_a_merge_into_a_table_that_moved_replaces_what_is_there_now(storage: Storage) -> None:
    graph = Graph.create(storage.root, SCHEMA, storage_options=storage.options)
    graph.load({"Person": people("Ada", "Bob", age=1)})

    def rival(other: Graph) -> None:
        other.load({"Person": people("Bob", "Cleo", age=2)}, mode="merge")

    with failpoints.installed(meanwhile(graph, rival)):
        receipt = graph.load({"Person": people("Ada", "Cleo", "Dora", age=3)}, mode="merge")
    assert receipt.attempts == 2
    assert {row["id"]: row["age"] for row in content(storage)["node:Person"]} == {
        "Ada": 3,
        "Bob": 2,
        "Cleo": 3,
        "Dora": 3,
    }
    counts = receipt.tables["node:Person"]
    assert (counts.rows, counts.inserted, counts.updated) == (4, 1, 2)
    assert dataset(storage, "node:Person").count_rows() == 4
    assert_at_rest(storage)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_blobs_survive_being_prepared_again(tmp_path: Path, mode: str) -> None:
    graph = new_local_graph(tmp_path, "node Doc { name: String @key  body: Blob?  size: I64? }")
    small, large = b"x", bytes(range(256)) * 1024

    def docs(**bodies: bytes | None) -> pa.Table:
        return pa.table({"name": list(bodies), "body": pa.array(bodies.values(), pa.large_binary())})

    graph.load({"Doc": docs(a=b"old")})
    given = {"b": small, "c": large, "d": b"", "e": None} | ({"a": large} if mode == "merge" else {})
    with failpoints.installed(meanwhile(graph, lambda other: other.load({"Doc": docs(z=b"rival")}))):
        receipt = graph.load({"Doc": docs(**given)}, mode=mode)
    assert receipt.attempts == 2
    found = {row["id"]: row["body"] for row in content(graph.storage)["node:Doc"]}
    assert found == {"a": b"old", "z": b"rival", **given}
    location = graph.snapshot().table("Doc").published.location
    versions = [path.rsplit("/", 1)[-1] for path in graph.storage.list(f"{location}/_versions")]
    assert [name for name in versions if name.startswith("d")] == []
    assert_at_rest(graph.storage)


def test_a_rival_may_win_many_times_over(graph: Graph) -> None:
    others = iter(f"rival{number}" for number in range(5))

    def rival(point: Failpoint, moment: Moment) -> None:
        name = next(others, None) if (point, moment) == (Failpoint.ARM, BEFORE) else None
        if name is not None:
            with failpoints.installed(lambda _point, _moment: None):
                Graph.open(graph.uri).load({"Person": people(name)})

    with failpoints.installed(rival):
        receipt = graph.load({"Person": people("Cleo")})
    assert receipt.attempts == 6
    assert len(names(graph.storage)) == 8
    assert_at_rest(graph.storage)


def test_an_append_that_loses_after_its_first_effect_undoes_it_and_lands_anew(graph: Graph) -> None:
    """Two writers find nothing in their way; the second moves node:Person when the first has moved edge:Knows."""
    rival_is_ready, first_has_moved = threading.Event(), threading.Event()
    rival = threading.Thread(target=lambda: graph_on(Storage(graph.uri)).load({"Person": people("Eve")}))
    moved = []

    def handle(point: Failpoint, moment: Moment) -> None:
        if threading.current_thread() is rival:
            if (point, moment) == (Failpoint.ARM, BEFORE):
                rival_is_ready.set()
                first_has_moved.wait(30)
        elif (point, moment) == (Failpoint.COMMIT_TABLE, BEFORE):
            moved.append(point)
            if len(moved) == 2:
                first_has_moved.set()
                rival.join(30)

    with failpoints.installed(handle):
        rival.start()
        assert rival_is_ready.wait(30)
        receipt = graph.load({"Person": people("Cleo"), "Knows": edges(("Cleo", "Ada"))})
    assert receipt.attempts == 2
    assert names(graph.storage) == ["Ada", "Bob", "Cleo", "Eve"]
    assert names(graph.storage, "edge:Knows") == ["Ada-Bob", "Cleo-Ada"]
    assert [record.kind for record in graph.maintenance.recoveries()] == [RecoveryKind.ROLLED_BACK]
    assert_at_rest(graph.storage)


def _undisturbed(action: Callable[[], object]) -> None:
    with failpoints.installed(lambda _point, _moment: None):
        action()


# -- only the delta is checked anew, and it is checked ------------------------------------------------------

Refused = tuple[str, Callable[[Graph], object], Callable[[Graph], object], type[ConstraintViolation], list[str]]
REFUSED: list[Refused] = [
    (
        "a key that came meanwhile",
        lambda other: other.load({"Person": people("Cleo")}),
        lambda graph: graph.load({"Person": people("Cleo", "Dora")}),
        DuplicateKey,
        ["Cleo"],
    ),
    (
        "a unique value that came meanwhile",
        lambda other: other.load({"Person": mails(Eve="a@b")}),
        lambda graph: graph.load({"Person": mails(Cleo="a@b")}),
        UniqueViolation,
        ["a@b"],
    ),
    (
        "a unique value that a merge meets",
        lambda other: other.load({"Person": mails(Bob="a@b")}, mode="merge"),
        lambda graph: graph.load({"Person": mails(Ada="a@b")}, mode="merge"),
        UniqueViolation,
        ["a@b"],
    ),
    (
        "too many edges with those that came meanwhile",
        lambda other: other.load({"Knows": edges(("Ada", "Ada"))}),
        lambda graph: graph.load(
            {"Knows": pa.table({"id": ["x"], "src": ["Ada"], "dst": ["Eve"]}), "Person": people("Eve")}
        ),
        CardinalityViolation,
        ["Ada"],
    ),
    (
        "an end that went meanwhile",
        lambda other: other.load({"Person": people("Ada", "Bob")}, mode="overwrite"),
        lambda graph: graph.load({"Knows": edges(("Bob", "Cleo"))}),
        MissingEndpoint,
        ["Cleo"],
    ),
    (
        "an edge that came meanwhile to a node that an overwrite removes",
        lambda other: other.load({"Knows": edges(("Bob", "Cleo"))}),
        lambda graph: graph.load({"Person": people("Ada", "Bob")}, mode="overwrite"),
        MissingEndpoint,
        ["Cleo"],
    ),
]


# Between its arming and its publish a writer holds its own tables: only what it read can move then.
CASES = [
    pytest.param(point, *case, id=f"{what}, {point.value}")
    for what, *case in REFUSED
    for point in ([Failpoint.ARM, Failpoint.PUBLISH] if case[2] is MissingEndpoint else [Failpoint.ARM])
]


@pytest.mark.parametrize(("point", "rival", "write", "error", "values"), CASES)
def test_what_others_did_meanwhile_is_checked_before_the_commit_is_visible(
    graph: Graph,
    point: Failpoint,
    rival: Callable[[Graph], object],
    write: Callable[[Graph], object],
    error: type[ConstraintViolation],
    values: list[str],
) -> None:
    if error is MissingEndpoint:
        graph.load({"Person": people("Cleo")})
    shown: list[object] = []

    def go_first(other: Graph) -> None:
        rival(other)
        shown.append(content(graph.storage))

    with failpoints.installed(meanwhile(graph, go_first, point)), pytest.raises(error) as caught:
        write(graph)
    assert caught.value.details["values"] == values
    assert caught.value.details["count"] == 1
    assert content(graph.storage) == shown[0]
    assert_at_rest(graph.storage)


@pytest.mark.parametrize("point", [Failpoint.ARM, Failpoint.COMMIT_TABLE, Failpoint.PUBLISH])
def test_what_was_read_may_move_as_long_as_it_does_no_harm(graph: Graph, point: Failpoint) -> None:
    with failpoints.installed(meanwhile(graph, lambda other: other.load({"Person": people("Cleo")}), point)):
        receipt = graph.load({"Knows": edges(("Bob", "Ada"))})
    assert receipt.attempts == 1
    assert receipt.tables["edge:Knows"].version == pins(graph.storage)["edge:Knows"] == 3
    assert graph.maintenance.recoveries() == []
    assert names(graph.storage, "edge:Knows") == ["Ada-Bob", "Bob-Ada"]
    assert_at_rest(graph.storage)


def test_tables_that_nobody_read_may_move_freely(graph: Graph) -> None:
    with failpoints.installed(
        meanwhile(graph, lambda other: other.load({"Company": pa.table({"name": ["Acme"]})}), Failpoint.PUBLISH)
    ):
        receipt = graph.load({"Person": people("Cleo")})
    assert receipt.attempts == 1
    assert receipt.commit is not None
    assert receipt.commit.parent_id == graph.commits.list()[1].commit_id
    assert_at_rest(graph.storage)


# -- the strict and the exhausted ---------------------------------------------------------------------------


def test_an_overwrite_of_a_table_that_moved_is_a_conflict(graph: Graph) -> None:
    with (
        failpoints.installed(meanwhile(graph, lambda other: other.load({"Person": people("Cleo")}))),
        pytest.raises(VersionConflict) as caught,
    ):
        graph.load({"Person": people("Ada", "Bob", age=7)}, mode="overwrite")
    assert caught.value.details == {"table_key": "node:Person", "expected": 2, "actual": 3}
    assert caught.value.retryable
    assert names(graph.storage) == ["Ada", "Bob", "Cleo"]
    assert_at_rest(graph.storage)


def test_an_overwrite_that_others_overtook_before_it_was_committed_is_a_conflict(graph: Graph) -> None:
    load = graph.begin_load()
    staged = load.stage("node:Person", people("Ada", "Bob").to_batches(), LoadMode.OVERWRITE)
    assert staged is not None
    graph.load({"Person": people("Cleo")})
    with pytest.raises(VersionConflict) as caught:
        load.commit([staged])
    assert caught.value.details == {"table_key": "node:Person", "expected": 2, "actual": 3}
    assert names(graph.storage) == ["Ada", "Bob", "Cleo"]
    assert_at_rest(graph.storage)


@pytest.mark.parametrize(
    "options", [WriteOptions(attempts=3), WriteOptions(patience=0.0)], ids=["attempts", "patience"]
)
def test_a_write_whose_budget_ends_is_a_typed_error_that_may_be_retried(graph: Graph, options: WriteOptions) -> None:
    limited = Graph.open(graph.uri, options=options)
    rivals: list[str] = []

    def rival(point: Failpoint, moment: Moment) -> None:
        if (point, moment) == (Failpoint.ARM, BEFORE):
            rivals.append(f"rival{len(rivals)}")
            _undisturbed(lambda: Graph.open(graph.uri).load({"Person": people(rivals[-1])}))

    with failpoints.installed(rival), pytest.raises(VersionConflict) as caught:
        limited.load({"Person": people("Cleo")})
    assert caught.value.retryable
    assert caught.value.details["table_key"] == "node:Person"
    assert len(rivals) == (3 if options.attempts == 3 else 1)
    assert names(graph.storage) == ["Ada", "Bob", *rivals]
    assert_at_rest(graph.storage)
    limited.load({"Person": people("Cleo")})
