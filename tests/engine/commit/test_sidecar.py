"""The sidecar document: its form on disk, what is read back from it, and whose sidecars are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crash_scene import (
    AFTER,
    BEFORE,
    abandon,
    assert_at_rest,
    content,
    dying,
    edges,
    left_behind,
    names,
    new_local_graph,
    people,
    pins,
    reopened,
    sidecar_paths,
)
from omnigraph_engine.commit.sidecar import Authority, EffectPhase, Sidecar, TableIntent, sidecar_path, undo_path
from omnigraph_engine.commit.sidecar_reader import read_sidecar
from omnigraph_engine.errors import SidecarUnreadable
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.audit import RecoveryKind
from omnigraph_engine.manifest.publisher import TablePin
from omnigraph_engine.manifest.rows import AppTransaction
from omnigraph_engine.schema.identity import TableIdentity
from omnigraph_engine.storage import Storage
from ulid import ULID

OPERATION, COMMIT, ROLLBACK = "01K9ZZZZZZZZZZZZZZZZZZZZZA", "01K9ZZZZZZZZZZZZZZZZZZZZZB", "01K9ZZZZZZZZZZZZZZZZZZZZZC"
SIDECAR = Sidecar(
    operation_id=OPERATION,
    branch="dev",
    actor="ada",
    writer_kind="Load",
    tables=(
        TableIntent("edge:Knows", TableIdentity(4, 12), None, 7, ("uuid-1",), 70),
        TableIntent("node:Person", TableIdentity(2, 10), "fork", 3, ("uuid-2", "uuid-3"), 30),
    ),
    authority=Authority(((5, "life"),), "head", "domain", "hash"),
    commit_id=COMMIT,
    rollback_commit_id=ROLLBACK,
    created_at=1_700_000_000_000_000,
    read_set={"node:Company": TablePin(2, None)},
    extra={"message": "why"},
    app_transaction=AppTransaction("app", 3, COMMIT),
    lease=12.5,
    beat=4,
)
STORAGE = Storage("/graphs/social.omni")
PERSON, KNOWS = TableIdentity(2, 10), TableIdentity(4, 12)
FORK = TableIntent("node:Person", PERSON, "dev-life-op", 3, ("uuid-2", "uuid-3"), 30, TablePin(3, None))
FORK_OF_FORK = replace(FORK, replaces=TablePin(3, "parent-life-op"))
ADOPTION = TableIntent("edge:Knows", KNOWS, "dev-life-op", 9, (), 70, TablePin(7, None))
ADOPTION_OF_MAIN = TableIntent("edge:Knows", KNOWS, None, 9, (), 70, TablePin(7, "dev-life-op"))


def document(sidecar: Sidecar = SIDECAR) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sidecar.to_json(STORAGE))
    return found


def read(changes: dict[str, Any], path: str = sidecar_path(OPERATION)) -> Sidecar:
    return read_sidecar(path, json.dumps({**document(), **changes}).encode())


# -- the form -----------------------------------------------------------------------------------------------


def test_the_document_is_the_formats_version_9() -> None:
    knows = {"stable_table_id": 4, "table_incarnation_id": 12}
    person = {"stable_table_id": 2, "table_incarnation_id": 10}
    found = document()
    assert set(found.pop("spark")) == {
        "lease_seconds", "beat", "transactions", "rows_after", "replaces", "read_set", "commit", "txn",
    }  # fmt: skip
    assert found == {
        "schema_version": 9,
        "operation_id": OPERATION,
        "started_at": "1700000000000000",
        "branch": "dev",
        "actor_id": "ada",
        "writer_kind": "Load",
        "tables": [
            {
                "identity": knows,
                "table_key": "edge:Knows",
                "table_path": "/graphs/social.omni/edges/0000000000000004-000000000000000c",
                "expected_version": 7,
                "post_commit_pin": 8,
            },
            {
                "identity": person,
                "table_key": "node:Person",
                "table_path": "/graphs/social.omni/nodes/0000000000000002-000000000000000a",
                "expected_version": 3,
                "post_commit_pin": 4,
                "table_branch": "fork",
            },
        ],
        "schema_apply_manifest_published": False,
        "protocol_v3": {
            "authority": {
                "branch_identifier": {"version_mapping": [[5, "life"]]},
                "graph_head": "head",
                "schema_identity_domain": "domain",
                "schema_ir_hash": "hash",
                "schema_identity_version": 2,
            },
            "lineage": {
                "graph_commit_id": COMMIT,
                "branch": "dev",
                "actor_id": "ada",
                "merged_parent_commit_id": None,
                "created_at": 1_700_000_000_000_000,
            },
            "rollback_graph_commit_id": ROLLBACK,
            "effect_phase": "Armed",
            "effects": [
                {
                    "identity": knows,
                    "table_key": "edge:Knows",
                    "planned_transaction": {"read_version": 7, "uuid": "uuid-1"},
                },
                {
                    "identity": person,
                    "table_key": "node:Person",
                    "planned_transaction": {"read_version": 3, "uuid": "uuid-2"},
                },
            ],
            "intended_delta": {
                "table_updates": [
                    {"identity": knows, "table_key": "edge:Knows", "expected_version": 7, "table_branch": None},
                    {"identity": person, "table_key": "node:Person", "expected_version": 3, "table_branch": "fork"},
                ]
            },
        },
    }


def test_a_confirmed_sidecar_names_the_versions_reached() -> None:
    found = document(SIDECAR.confirmed())
    assert found["protocol_v3"]["effect_phase"] == "EffectsConfirmed"
    assert [table["confirmed_version"] for table in found["tables"]] == [8, 5]
    assert found["spark"]["beat"] == 5


@pytest.mark.parametrize(
    "sidecar",
    [
        SIDECAR,
        SIDECAR.confirmed(),
        SIDECAR.renewed(),
        replace(SIDECAR, branch=None, actor=None, read_set={}, extra={}, app_transaction=None),
        replace(SIDECAR, authority=Authority((), None)),
        replace(SIDECAR, authority=None),
        replace(SIDECAR, tables=(TableIntent("node:Person", TableIdentity(2, 10), None, 3, (None,), None),)),
        replace(SIDECAR, tables=(FORK,)),
        replace(SIDECAR, tables=(FORK_OF_FORK,)).confirmed(),
        replace(SIDECAR, tables=(ADOPTION,), merged_commit_id=ROLLBACK, writer_kind="BranchMerge"),
        replace(SIDECAR, tables=(FORK, ADOPTION_OF_MAIN)).confirmed(),
    ],
)
def test_what_is_written_is_what_is_read(sidecar: Sidecar) -> None:
    assert read_sidecar(sidecar.path, sidecar.to_json(STORAGE)) == sidecar
    assert read_sidecar(sidecar.undo_path, sidecar.to_json(STORAGE)) == sidecar


def test_a_fork_says_what_it_replaces_and_an_adoption_plans_no_effect() -> None:
    found = document(replace(SIDECAR, tables=(ADOPTION, FORK)))
    assert found["spark"]["replaces"] == {
        "edge:Knows": {"version": 7, "branch": None},
        "node:Person": {"version": 3, "branch": None},
    }
    assert found["spark"]["transactions"] == {"edge:Knows": [], "node:Person": ["uuid-2", "uuid-3"]}
    assert [effect["table_key"] for effect in found["protocol_v3"]["effects"]] == ["node:Person"]
    assert [table["table_branch"] for table in found["tables"]] == ["dev-life-op", "dev-life-op"]
    updates = found["protocol_v3"]["intended_delta"]["table_updates"]
    assert [(update["table_key"], update["expected_version"]) for update in updates] == [
        ("edge:Knows", 9),
        ("node:Person", 3),
    ]


def test_a_table_of_which_nothing_is_planned_and_nothing_replaced_makes_no_sense() -> None:
    nothing = document(replace(SIDECAR, tables=(ADOPTION,)))
    del nothing["spark"]["replaces"]
    with pytest.raises(SidecarUnreadable, match="edge:Knows"):
        read_sidecar(sidecar_path(OPERATION), json.dumps(nothing).encode())


def test_the_sidecar_of_another_engine_is_read_without_our_part_of_it() -> None:
    theirs = {key: value for key, value in document().items() if key != "spark"}
    found = read_sidecar(sidecar_path(OPERATION), json.dumps(theirs).encode())
    assert [intent.transactions for intent in found.tables] == [("uuid-1",), ("uuid-2",)]
    assert (found.commit_id, found.lease, found.read_set) == (COMMIT, 30.0, {})
    assert [intent.rows_after for intent in found.tables] == [None, None]


# -- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 10},
        {"schema_version": 0},
        {"protocol_v4": {"effects": []}},
        {"protocol_v7": {"effects": []}},
        {"protocol_v8": {"effects": []}},
        {"operation_id": ROLLBACK},
        {"tables": None},
        {"tables": [{"table_key": "node:Person"}]},
        {"started_at": "soon", "protocol_v3": None},
        {"spark": {"lease_seconds": "long"}},
    ],
    ids=str,
)
def test_what_is_not_ours_to_settle_is_refused_with_its_branch(changes: dict[str, Any]) -> None:
    with pytest.raises(SidecarUnreadable, match=OPERATION) as caught:
        read(changes)
    assert caught.value.details == {"path": sidecar_path(OPERATION), "operation_id": OPERATION, "branch": "dev"}
    assert caught.value.hint


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'{"schema_version": "new"}'])
def test_a_damaged_document_is_refused_and_concerns_every_branch(data: bytes) -> None:
    with pytest.raises(SidecarUnreadable, match="damaged") as caught:
        read_sidecar(sidecar_path(OPERATION), data)
    assert "branch" not in caught.value.details


def test_a_document_under_the_name_of_another_operation_is_refused() -> None:
    for path in (sidecar_path(ROLLBACK), undo_path(ROLLBACK)):
        with pytest.raises(SidecarUnreadable, match=ROLLBACK):
            read({}, path)


# -- version 1, on a real graph -----------------------------------------------------------------------------


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    graph = new_local_graph(tmp_path, social)
    graph.load({"Person": people("Ada", "Bob")})
    return graph


def as_version_1(storage: Storage) -> str:
    """Turns the sidecar that is there into what release 0.4.2 would have written, and says its operation."""
    (path,) = sidecar_paths(storage)
    full = json.loads(storage.get(path))
    kept = {key: full[key] for key in ("operation_id", "started_at", "branch", "actor_id", "writer_kind")}
    tables = [
        {key: table[key] for key in ("table_key", "table_path", "expected_version", "post_commit_pin")}
        for table in full["tables"]
    ]
    abandoned = {"spark": {"lease_seconds": 0}}  # nobody wants to wait for the default
    storage.put(path, json.dumps({"schema_version": 1, **kept, "tables": tables, **abandoned}).encode())
    return str(full["operation_id"])


def die_at(graph: Graph, point: Failpoint, moment: Moment) -> str:
    with dying(point, moment):
        graph.load({"Person": people("Cleo"), "Knows": edges(("Cleo", "Ada"))}, actor="ada")
    return as_version_1(graph.storage)


def test_a_version_1_operation_that_landed_everywhere_is_finished_under_an_id_that_follows_from_it(
    graph: Graph,
) -> None:
    operation = die_at(graph, Failpoint.PUBLISH, BEFORE)
    old = graph.storage.get(sidecar_path(operation))
    recovered = reopened(graph.storage)
    commit = recovered.snapshot().commit
    assert (commit.commit_id, commit.actor) == (operation, "ada")
    assert names(graph.storage) == ["Ada", "Bob", "Cleo"]
    assert recovered.snapshot().table("Person").count() == 3
    assert_at_rest(graph.storage)
    graph.storage.put(sidecar_path(operation), old)
    assert reopened(graph.storage).snapshot().version == recovered.snapshot().version
    assert [record.kind for record in graph.maintenance.recoveries()] == [RecoveryKind.ROLLED_FORWARD]


@pytest.mark.parametrize("point", [Failpoint.ARM, Failpoint.COMMIT_TABLE])
def test_a_version_1_operation_that_did_not_land_everywhere_is_undone(graph: Graph, point: Failpoint) -> None:
    before = content(graph.storage)
    operation = die_at(graph, point, AFTER)
    old = graph.storage.get(sidecar_path(operation))
    recovered = reopened(graph.storage)
    assert content(graph.storage) == before
    assert_at_rest(graph.storage)
    versions = pins(graph.storage)
    graph.storage.put(sidecar_path(operation), old)
    assert reopened(graph.storage).snapshot().version == recovered.snapshot().version
    assert pins(graph.storage) == versions
    assert [record.kind for record in graph.maintenance.recoveries()] == [RecoveryKind.ROLLED_BACK]


@pytest.mark.parametrize("point", [Failpoint.ABORT, Failpoint.RESTORE, Failpoint.CONVERGE])
def test_the_undo_of_a_version_1_operation_is_ended_also_without_its_own_sidecar(
    graph: Graph, point: Failpoint
) -> None:
    before = content(graph.storage)
    operation = die_at(graph, Failpoint.COMMIT_TABLE, AFTER)
    with dying(point, AFTER):
        reopened(graph.storage)
    graph.storage.delete(sidecar_path(operation))
    abandon(graph.storage)
    reopened(graph.storage)
    assert content(graph.storage) == before
    assert_at_rest(graph.storage)


def test_a_stale_version_1_sidecar_whose_tables_have_moved_on_changes_nothing(graph: Graph) -> None:
    operation = die_at(graph, Failpoint.PUBLISH, BEFORE)
    old = graph.storage.get(sidecar_path(operation))
    reopened(graph.storage)
    for name in ("Dora", "Emma"):
        graph.load({"Person": people(name), "Knows": edges((name, "Ada"))})
    stale = str(ULID())
    graph.storage.put(sidecar_path(stale), old.replace(operation.encode(), stale.encode()))
    before, manifest = content(graph.storage), graph.snapshot().version
    assert reopened(graph.storage).snapshot().version == manifest
    assert content(graph.storage) == before
    assert_at_rest(graph.storage)


def test_a_real_first_write_on_a_branch_names_a_line_of_its_own(graph: Graph) -> None:
    info = graph.branches.create("dev")
    with dying(Failpoint.ARM, AFTER):
        graph.load({"Person": people("Cleo")}, branch="dev")
    found = left_behind(graph.storage)
    (intent,) = found.tables
    assert found.branch == "dev"
    assert found.authority is not None
    assert found.authority.branch_identifier == info.identifier
    assert intent.forks
    assert intent.branch == f"dev-{info.life}-{found.operation_id}"
    assert (intent.replaces, intent.expected_version) == (TablePin(2, None), 2)


def test_a_real_operation_reads_back_as_it_was_armed(graph: Graph) -> None:
    with dying(Failpoint.ARM, AFTER):
        graph.load({"Knows": edges(("Ada", "Bob"))}, actor="ada", message="why")
    found = left_behind(graph.storage)
    assert (found.phase, found.beat, found.actor) == (EffectPhase.ARMED, 0, "ada")
    assert found.read_set == {"node:Person": TablePin(2, None)}
    assert found.authority is not None
    assert found.authority.graph_head == graph.snapshot().commit.commit_id
    assert (found.tables[0].rows_after, len(found.tables[0].transactions)) == (1, 1)
