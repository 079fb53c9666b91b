"""What a dead writer leaves behind is finished or undone, once, by whoever opens the graph next."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import lance
import pytest
from crash_scene import (
    AFTER,
    BEFORE,
    abandon,
    assert_at_rest,
    companies,
    content,
    delete_version,
    dying,
    edges,
    graph_on,
    heads,
    left_behind,
    names,
    new_local_graph,
    people,
    pins,
    reopened,
    rewrite,
    sidecar_paths,
)
from omnigraph_engine.commit.recovery import RECOVERY_ACTOR, Recovery
from omnigraph_engine.commit.sidecar import sidecar_path
from omnigraph_engine.errors import GraphDamaged, SidecarUnreadable
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.audit import RecoveryKind, TableOutcome
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables import fold
from ulid import ULID


@pytest.fixture
def graph(storage: Storage, social: str) -> Graph:
    """Two people who know each other, on each kind of store in turn."""
    graph = Graph.create(storage.root, social, storage_options=storage.options)
    graph.load({"Person": people("Ada", "Bob"), "Knows": edges(("Ada", "Bob"))})
    return graph


@pytest.fixture
def local(tmp_path: Path, social: str) -> Graph:
    graph = new_local_graph(tmp_path, social)
    graph.load({"Person": people("Ada", "Bob"), "Knows": edges(("Ada", "Bob"))})
    return graph


def load_two_tables(graph: Graph) -> None:
    """Moves edge:Knows first and node:Person second."""
    graph.load({"Person": people("Cleo"), "Knows": edges(("Cleo", "Ada"))}, actor="ada", message="cleo comes")


# -- one operation, wherever it died ------------------------------------------------------------------------


def test_a_writer_that_died_before_it_armed_has_done_nothing(local: Graph) -> None:
    before, manifest = content(local.storage), local.snapshot().version
    with dying(Failpoint.ARM, BEFORE):
        load_two_tables(local)
    assert_at_rest(local.storage)
    assert reopened(local.storage).snapshot().version == manifest
    assert content(local.storage) == before
    assert local.maintenance.recoveries() == []


@pytest.mark.parametrize(
    ("point", "moment", "nth"),
    [
        (Failpoint.ARM, AFTER, 1),
        (Failpoint.COMMIT_TABLE, AFTER, 1),
    ],
)
def test_an_operation_that_did_not_land_everywhere_is_undone(
    graph: Graph, point: Failpoint, moment: Moment, nth: int
) -> None:
    storage, before = graph.storage, content(graph.storage)
    with dying(point, moment, nth):
        load_two_tables(graph)
    operation = left_behind(storage)
    assert content(storage) == before
    abandon(storage)
    recovered = reopened(storage)
    assert content(storage) == before
    assert_at_rest(storage)
    undo = recovered.snapshot().commit
    assert (undo.commit_id, undo.actor) == (operation.rollback_commit_id, RECOVERY_ACTOR)
    (record,) = recovered.maintenance.recoveries()
    assert (record.kind, record.operation_id) == (RecoveryKind.ROLLED_BACK, operation.operation_id)
    assert (record.commit_id, record.actor, record.writer_kind) == (operation.rollback_commit_id, "ada", "Load")
    expected = {intent.table_key: intent.expected_version for intent in operation.tables}
    assert record.tables == tuple(TableOutcome(key, expected[key], pins(storage)[key]) for key in expected)
    load_two_tables(recovered)
    assert names(storage) == ["Ada", "Bob", "Cleo"]
    assert_at_rest(storage)


def test_an_operation_that_landed_everywhere_is_finished_under_its_own_id_and_actor(graph: Graph) -> None:
    storage, before = graph.storage, content(graph.storage)
    with dying(Failpoint.COMMIT_TABLE, AFTER, 2):
        load_two_tables(graph)
    operation = left_behind(storage)
    assert content(storage) == before
    abandon(storage)
    recovered = reopened(storage)
    assert names(storage) == ["Ada", "Bob", "Cleo"]
    assert names(storage, "edge:Knows") == ["Ada-Bob", "Cleo-Ada"]
    assert_at_rest(storage)
    commit = recovered.snapshot().commit
    assert (commit.commit_id, commit.actor) == (operation.commit_id, "ada")
    assert (commit.created_at, commit.extra["message"]) == (operation.created_at, "cleo comes")
    assert recovered.snapshot().table("Person").count() == 3
    (record,) = recovered.maintenance.recoveries()
    assert (record.kind, record.commit_id) == (RecoveryKind.ROLLED_FORWARD, operation.commit_id)
    assert record.tables == (TableOutcome("edge:Knows", 2, 3), TableOutcome("node:Person", 2, 3))


def test_an_operation_that_was_published_is_only_forgotten(graph: Graph) -> None:
    storage = graph.storage
    with dying(Failpoint.PUBLISH, AFTER):
        load_two_tables(graph)
    operation, before = left_behind(storage), content(storage)
    assert names(storage) == ["Ada", "Bob", "Cleo"]
    manifest, versions = graph.snapshot().version, heads(storage)
    abandon(storage)
    recovered = reopened(storage)
    assert (recovered.snapshot().version, heads(storage), content(storage)) == (manifest, versions, before)
    assert_at_rest(storage)
    (record,) = recovered.maintenance.recoveries()
    assert (record.kind, record.commit_id) == (RecoveryKind.ROLLED_FORWARD, operation.commit_id)


def test_a_recovery_that_is_done_is_not_done_again(local: Graph) -> None:
    storage = local.storage
    with dying(Failpoint.COMMIT_TABLE, AFTER):
        load_two_tables(local)
    abandon(storage)
    document = storage.get(left_behind(storage).path)
    reopened(storage)
    manifest, versions = local.snapshot().version, heads(storage)
    for _ in range(2):
        reopened(storage)
        storage.put(sidecar_path(json.loads(document)["operation_id"]), document)  # a delete that came to nothing
    reopened(storage)
    assert (local.snapshot().version, heads(storage)) == (manifest, versions)
    assert len(local.maintenance.recoveries()) == 1
    assert_at_rest(storage)


UNDO_POINTS = [
    Failpoint.OWN_UNDO,
    Failpoint.ABORT,
    Failpoint.RESTORE,
    Failpoint.CONVERGE,
    Failpoint.AUDIT,
    Failpoint.CLEAN,
]


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize(("point", "nth"), [*((point, 1) for point in UNDO_POINTS), (Failpoint.RESTORE, 2)])
def test_a_recoverer_that_dies_while_undoing_leaves_an_undo_that_the_next_one_ends(
    local: Graph, point: Failpoint, moment: Moment, nth: int
) -> None:
    storage, before = local.storage, content(local.storage)
    with dying(Failpoint.COMMIT_TABLE, AFTER):
        load_two_tables(local)
    operation = left_behind(storage)
    abandon(storage)
    with dying(point, moment, nth):
        reopened(storage)
    assert content(storage) == before
    abandon(storage)
    # The writer, if it was alive after all, may have deleted its own sidecar; the undo has one of its own by then.
    if point is not Failpoint.OWN_UNDO:
        storage.delete(operation.path)
    reopened(storage)
    reopened(storage)
    assert content(storage) == before
    assert_at_rest(storage)
    assert open_manifest(storage).find_commit(operation.commit_id) is None
    assert [record.kind for record in local.maintenance.recoveries()] == [RecoveryKind.ROLLED_BACK]
    load_two_tables(local)


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("point", [Failpoint.ROLL_FORWARD, Failpoint.AUDIT, Failpoint.CLEAN])
def test_a_recoverer_that_dies_while_finishing_leaves_an_operation_that_the_next_one_finishes(
    local: Graph, point: Failpoint, moment: Moment
) -> None:
    storage = local.storage
    with dying(Failpoint.PUBLISH, BEFORE):
        load_two_tables(local)
    operation = left_behind(storage)
    abandon(storage)
    with dying(point, moment):
        reopened(storage)
    abandon(storage)
    reopened(storage)
    assert_at_rest(storage)
    assert local.snapshot().commit.commit_id == operation.commit_id
    assert [record.kind for record in local.maintenance.recoveries()] == [RecoveryKind.ROLLED_FORWARD]


# -- chains -------------------------------------------------------------------------------------------------


@pytest.fixture
def folding(local: Graph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The next load of a person folds the table in a second step."""
    monkeypatch.setattr(fold, "FOLD_AT", 2)
    return local


def load_a_chain(graph: Graph) -> None:
    graph.load({"Person": people("Cleo"), "Company": companies("Acme")})


@pytest.mark.parametrize(
    ("nth", "moment"),
    [(1, AFTER), (2, AFTER), (3, BEFORE)],
    ids=["another table landed", "the first step landed", "before the last step"],
)
def test_a_chain_that_was_interrupted_is_undone_as_a_whole(folding: Graph, nth: int, moment: Moment) -> None:
    storage, before = folding.storage, content(folding.storage)
    with dying(Failpoint.COMMIT_TABLE, moment, nth):
        load_a_chain(folding)
    assert [len(intent.transactions) for intent in left_behind(storage).tables] == [1, 2]
    abandon(storage)
    recovered = reopened(storage)
    assert content(storage) == before
    assert_at_rest(storage)
    assert [record.kind for record in recovered.maintenance.recoveries()] == [RecoveryKind.ROLLED_BACK]


@pytest.mark.parametrize(
    ("point", "nth", "moment"),
    [(Failpoint.COMMIT_TABLE, 3, AFTER), (Failpoint.CONFIRM, 1, BEFORE), (Failpoint.CONFIRM, 1, AFTER)],
)
def test_a_chain_that_landed_in_full_is_finished(folding: Graph, point: Failpoint, nth: int, moment: Moment) -> None:
    storage = folding.storage
    with dying(point, moment, nth):
        load_a_chain(folding)
    operation = left_behind(storage)
    abandon(storage)
    recovered = reopened(storage)
    assert recovered.snapshot().commit.commit_id == operation.commit_id
    assert pins(storage)["node:Person"] == 4
    assert (names(storage), names(storage, "node:Company")) == (["Ada", "Bob", "Cleo"], ["Acme"])
    assert_at_rest(storage)


# -- several operations -------------------------------------------------------------------------------------


def test_operations_on_different_tables_are_settled_each_in_its_turn(local: Graph) -> None:
    storage = local.storage
    with dying(Failpoint.PUBLISH, BEFORE):
        local.load({"Person": people("Cleo")}, actor="first")
    with dying(Failpoint.ARM, AFTER):
        local.load({"Company": companies("Acme")}, actor="second")
    with dying(Failpoint.PUBLISH, BEFORE):
        local.load({"Knows": edges(("Bob", "Ada"))}, actor="third")
    assert len(sidecar_paths(storage)) == 3
    abandon(storage)
    recovered = reopened(storage)
    kinds = {record.actor: record.kind for record in recovered.maintenance.recoveries()}
    # The third had checked its ends against a table of people that the first one's recovery has moved.
    assert kinds == {
        "first": RecoveryKind.ROLLED_FORWARD,
        "second": RecoveryKind.ROLLED_BACK,
        "third": RecoveryKind.ROLLED_BACK,
    }
    assert (names(storage), names(storage, "node:Company")) == (["Ada", "Bob", "Cleo"], [])
    assert names(storage, "edge:Knows") == ["Ada-Bob"]
    assert_at_rest(storage)


def test_a_writer_settles_what_stands_in_its_way_and_leaves_the_rest(local: Graph) -> None:
    storage = local.storage
    with dying(Failpoint.ARM, AFTER):
        local.load({"Company": companies("Acme")})
    with dying(Failpoint.PUBLISH, BEFORE):
        local.load({"Person": people("Cleo")})
    abandon(storage)
    local.load({"Person": people("Dora")})
    assert names(storage) == ["Ada", "Bob", "Cleo", "Dora"]
    assert left_behind(storage).table_keys == {"node:Company"}
    assert reopened(storage).maintenance.recoveries()[-1].kind is RecoveryKind.ROLLED_FORWARD
    assert_at_rest(storage)


# -- stale sidecars -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [Failpoint.DISARM, Failpoint.COMMIT_TABLE], ids=["published", "undone"])
def test_a_stale_sidecar_of_a_sealed_operation_is_deleted_and_changes_nothing(local: Graph, point: Failpoint) -> None:
    storage = local.storage
    with dying(point, BEFORE):
        load_two_tables(local)
    operation = left_behind(storage)
    abandon(storage)
    document = storage.get(operation.path)
    local.maintenance.recover()
    for number in range(5):
        local.load({"Person": people(f"p{number}"), "Knows": edges((f"p{number}", "Ada"))})
    storage.put(operation.path, document)
    before, manifest, versions = content(storage), local.snapshot().version, heads(storage)
    recovered = reopened(storage)
    assert (recovered.snapshot().version, heads(storage), content(storage)) == (manifest, versions, before)
    assert len(recovered.maintenance.recoveries()) == 1
    assert_at_rest(storage)


def test_a_sealed_sidecar_is_in_nobodys_way_and_is_forgotten_once_it_is_old(local: Graph) -> None:
    storage = local.storage
    with dying(Failpoint.DISARM, BEFORE):
        load_two_tables(local)
    operation = left_behind(storage)
    assert operation.lease == 30
    local.load({"Person": people("Dora")})  # it does not wait for the lease to run out
    protocol = json.loads(storage.get(operation.path))["protocol_v3"]
    protocol["lineage"]["created_at"] -= 3600 * 10**6
    rewrite(storage, operation.path, protocol_v3=protocol)
    local.load({"Person": people("Emma")})
    assert_at_rest(storage)
    assert len(local.maintenance.recoveries()) == 1


# -- branches -----------------------------------------------------------------------------------------------


def manifest_dataset(storage: Storage) -> lance.LanceDataset:
    return lance.dataset(storage.uri("__manifest"), storage_options=storage.options or None)


def assert_discarded(graph: Graph, operation_id: str, manifest: int, versions: dict[str, int]) -> None:
    (record,) = graph.maintenance.recoveries()
    assert (record.kind, record.operation_id) == (RecoveryKind.ORPHANED_BRANCH_DISCARDED, operation_id)
    assert record.tables == ()
    assert (graph.snapshot().version, heads(graph.storage)) == (manifest, versions)
    assert_at_rest(graph.storage)


def test_an_operation_on_a_branch_that_is_gone_is_discarded(local: Graph) -> None:
    storage = local.storage
    manifest, versions = local.snapshot().version, heads(storage)
    with dying(Failpoint.ARM, AFTER):
        load_two_tables(local)
    operation = left_behind(storage)
    abandon(storage)
    rewrite(storage, operation.path, branch="gone")
    recovered = reopened(storage)
    assert_discarded(recovered, operation.operation_id, manifest, versions)
    reopened(storage)
    assert len(local.maintenance.recoveries()) == 1


def test_an_operation_on_an_earlier_life_of_a_branch_is_discarded(local: Graph) -> None:
    storage = local.storage
    manifest_dataset(storage).create_branch("dev", (None, local.snapshot().version))
    first_life = open_manifest(storage, "dev").branch_identifier
    with dying(Failpoint.ARM, AFTER):
        load_two_tables(local)
    operation = left_behind(storage)
    abandon(storage)
    protocol = json.loads(storage.get(operation.path))["protocol_v3"]
    protocol["authority"]["branch_identifier"]["version_mapping"] = [list(pair) for pair in first_life]
    rewrite(storage, operation.path, branch="dev", protocol_v3=protocol)
    manifest_dataset(storage).branches.delete("dev")
    manifest_dataset(storage).create_branch("dev", (None, local.snapshot().version))
    assert open_manifest(storage, "dev").branch_identifier != first_life
    manifest, versions = local.snapshot().version, heads(storage)
    assert_discarded(reopened(storage), operation.operation_id, manifest, versions)
    assert open_manifest(storage, "dev").state.aborts == {}


# -- what nobody can read -----------------------------------------------------------------------------------


def test_a_damaged_sidecar_stops_writes_and_nothing_else(local: Graph, caplog: pytest.LogCaptureFixture) -> None:
    storage, before = local.storage, content(local.storage)
    path = sidecar_path(str(ULID()))
    storage.put(path, b'{"schema_version": 9, "oper')
    with caplog.at_level(logging.WARNING):
        opened = reopened(storage)
    assert path in caplog.text
    assert content(storage) == before
    versions = heads(storage)
    with pytest.raises(SidecarUnreadable, match=path) as caught:
        opened.load({"Person": people("Cleo")})
    assert caught.value.hint
    assert not caught.value.retryable
    assert (heads(storage), sidecar_paths(storage)) == (versions, [path])
    assert Graph.open(storage.root, "ro", storage_options=storage.options).snapshot().table("Person").count() == 2
    storage.delete(path)  # the operator has looked
    opened.load({"Person": people("Cleo")})


def test_a_damaged_sidecar_does_not_keep_others_from_being_settled(local: Graph) -> None:
    with dying(Failpoint.PUBLISH, BEFORE):
        load_two_tables(local)
    abandon(local.storage)
    path = sidecar_path(str(ULID()))
    local.storage.put(path, b"")
    reopened(local.storage)
    assert names(local.storage) == ["Ada", "Bob", "Cleo"]
    assert sidecar_paths(local.storage) == [path]


@pytest.mark.parametrize(
    "what", [{"schema_version": 10}, {"writer_kind": "SchemaApply", "protocol_v7": {"effects": []}}]
)
def test_a_foreign_sidecar_stops_only_writes_to_its_branch(local: Graph, what: dict[str, object]) -> None:
    storage = local.storage
    manifest_dataset(storage).create_branch("dev", (None, local.snapshot().version))
    path = sidecar_path(str(ULID()))
    storage.put(path, json.dumps({"schema_version": 9, "branch": "dev", **what}).encode())
    reopened(storage).load({"Person": people("Cleo")})
    assert sidecar_paths(storage) == [path]
    recovery = Recovery(storage, wait_limit=0)
    recovery.barrier(None, frozenset({"node:Person"}))
    with pytest.raises(SidecarUnreadable) as caught:
        recovery.barrier("dev", frozenset({"node:Person"}))
    assert caught.value.details["branch"] == "dev"


# -- what cannot be -----------------------------------------------------------------------------------------


def test_a_table_behind_what_is_published_is_a_loud_error_and_the_sidecar_stays(local: Graph) -> None:
    storage = local.storage
    with dying(Failpoint.COMMIT_TABLE, AFTER):
        load_two_tables(local)
    operation = left_behind(storage)
    abandon(storage)
    for version in (3, 2):
        delete_version(storage, "edge:Knows", version)
    manifest, versions = local.snapshot().version, heads(storage)
    for attempt in (lambda: reopened(storage), lambda: graph_on(storage).load({"Person": people("Dora")})):
        with pytest.raises(GraphDamaged, match="edge:Knows") as caught:
            attempt()
        assert caught.value.details["table_keys"] == ["edge:Knows"]
        assert caught.value.details["sidecar"] == operation.path
        assert caught.value.hint
    assert (local.snapshot().version, heads(storage)) == (manifest, versions)
    assert sidecar_paths(storage) == [operation.path]
    assert Graph.open(storage.root, "ro", storage_options=storage.options).snapshot().table("Person").count() == 2


def test_reading_never_recovers(graph: Graph) -> None:
    storage = graph.storage
    with dying(Failpoint.PUBLISH, BEFORE):
        load_two_tables(graph)
    abandon(storage)
    stored = {path: storage.get(path) for path in storage.list()}
    reader = Graph.open(storage.root, "ro", storage_options=storage.options)
    assert reader.snapshot().table("Person").count() == 2
    assert reader.maintenance.recoveries() == []
    assert {path: storage.get(path) for path in storage.list()} == stored


def test_an_operation_whose_checks_relied_on_a_table_that_moved_is_undone(local: Graph) -> None:
    storage = local.storage
    with dying(Failpoint.PUBLISH, BEFORE):
        local.load({"Knows": edges(("Bob", "Ada"))})
    assert set(left_behind(storage).read_set) == {"node:Person"}
    local.load({"Person": people("Dora")})
    abandon(storage)
    reopened(storage)
    assert names(storage, "edge:Knows") == ["Ada-Bob"]
    assert_at_rest(storage)
