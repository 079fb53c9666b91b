"""What a manifest says, from its rows alone (FORMAT 3.6)."""

from __future__ import annotations

from typing import Any

import pytest
from omnigraph_engine.errors import GraphDamaged
from omnigraph_engine.manifest.rows import (
    Abort,
    AbortState,
    AppTransaction,
    GraphCommit,
    GraphHead,
    Row,
    TableRegistration,
    TableVersion,
    to_table,
)
from omnigraph_engine.manifest.state import ManifestState, commits, find_commit, rebuild
from omnigraph_engine.schema.identity import TableIdentity

PERSON = TableIdentity(2, 10)
COMPANY = TableIdentity(1, 9)
AGAIN = TableIdentity(20, 21)
GENESIS = GraphCommit("01GENESIS", 1, None, created_at=100)


def _version(version: int, identity: TableIdentity = PERSON, key: str = "node:Person", **more: Any) -> Row:
    return TableVersion(key, identity, version, more.get("branch"), more.get("rows", 0), "somewhere").to_row()


def _registered(identity: TableIdentity = PERSON, key: str = "node:Person") -> Row:
    return TableRegistration(key, identity).to_row()


def _tombstone(version: int, identity: TableIdentity = PERSON, key: str = "node:Person") -> Row:
    object_id = f"table_tombstone:{identity.stable_id:016x}:{identity.incarnation_id:016x}:{version:020d}"
    erased = {"object_type": "table_tombstone", "object_id": object_id, "metadata": None, "row_count": None}
    return {**_version(version, identity, key), **erased}


def _state(*rows: Row, branch: str | None = None) -> ManifestState:
    return rebuild(to_table([*rows, GENESIS.to_row()]), branch=branch, version=7)


def test_the_highest_version_of_a_table_is_the_one_shown_whatever_the_order_of_rows() -> None:
    state = _state(_version(9, rows=90), _version(10, rows=100, branch="b"), _registered(), _version(2))
    table = state.tables["node:Person"]
    assert (table.version, table.row_count, table.branch) == (10, 100, "b")
    assert table.location == "nodes/0000000000000002-000000000000000a"
    assert table.identity == PERSON
    assert (state.version, state.branch_name) == (7, "main")


def test_tables_are_sorted_by_key() -> None:
    state = _state(
        _registered(), _version(1), _registered(COMPANY, "node:Company"), _version(4, COMPANY, "node:Company")
    )
    assert list(state.tables) == ["node:Company", "node:Person"]


@pytest.mark.parametrize("tombstone", [3, 4])
def test_a_tombstone_at_or_above_the_newest_version_hides_the_table(tombstone: int) -> None:
    assert _state(_registered(), _version(2), _version(3), _tombstone(tombstone)).tables == {}


def test_a_tombstone_below_the_newest_version_hides_nothing() -> None:
    assert _state(_registered(), _version(3), _tombstone(2)).tables["node:Person"].version == 3


def test_the_highest_tombstone_counts() -> None:
    assert _state(_registered(), _version(3), _tombstone(2), _tombstone(4)).tables == {}


def test_a_tombstone_hides_only_its_own_identity() -> None:
    state = _state(_registered(), _version(3), _tombstone(4), _registered(AGAIN), _version(1, AGAIN))
    assert state.tables["node:Person"].identity == AGAIN


def test_two_live_tables_of_one_key_are_refused() -> None:
    with pytest.raises(GraphDamaged, match="two live tables as node:Person"):
        _state(_registered(), _version(3), _registered(AGAIN), _version(1, AGAIN))


def test_a_table_that_is_published_but_not_registered_is_refused() -> None:
    with pytest.raises(GraphDamaged, match="does not register"):
        _state(_version(3))


def test_a_table_that_is_registered_but_never_published_is_not_shown() -> None:
    assert _state(_registered()).tables == {}


def test_the_registration_names_the_table_also_for_versions_published_under_an_older_name() -> None:
    state = _state(_registered(key="node:Human"), _version(3, key="node:Person"))
    assert list(state.tables) == ["node:Human"]


@pytest.mark.parametrize(
    "row",
    [
        {**_registered(), "object_id": "table:0000000000000002:000000000000000b"},
        {**_registered(), "location": "nodes/elsewhere"},
        {**_registered(), "stable_table_id": None},
        {**_registered(), "table_incarnation_id": 0},
        {**_version(3), "object_id": "table_version:0000000000000002:000000000000000a:3"},
        {**_version(3), "metadata": "{"},
        {**_version(3), "metadata": "[]"},
        {**_version(3), "metadata": None},
        {**_tombstone(3), "object_id": "table_tombstone:0000000000000002:000000000000000a:3"},
    ],
    ids=[
        "registration id",
        "location",
        "no identity",
        "zero incarnation",
        "version id",
        "metadata not JSON",
        "metadata not an object",
        "no metadata",
        "tombstone id",
    ],
)
def test_a_row_that_contradicts_itself_is_refused_and_named(row: Row) -> None:
    whole = {"table": _version(1), "table_version": _registered(), "table_tombstone": _registered()}
    with pytest.raises(GraphDamaged) as caught:
        _state(row, whole[row["object_type"]])
    assert caught.value.details == {"object_id": row["object_id"], "object_type": row["object_type"]}


def test_rows_of_an_unknown_kind_are_ignored() -> None:
    unknown = {**_version(99), "object_type": "later_kind", "object_id": "later_kind:x", "metadata": "not JSON"}
    assert _state(_registered(), _version(3), unknown) == _state(_registered(), _version(3))


def test_the_newest_write_of_each_application_is_known_by_its_id() -> None:
    etl, other = AppTransaction("etl:nightly", 7, "01ETL"), AppTransaction("other", 0, "01OTHER")
    assert _state(etl.to_row(), other.to_row()).app_transactions == {"etl:nightly": etl, "other": other}
    assert _state().app_transactions == {}


def test_what_was_decided_about_an_operation_is_known_by_its_id() -> None:
    rows = [Abort("01A", AbortState.UNDOING).to_row(), Abort("01B", AbortState.DONE).to_row()]
    assert _state(*rows).aborts == {"01A": AbortState.UNDOING, "01B": AbortState.DONE}
    assert _state().aborts == {}


@pytest.mark.parametrize(
    "row",
    [
        {**AppTransaction("etl", 7, "01ETL").to_row(), "object_id": "spark_txn:other"},
        {**AppTransaction("etl", 7, "01ETL").to_row(), "metadata": "not JSON"},
        {**Abort("01A", AbortState.DONE).to_row(), "metadata": '{"state":"perhaps"}'},
        {**Abort("01A", AbortState.DONE).to_row(), "metadata": None},
    ],
    ids=["application id", "application metadata", "abort state", "no abort state"],
)
def test_a_damaged_row_of_our_own_kinds_is_refused_and_named(row: Row) -> None:
    with pytest.raises(GraphDamaged) as caught:
        _state(row)
    assert caught.value.details["object_id"] == row["object_id"]


def test_unknown_keys_in_metadata_are_ignored() -> None:
    odd = {**_version(3), "metadata": '{"manifest_path":"x","later":{"a":1}}'}
    assert _state(_registered(), odd).tables["node:Person"].version == 3


def test_a_manifest_without_any_commit_is_refused() -> None:
    with pytest.raises(GraphDamaged, match="no commit"):
        rebuild(to_table([_registered(), _version(1)]), branch=None, version=1)


def test_a_commit_without_its_time_is_refused() -> None:
    with pytest.raises(GraphDamaged, match="created_at"):
        rebuild(to_table([{**GENESIS.to_row(), "metadata": "{}"}]), branch=None, version=1)


def test_the_head_of_a_fresh_branch_is_the_greatest_commit_it_inherited() -> None:
    inherited = GraphCommit("01SECOND", 2, None, created_at=200, parent_id="01GENESIS")
    head_row = GraphHead(None, "01SECOND", "01GENESIS").to_row()
    state = _state(inherited.to_row(), head_row, branch="fresh")
    assert state.head == inherited
    assert state.branch_name == "fresh"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (GraphCommit("01A", 3, None, 100), GraphCommit("01Z", 2, None, 900)),
        (GraphCommit("01A", 3, None, 101), GraphCommit("01Z", 3, None, 100)),
        (GraphCommit("01B", 3, None, 100), GraphCommit("01A", 3, None, 100)),
    ],
    ids=["version first", "then time", "then id"],
)
def test_commits_are_ordered_by_version_then_time_then_id(left: GraphCommit, right: GraphCommit) -> None:
    assert _state(left.to_row(), right.to_row()).head == left
    assert _state(right.to_row(), left.to_row()).head == left


def test_a_commit_reads_back_as_it_was_written() -> None:
    commit = GraphCommit("01C", 5, "dev", 500, "01P", "01M", "ada", {"message": "grüße"})
    rows = to_table([GENESIS.to_row(), commit.to_row()])
    assert find_commit(rows, "01C") == commit
    assert find_commit(rows, "01X") is None
    assert list(commits(rows)) == [commit, GENESIS]


def test_an_object_that_is_not_a_commit_is_not_found_as_one() -> None:
    assert find_commit(to_table([_registered(), GENESIS.to_row()]), str(_registered()["object_id"])) is None
