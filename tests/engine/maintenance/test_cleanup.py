"""A cleanup takes what dead operations left behind, all of it, and nothing that anybody can come to see."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from branch_scene import KNOWS, PERSON, branch_names, forks, line, shown
from cleanup_scene import NOW, OLD, age, clean, everything, left_over, location, new_files, stored
from crash_scene import (
    AFTER,
    BEFORE,
    Faulty,
    abandon,
    dataset,
    dying,
    edges,
    graph_on,
    left_behind,
    people,
    reopened,
    sidecar_paths,
)
from omnigraph_engine.commit.shown import lines_in_common
from omnigraph_engine.errors import InvalidArgument, ReadOnlyGraph, StorageError
from omnigraph_engine.failpoints import Failpoint
from omnigraph_engine.graph import Graph
from omnigraph_engine.maintenance.cleanup import GRACE
from omnigraph_engine.manifest.refs import new_branch, put_ref
from omnigraph_engine.tables.heads import commit_staged
from omnigraph_engine.tables.indexes import IndexKind, stage_index
from omnigraph_engine.tables.stage import stage_append, stage_delete
from omnigraph_engine.tables.table import Table
from omnigraph_engine.tables.upsert import stage_upsert_part
from omnigraph_engine.write.load import LoadMode

BLOBS = "node Person { name: String @key  photo: Blob? }\nedge Knows: Person -> Person"
BIG = 300_000  # bytes; such a blob is a file of its own


def person(graph: Graph, branch: str = "main") -> Table:
    return graph.snapshot(branch=branch).table(PERSON).table


def photos(*names: str, size: int = BIG) -> pa.Table:
    return pa.table({"name": names, "photo": pa.array([name[:1].encode() * size for name in names], pa.large_binary())})


def rows(table: Table, *names: str) -> list[pa.RecordBatch]:
    """Rows as they are staged: in the table's own columns."""
    given = pa.table({"id": names, "name": names}, pa.schema([table.schema.field("id"), table.schema.field("name")]))
    rest = [name for name in table.schema.names if name not in given.schema.names]
    for name in rest:
        given = given.append_column(table.schema.field(name), pa.nulls(len(names), table.schema.field(name).type))
    return given.select(table.schema.names).to_batches()


# -- what there is to reclaim -----------------------------------------------------------------------------------


def staged_rows(graph: Graph) -> dict[str, int]:
    stage_append(person(graph), rows(person(graph), "Cleo"))
    return {"data": 1}


def staged_deletion(graph: Graph) -> dict[str, int]:
    stage_delete(person(graph), "name = 'Ada'")
    return {"deletions": 1}


def staged_index(graph: Graph) -> dict[str, int]:
    stage_index(person(graph), "name", IndexKind.BTREE)
    return {"index": 2}


def refused_commit(graph: Graph) -> dict[str, int]:
    """A commit that the store refused at its last step."""
    broken = graph_on(Faulty(graph.storage, lambda verb, path: verb == "put_if_absent" and "_versions" in path))
    staged = stage_append(person(broken), rows(person(broken), "Cleo"))
    assert staged is not None
    with pytest.raises(StorageError):
        commit_staged(person(broken), staged)
    return {"data": 1, "transaction": 1, "refused version": 1}


def unfinished_file(graph: Graph) -> dict[str, int]:
    graph.storage.put(f"{location(graph, PERSON)}/data/.tmpHf4OkA", b"half a file")
    return {"unfinished": 1}


def foreign_line(graph: Graph) -> dict[str, int]:
    """A Lance branch with the name that a branch of the graph could have."""
    dataset(graph.storage, PERSON).create_branch("dev").delete("name = 'Ada'")
    return {"line dev": 7}


def line_with_the_name_of_a_branch(graph: Graph) -> dict[str, int]:
    graph.branches.create("dev")
    graph.load({"Company": pa.table({"name": ["Acme"]})}, branch="dev")
    dataset(graph.storage, PERSON).create_branch("dev")
    return {"line dev": 4}


def line_without_ref(graph: Graph) -> dict[str, int]:
    dataset(graph.storage, PERSON).create_branch("dev")
    graph.storage.delete(f"{location(graph, PERSON)}/_refs/branches/dev.json")
    return {"line dev": 3}


def ref_without_line(graph: Graph) -> dict[str, int]:
    dataset(graph.storage, PERSON).create_branch("dev")
    shutil.rmtree(f"{graph.storage.root}/{location(graph, PERSON)}/tree/dev")
    return {"line dev": 1}


def line_half_deleted(graph: Graph) -> dict[str, int]:
    """The deletion of a line that died when its ref and its versions had gone."""
    line_without_ref(graph)
    place = f"{location(graph, PERSON)}/tree/dev"
    shutil.rmtree(f"{graph.storage.root}/{place}/_versions")
    graph.storage.put(f"{place}/data/0101.lance", b"rows")
    return {"line dev": 2}


def line_of_a_dead_first_write(graph: Graph) -> dict[str, int]:
    graph.branches.create("june")
    with dying(Failpoint.PUBLISH, BEFORE):
        graph.load({"Person": people("Cleo")}, branch="june")
    graph.storage.delete(left_behind(graph.storage).path)
    (name,) = forks(graph)
    return {f"line {name}": 6, "data": 1}  # whose rows were staged on main's line


LEFTOVERS = [
    staged_rows,
    staged_deletion,
    staged_index,
    refused_commit,
    unfinished_file,
    foreign_line,
    line_with_the_name_of_a_branch,
    line_without_ref,
    ref_without_line,
    line_half_deleted,
    line_of_a_dead_first_write,
]


@pytest.mark.parametrize("leave", LEFTOVERS)
def test_each_kind_of_leftover_is_told_and_taken(graph: Graph, leave: Callable[[Graph], dict[str, int]]) -> None:
    expected = leave(graph)
    age(graph)
    assert left_over(clean(graph, GRACE)) == {PERSON: expected}
    assert forks(graph) == []
    for branch in branch_names(graph):
        graph.load({"Person": people("Last")}, branch=branch)
        assert shown(graph, branch)[-1] == "Last"


@pytest.mark.parametrize("leave", LEFTOVERS)
def test_what_is_younger_than_the_grace_period_stays(graph: Graph, leave: Callable[[Graph], dict[str, int]]) -> None:
    leave(graph)
    age(graph, seconds=OLD - 2 * 24 * 3600)
    before = stored(graph)
    report = graph.maintenance.cleanup(confirm=True)
    assert (dict(report.tables), dict(report.skipped)) == ({}, {})
    assert stored(graph) == before


def test_rows_with_blobs_go_with_the_blobs_files_and_those_in_use_stay(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path / "graph.omni", BLOBS)
    graph.load({"Person": photos("Ada", "Bob")})
    graph.load({"Person": photos("Ada")}, mode="merge")
    graph.branches.create("dev")
    graph.load({"Person": photos("Cleo")}, branch="dev")
    load = graph.begin_load()
    load.stage("node:Person", photos("Lost").to_batches(), LoadMode.APPEND)
    report = clean(graph)
    assert left_over(report) == {PERSON: {"data": 1, "blob": 1}}
    assert report.total.bytes > BIG


def test_what_an_upsert_put_down_goes_and_is_told_by_its_operation(graph: Graph) -> None:
    load = graph.begin_load()
    load.stage_part(PERSON, people("Ada", "New", age=3).to_batches(), LoadMode.MERGE)
    load.stage_part(PERSON, people("Bob", age=3).to_batches(), LoadMode.MERGE)
    age(graph)
    report = clean(graph, GRACE)
    assert left_over(report) == {PERSON: {"data": 2}}
    (left,) = report.staged
    assert (left.operation_id, left.amount.files) == (load.operation_id, 2)
    assert timedelta(seconds=OLD) <= left.age < timedelta(seconds=OLD + 3600)


# -- what must stay ---------------------------------------------------------------------------------------------


def test_a_file_staged_on_one_line_and_named_by_another_alone_stays(graph: Graph) -> None:
    """Lance's own cleanup would take it."""
    graph.branches.create("dev")
    before = graph.storage.list(location(graph, PERSON))
    graph.load({"Person": people("Cleo")}, branch="dev")
    on_main = [path for path in new_files(graph, before) if re.fullmatch(r"[^/]+/[^/]+/data/.*", path)]
    assert any(path.startswith(location(graph, PERSON)) for path in on_main)
    assert left_over(clean(graph)) == {}
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]


def test_lines_that_one_in_use_was_forked_from_stay(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    graph.merge("dev", delete_branch=True)
    graph.load({"Person": people("Dora")})  # on a line forked from the one that was dev's
    assert len(forks(graph)) == 2
    assert left_over(clean(graph)) == {}
    assert shown(graph) == ["Ada", "Bob", "Cleo", "Dora"]


def test_an_index_of_the_line_that_one_was_forked_from_stays(graph: Graph) -> None:
    dataset(graph.storage, PERSON).create_scalar_index("name", "BTREE")
    abandon(graph.storage)
    root = dataset(graph.storage, PERSON)
    root.create_branch("dev", root.version)
    report = graph.maintenance.cleanup(older_than=NOW, confirm=True)
    assert left_over(report) == {PERSON: {"line dev": 4}}
    assert dataset(graph.storage, PERSON).to_table(filter="name = 'Ada'").num_rows == 1


def test_what_is_not_known_stays(graph: Graph) -> None:
    strange = [f"{location(graph, PERSON)}/{name}" for name in ("notes.txt", "data/notes.txt", "_refs/tags/june.json")]
    for path in strange:
        graph.storage.put(path, b"mine")
    assert left_over(clean(graph)) == {}
    assert set(strange) <= set(graph.storage.list())


def test_a_table_with_versions_of_an_unknown_form_is_left_alone(graph: Graph) -> None:
    staged_rows(graph)
    graph.storage.put(f"{location(graph, PERSON)}/_versions/d9223372036854775809.manifest", b"detached")
    before = stored(graph)
    report = graph.maintenance.cleanup(older_than=NOW, confirm=True)
    assert "d9223372036854775809" in report.skipped[PERSON]
    assert stored(graph) == before


def test_a_table_with_a_line_that_is_shown_and_has_no_version_is_left_alone(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    staged_rows(graph)
    shutil.rmtree(f"{graph.storage.root}/{location(graph, PERSON)}/tree/{line(graph, 'dev')}/_versions")
    before = stored(graph)
    report = graph.maintenance.cleanup(older_than=NOW, confirm=True)
    assert str(line(graph, "dev")) in report.skipped[PERSON]
    assert stored(graph) == before


def test_a_version_that_cannot_be_read_keeps_the_table(graph: Graph) -> None:
    staged_rows(graph)
    path = f"{location(graph, PERSON)}/_versions/{2**64 - 2:020d}.manifest"
    graph.storage.put(path, b"torn")
    before = stored(graph)
    report = graph.maintenance.cleanup(older_than=NOW, confirm=True)
    assert list(report.skipped) == [PERSON]
    assert stored(graph) == before


# -- branches that were deleted ---------------------------------------------------------------------------------


def deleted_without_reclaim(graph: Graph, name: str) -> None:
    with dying(Failpoint.RECLAIM, BEFORE):
        graph.branches.delete(name)


def test_lines_of_a_branch_whose_deletion_died_go(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo"), "Knows": edges(("Cleo", "Ada"))}, branch="dev")
    graph.load({"Person": people("Dora")}, branch="dev", mode="merge")
    name = line(graph, "dev")
    deleted_without_reclaim(graph, "dev")
    age(graph)
    report = clean(graph, GRACE)
    assert [list(table.lines) for table in report.tables.values()] == [[name], [name]]
    assert forks(graph) == forks(graph, KNOWS) == []
    graph.branches.create("dev")
    assert shown(graph, "dev") == ["Ada", "Bob"]


def test_lines_of_lines_go_with_them(graph: Graph) -> None:
    for name, parent in (("a", "main"), ("b", "a"), ("c", "b")):
        graph.branches.create(name, parent)
        graph.load({"Person": people(name)}, branch=name)
    lines = {str(line(graph, name)) for name in ("a", "b", "c")}
    for name in ("c", "b", "a"):
        deleted_without_reclaim(graph, name)
    report = clean(graph)
    assert report.tables[PERSON].lines.keys() == lines
    assert forks(graph) == []


def test_what_two_branches_have_in_common_stays_until_one_of_them_is_gone(graph: Graph) -> None:
    """Merging them takes the rows of the deleted branch's commit as what both began with."""
    for name in ("one", "other", "dev"):
        graph.branches.create(name)
    graph.load({"Person": people("Ada", age=1)}, branch="dev", mode="merge")
    for name in ("one", "other"):
        graph.load({"Person": people(f"of {name}")}, branch=name)
        graph.merge("dev", into=name)
    name = line(graph, "dev")
    deleted_without_reclaim(graph, "dev")
    assert left_over(clean(graph)) == {}
    graph.load({"Person": people("Ada", age=2)}, branch="one", mode="merge")
    assert graph.merge("one", into="other").conflicts.num_rows == 0  # the age was 1 for both
    assert shown(graph, "other") == ["Ada", "Bob", "of one", "of other"]
    graph.branches.delete("one")
    assert name in forks(graph)
    deleted_without_reclaim(graph, "other")
    assert name in clean(graph).tables[PERSON].lines


def test_a_merge_under_way_counts_among_those_that_have_something_in_common(graph: Graph) -> None:
    for name in ("one", "other", "dev"):
        graph.branches.create(name)
    graph.load({"Person": people("Cleo")}, branch="dev")
    name = line(graph, "dev")
    graph.load({"Person": people("of one")}, branch="one")
    graph.merge("dev", into="one")
    graph.load({"Person": people("of other")}, branch="other")
    with dying(Failpoint.PUBLISH, BEFORE):
        graph.merge("dev", into="other")
    deleted_without_reclaim(graph, "dev")
    assert name in lines_in_common(graph.storage)
    graph.storage.delete(left_behind(graph.storage).path)
    assert lines_in_common(graph.storage) == set()


def test_what_a_branch_that_is_just_being_made_will_show_stays(graph: Graph) -> None:
    """Its creator sleeps between its look at the parent, which is deleted meanwhile, and the branch's first version."""
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    name, parent = line(graph, "dev"), graph.branches.get("dev")
    info = new_branch("heir", parent, graph.snapshot(branch="dev").version)
    deleted_without_reclaim(graph, "dev")
    put_ref(graph.storage, info)
    assert left_over(clean(graph)) == {}
    graph.storage.delete("__manifest/_refs/branches/heir.json")
    assert list(clean(graph).tables[PERSON].lines) == [name]


# -- operations under way ---------------------------------------------------------------------------------------


def test_a_table_that_an_operation_is_committing_to_is_left_alone_and_the_others_are_not(graph: Graph) -> None:
    staged_rows(graph)
    company = graph.snapshot().table("Company").table
    stage_append(company, rows(company, "Acme"))
    with dying(Failpoint.ARM, AFTER):
        graph.load({"Person": people("Dead")})
    operation = left_behind(graph.storage).operation_id
    age(graph)
    report = graph.maintenance.cleanup(confirm=True)
    assert left_over(report) == {"node:Company": {"data": 1}}
    assert list(report.skipped) == [PERSON]
    assert operation in report.skipped[PERSON]
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    age(recovered)
    assert left_over(clean(recovered, GRACE)) == {PERSON: {"data": 2}}
    assert shown(recovered) == ["Ada", "Bob"]


def test_while_an_operation_cannot_be_read_every_table_is_left_alone(graph: Graph) -> None:
    staged_rows(graph)
    graph.storage.put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"torn")
    before = stored(graph)
    report = graph.maintenance.cleanup(older_than=NOW, confirm=True)
    assert report.skipped.keys() == graph.snapshot().tables.keys()
    assert "OG2005" in report.skipped[PERSON]
    assert stored(graph) == before


@pytest.mark.parametrize("point", [Failpoint.FORK, Failpoint.COMMIT_TABLE, Failpoint.PUBLISH])
def test_what_recovery_finishes_or_undoes_is_not_hurt_by_a_cleanup_before_it(graph: Graph, point: Failpoint) -> None:
    graph.branches.create("dev")
    with dying(point, AFTER):
        graph.load({"Person": people("Dead")}, branch="dev")
    graph.maintenance.cleanup(older_than=NOW, confirm=True)
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    assert shown(recovered, "dev") == ["Ada", "Bob", *(["Dead"] if point is not Failpoint.FORK else [])]
    clean(recovered)
    assert sidecar_paths(recovered.storage) == []


# -- the verb ---------------------------------------------------------------------------------------------------


def test_a_preview_changes_nothing(graph: Graph) -> None:
    for leave in LEFTOVERS[:5]:
        leave(graph)
    foreign_line(graph)
    table = person(graph)
    stage_upsert_part(table, rows(table, "Ada"), operation_id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    before = stored(graph)
    report = graph.maintenance.cleanup(older_than=NOW)
    assert not report.confirmed
    assert report.total.files > 10
    assert stored(graph) == before


def test_what_is_reported_is_what_is_gone(graph: Graph) -> None:
    for leave in (staged_rows, staged_deletion, refused_commit, foreign_line):
        leave(graph)
    before = stored(graph)
    total = clean(graph).total
    after = stored(graph)
    gone = before.keys() - after.keys()
    assert after.keys() <= before.keys()
    assert (total.files, total.bytes) == (len(gone), sum(before[path][0] for path in gone))


def test_a_graph_that_is_open_for_reading_only_is_not_cleaned(graph: Graph) -> None:
    with pytest.raises(ReadOnlyGraph):
        Graph.open(graph.uri, "ro").maintenance.cleanup()


@pytest.mark.parametrize("older_than", [timedelta(seconds=-1), 7, "7d", None])
def test_a_grace_period_that_is_none_is_refused(graph: Graph, older_than: Any) -> None:
    with pytest.raises(InvalidArgument, match="older_than"):
        graph.maintenance.cleanup(older_than=older_than)


def test_it_works_on_every_kind_of_store(anywhere: Graph) -> None:
    graph = anywhere
    staged_rows(graph)
    staged_deletion(graph)
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    graph.branches.create("gone")
    graph.load({"Person": people("Dora")}, branch="gone", mode="merge")
    name = line(graph, "gone")
    deleted_without_reclaim(graph, "gone")
    table = person(graph)
    stage_upsert_part(table, rows(table, "Ada"), operation_id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    before = stored(graph)
    graph.maintenance.cleanup(older_than=NOW)
    assert stored(graph) == before
    assert graph.maintenance.cleanup(confirm=True).total.files == 0  # all of it is young
    assert stored(graph) == before
    report = clean(graph)
    kinds = left_over(report)[PERSON]
    assert (kinds["deletions"], f"line {name}" in kinds) == (1, True)
    assert [left.operation_id for left in report.staged] == ["01ARZ3NDEKTSV4RRFFQ69G5FAV"]
    graph.merge("dev")
    graph.load({"Person": people("Last")})
    assert shown(graph) == ["Ada", "Bob", "Cleo", "Last"]
    assert everything(graph)
