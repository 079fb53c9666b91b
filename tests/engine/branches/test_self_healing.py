"""Whatever dies in the life of a branch stands in nobody's way: the next call goes through with the content it should have."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from branch_scene import (
    KNOWS,
    PERSON,
    assert_all_at_rest,
    both,
    branch_names,
    dies,
    each_time,
    forks,
    forks_for,
    is_borrowed,
    line,
    meanwhile,
    newest,
    ref_path,
    shown,
)
from crash_scene import (
    AFTER,
    BEFORE,
    Crash,
    Faulty,
    abandon,
    at,
    companies,
    dataset,
    die,
    dying,
    edges,
    fail,
    graph_on,
    left_behind,
    people,
    reopened,
    sidecar_paths,
)
from omnigraph_engine import failpoints
from omnigraph_engine.commit import shown as shown_module
from omnigraph_engine.errors import (
    BranchExists,
    BranchNotFound,
    CommitNotFound,
    ObjectExists,
    OmnigraphError,
    OutcomeUnknown,
    StorageError,
    VersionConflict,
)
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest import dataset as manifests
from omnigraph_engine.manifest.audit import RecoveryKind
from omnigraph_engine.manifest.refs import BranchInfo, new_branch, put_ref
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables import heads
from omnigraph_engine.write.load import LoadMode, WriteOptions

MODES = ("append", "merge", "overwrite")


def write(graph: Graph, mode: str, *names: str) -> None:
    """New people on the branch; an overwrite keeps those of main."""
    kept = ("Ada", "Bob") if mode == "overwrite" else ()
    graph.load({"Person": people(*kept, *names)}, mode=mode, branch="dev")


def put_only_the_ref(graph: Graph, name: str = "dev", parent: str = "main") -> None:
    """What a creation leaves that dies right after its ref."""
    origin = graph.branches.get(parent)
    put_ref(graph.storage, new_branch(name, origin, graph.snapshot(branch=parent).version))


def assert_usable(graph: Graph, *expected: str) -> None:
    """The branch shows these people, takes a write of every mode, and can be deleted."""
    assert shown(graph, "dev") == sorted(expected)
    write(graph, "append", "X1")
    write(graph, "merge", "X2")
    assert shown(graph, "dev") == sorted([*expected, "X1", "X2"])
    write(graph, "overwrite", "X3")
    assert shown(graph, "dev") == ["Ada", "Bob", "X3"]
    assert_all_at_rest(graph)
    graph.branches.delete("dev")
    assert "dev" not in branch_names(graph)


# -- the first write to a table -------------------------------------------------------------------------------

FIRST_WRITE = [
    # where it dies, and whether it is finished all the same
    (Failpoint.ARM, BEFORE, False),
    (Failpoint.ARM, AFTER, False),
    (Failpoint.FORK, AFTER, False),
    (Failpoint.COMMIT_TABLE, AFTER, True),
    (Failpoint.PUBLISH, AFTER, True),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("point", "moment", "finished"), FIRST_WRITE)
def test_after_a_first_write_that_died_the_next_one_goes_through(
    graph: Graph, point: Failpoint, moment: Moment, mode: str, *, finished: bool
) -> None:
    life = graph.branches.create("dev").life
    with dying(point, moment):
        write(graph, "append", "Dead")
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    assert shown(recovered, "dev") == (["Ada", "Bob", "Dead"] if finished else ["Ada", "Bob"])
    write(recovered, mode, "Next")
    kept = ["Dead"] if finished and mode != "overwrite" else []
    assert shown(recovered, "dev") == ["Ada", "Bob", *kept, "Next"]
    assert shown(recovered) == ["Ada", "Bob"]
    assert_all_at_rest(recovered)
    assert forks_for(recovered, life) == [line(recovered, "dev")]  # nothing of the dead one is left beside it
    expected = RecoveryKind.ROLLED_FORWARD if finished else RecoveryKind.ROLLED_BACK
    kinds = [record.kind for record in recovered.maintenance.recoveries()]
    assert kinds == ([] if (point, moment) == (Failpoint.ARM, BEFORE) else [expected])


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize(("point", "finished"), [(Failpoint.FORK, False), (Failpoint.COMMIT_TABLE, True)])
def test_a_writer_that_has_the_graph_open_already_settles_the_dead_one_on_its_way(
    graph: Graph, point: Failpoint, mode: str, *, finished: bool
) -> None:
    life = graph.branches.create("dev").life
    with dying(point, AFTER):
        write(graph, "append", "Dead")
    abandon(graph.storage)
    write(graph, mode, "Next")
    assert shown(graph, "dev") == ["Ada", "Bob", *(["Dead"] if finished else []), "Next"]
    assert_all_at_rest(graph)
    assert forks_for(graph, life) == [line(graph, "dev")]


@pytest.mark.parametrize("point", [Failpoint.FORK, Failpoint.COMMIT_TABLE])
def test_a_first_write_to_two_tables_that_died_between_them_leaves_neither(graph: Graph, point: Failpoint) -> None:
    life = graph.branches.create("dev").life
    with dying(point, BEFORE, 2):
        graph.load({"Person": people("Dead"), "Knows": edges(("Dead", "Ada"))}, branch="dev")
    assert shown(graph, "dev", KNOWS) == ["Ada-Bob"]
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    assert (shown(recovered, "dev"), shown(recovered, "dev", KNOWS)) == (["Ada", "Bob"], ["Ada-Bob"])
    assert forks_for(recovered, life) == []
    assert_all_at_rest(recovered)
    recovered.load({"Person": people("Next"), "Knows": edges(("Next", "Ada"))}, branch="dev")
    assert shown(recovered, "dev", KNOWS) == ["Ada-Bob", "Next-Ada"]


UNDO = [
    Failpoint.OWN_UNDO,
    Failpoint.ABORT,
    Failpoint.CONVERGE,
    Failpoint.AUDIT,
    Failpoint.CLEAN,
]


@pytest.mark.parametrize("point", UNDO)
def test_the_undo_of_a_first_write_can_die_and_be_ended_by_the_next(graph: Graph, point: Failpoint) -> None:
    life = graph.branches.create("dev").life
    with dying(Failpoint.FORK, AFTER):
        write(graph, "append", "Dead")
    abandon(graph.storage)
    with dying(point, AFTER):
        reopened(graph.storage)
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    assert_all_at_rest(recovered)
    assert forks_for(recovered, life) == []
    assert [record.kind for record in recovered.maintenance.recoveries()] == [RecoveryKind.ROLLED_BACK]
    assert_usable(recovered, "Ada", "Bob")


def test_the_next_first_write_forks_from_what_the_branch_shows_now_and_not_from_a_leftover(graph: Graph) -> None:
    """A line that nobody reclaimed holds rows that nobody published."""
    graph.branches.create("dev")
    with dying(Failpoint.PUBLISH, BEFORE):
        write(graph, "append", "Dead")
    graph.storage.delete(left_behind(graph.storage).path)
    assert len(forks(graph)) == 1
    write(graph, "append", "Next")
    assert shown(graph, "dev") == ["Ada", "Bob", "Next"]
    assert len(forks(graph)) == 2
    graph.branches.delete("dev")
    assert forks(graph) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_lance_branch_of_the_graph_branchs_own_name_on_a_table_is_in_nobodys_way(graph: Graph, mode: str) -> None:
    forged = dataset(graph.storage, PERSON).create_branch("dev")
    forged.delete("name = 'Ada'")
    graph.branches.create("dev")
    write(graph, mode, "Next")
    assert shown(graph, "dev") == ["Ada", "Bob", "Next"]
    graph.branches.delete("dev")
    assert forks(graph) == ["dev"]  # it is not ours to drop
    graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


def make_half(graph: Graph) -> None:
    """Takes a line back to the moment at which Lance had written its first version and not yet its ref."""
    intent = left_behind(graph.storage).tables[0]
    graph.storage.delete(f"{intent.ref(2).location}/_refs/branches/{intent.branch}.json")
    assert forks(graph) == []


def test_a_writer_that_died_within_the_fork_leaves_half_a_line_that_is_dropped(graph: Graph) -> None:
    graph.branches.create("dev")
    with dying(Failpoint.FORK, AFTER):
        write(graph, "append", "Dead")
    make_half(graph)
    half = left_behind(graph.storage).tables[0].ref(2).path
    assert graph.storage.list(half)
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    assert graph.storage.list(half) == []
    assert_usable(recovered, "Ada", "Bob")


# -- a store that fails ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("mode", MODES)
def test_a_store_that_fails_while_a_line_is_forked_is_reported_as_that_and_nothing_is_lost(
    graph: Graph, mode: str, moment: Moment
) -> None:
    graph.branches.create("dev")
    stored = set(graph.storage.list())
    with failpoints.installed(at(Failpoint.FORK, moment, fail)), pytest.raises((StorageError, OutcomeUnknown)):
        write(graph, mode, "Lost")
    assert stored <= set(graph.storage.list())
    assert shown(graph, "dev") == ["Ada", "Bob"]
    assert_all_at_rest(graph)
    assert_usable(graph, "Ada", "Bob")


def test_lances_own_failure_to_open_a_table_for_a_fork_is_an_error_of_ours(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("dev")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("LanceError(IO): connection reset")

    with (
        meanwhile(Failpoint.FORK, BEFORE, lambda: monkeypatch.setattr(heads.lance, "dataset", refuse)),
        pytest.raises((StorageError, OutcomeUnknown)) as caught,
    ):
        write(graph, "append", "Lost")
    monkeypatch.undo()
    assert isinstance(caught.value, OmnigraphError)
    assert shown(graph, "dev") == ["Ada", "Bob"]
    abandon(graph.storage)
    assert_usable(reopened(graph.storage), "Ada", "Bob")


def test_a_store_that_fails_while_the_ref_is_put_leaves_no_branch_or_a_whole_one(graph: Graph) -> None:
    with failpoints.installed(at(Failpoint.CREATE_BRANCH, BEFORE, fail)), pytest.raises(StorageError):
        graph.branches.create("dev")
    assert branch_names(graph) == ["main"]
    with failpoints.installed(at(Failpoint.CREATE_BRANCH, AFTER, fail)):
        info = graph.branches.create("dev")  # the answer was lost, the branch was not
    assert graph.branches.get("dev") == info
    assert_usable(graph, "Ada", "Bob")


@pytest.mark.parametrize("moment", list(Moment))
def test_a_store_that_fails_when_a_branch_begins_leaves_a_branch_that_works(graph: Graph, moment: Moment) -> None:
    with failpoints.installed(at(Failpoint.BEGIN_BRANCH, moment, fail)):
        graph.branches.create("dev")
    assert is_borrowed(graph, "dev") is (moment is BEFORE)
    assert_usable(graph, "Ada", "Bob")


def test_a_store_that_fails_when_a_branch_is_deleted_leaves_it_or_has_deleted_it(graph: Graph) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Cleo")
    with failpoints.installed(at(Failpoint.DELETE_BRANCH, BEFORE, fail)), pytest.raises(StorageError):
        graph.branches.delete("dev")
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]
    with failpoints.installed(at(Failpoint.DELETE_BRANCH, AFTER, fail)), suppress(StorageError):
        graph.branches.delete("dev")
    assert branch_names(graph) == ["main"]
    graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


@pytest.mark.parametrize("failing", ["list", "get"])
def test_a_reclaim_that_the_store_refuses_is_a_warning(
    graph: Graph, failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph.branches.create("other")
    graph.branches.create("dev")
    write(graph, "append", "Cleo")
    storage = Faulty(graph.storage)
    broken = graph_on(storage)

    def start_failing() -> None:
        storage.fails = lambda verb, path: verb == failing and path.startswith(("__recovery", "__manifest"))

    with meanwhile(Failpoint.RECLAIM, BEFORE, start_failing):
        broken.branches.delete("dev")
    assert "dev" in caplog.text
    assert branch_names(graph) == ["main", "other"]
    graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


# -- a creation that died -------------------------------------------------------------------------------------


def test_a_branch_whose_creation_died_after_its_ref_is_one(graph: Graph) -> None:
    put_only_the_ref(graph)
    assert branch_names(graph) == ["main", "dev"]
    assert graph.branches.get("dev").parent == "main"
    assert is_borrowed(graph, "dev")
    graph.load({"Person": people("Later")})
    assert graph.snapshot(branch="dev").commit == graph.commits.list("dev")[0] != graph.snapshot().commit
    with pytest.raises(BranchExists):
        graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


def test_such_a_branch_that_gets_its_first_version_while_it_is_opened_is_not_taken_for_damaged(graph: Graph) -> None:
    dies(Failpoint.BEGIN_BRANCH, BEFORE, lambda: graph.branches.create("dev"))
    begun: list[str] = []

    def begin(verb: str, path: str) -> bool:
        if not begun and (verb, path) == ("list", "__manifest/tree/dev/_versions"):  # nothing was found there to open
            begun.append(path)
            write(graph, "append", "Cleo")
        return False

    assert shown(graph_on(Faulty(graph.storage, begin)), "dev") == ["Ada", "Bob", "Cleo"]
    assert begun


def test_such_a_branch_is_only_read_by_readers(graph: Graph) -> None:
    put_only_the_ref(graph)
    stored = graph.storage.list()
    reader = Graph.open(graph.storage.root, "ro")
    assert shown(reader, "dev") == ["Ada", "Bob"]
    assert graph.storage.list() == stored


def test_such_a_branch_can_be_deleted_and_made_again(graph: Graph) -> None:
    put_only_the_ref(graph)
    graph.branches.delete("dev")
    assert branch_names(graph) == ["main"]
    graph.load({"Person": people("Cleo")})
    graph.branches.create("dev")
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]


def test_such_a_branch_can_be_branched_from_and_holds_its_origin(graph: Graph) -> None:
    put_only_the_ref(graph)
    info = graph.branches.create("feature", from_="dev")
    graph.load({"Person": people("Cleo")}, branch="feature")
    write(graph, "append", "Dora")
    graph.load({"Person": people("Emma")})
    assert info.descends_from(graph.branches.get("dev"))
    assert shown(graph, "feature") == ["Ada", "Bob", "Cleo"]
    assert shown(graph, "dev") == ["Ada", "Bob", "Dora"]


@pytest.mark.parametrize("lives", [0, 1])
@pytest.mark.parametrize("moment", list(Moment))
def test_a_creation_that_dies_around_its_first_version_has_made_the_branch(
    graph: Graph, moment: Moment, lives: int
) -> None:
    for _ in range(lives):
        graph.branches.create("dev")
        write(graph, "append", "Former")
        graph.branches.delete("dev")
    with dying(Failpoint.BEGIN_BRANCH, moment):
        graph.branches.create("dev")
    assert is_borrowed(graph, "dev") is (moment is BEFORE)
    graph.load({"Person": people("Later")})
    assert_usable(graph, "Ada", "Bob")


def test_two_writers_that_finish_one_creation_write_its_first_version_once(graph: Graph) -> None:
    for lives in range(2):
        dies(Failpoint.BEGIN_BRANCH, BEFORE, lambda: graph.branches.create("dev"))
        with meanwhile(Failpoint.STAGE, BEFORE, lambda: write(graph, "append", "Other")):
            write(graph, "append", "One")
        assert shown(graph, "dev") == ["Ada", "Bob", "One", "Other"], lives
        graph.branches.delete("dev")


# -- residue --------------------------------------------------------------------------------------------------


def test_what_stands_under_a_name_without_a_ref_is_not_shown_by_the_branch_that_takes_the_name(graph: Graph) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Former")
    graph.storage.delete(ref_path("dev"))
    assert branch_names(graph) == ["main"]
    graph.load({"Person": people("Cleo")})
    graph.branches.create("dev")
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]
    assert_usable(graph, "Ada", "Bob", "Cleo")


def test_a_backup_of_its_own_folder_that_was_put_back_is_not_shown_by_the_branch_that_takes_the_name(
    graph: Graph, tmp_path: Path
) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Foreign")}, branch="dev")
    tree = Path(graph.storage.uri("__manifest/tree"))
    shutil.copytree(tree / "dev", tmp_path / "backup")
    graph.branches.delete("dev")
    shutil.rmtree(tree / "dev")
    shutil.copytree(tmp_path / "backup", tree / "dev")
    graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


def test_a_folder_without_a_version_is_nothing(graph: Graph) -> None:
    tree = Path(graph.storage.uri("__manifest/tree/dev"))
    (tree / "_versions").mkdir(parents=True)
    (tree / "data").mkdir()
    (tree / "data" / "junk.lance").write_bytes(b"junk")
    graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


def test_what_stands_within_the_folder_of_a_former_branch_can_be_a_branch(graph: Graph) -> None:
    graph.branches.create("team/a")
    graph.load({"Person": people("Former")}, branch="team/a")
    graph.branches.delete("team/a")
    graph.branches.create("team")
    graph.load({"Person": people("Cleo")}, branch="team")
    assert shown(graph, "team") == ["Ada", "Bob", "Cleo"]
    graph.branches.delete("team")
    graph.branches.create("team/a")
    assert shown(graph, "team/a") == ["Ada", "Bob"]


# -- a parent that goes -----------------------------------------------------------------------------------------


def test_a_creation_whose_parent_is_deleted_meanwhile_leaves_no_name(graph: Graph) -> None:
    graph.branches.create("parent")
    graph.load({"Person": people("Cleo")}, branch="parent")
    with (
        meanwhile(Failpoint.CREATE_BRANCH, BEFORE, lambda: graph.branches.delete("parent")),
        pytest.raises(BranchNotFound, match="parent"),
    ):
        graph.branches.create("dev", from_="parent")
    assert branch_names(graph) == ["main"]
    graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


def test_a_branch_that_was_complete_before_its_parent_went_stays_whole(graph: Graph) -> None:
    """The deletion has found no descendants, and then one is made."""
    live_once(graph)

    def branch_off() -> None:
        graph.branches.create("feature", from_="dev")
        graph.load({"Person": people("Cleo")}, branch="feature")

    with meanwhile(Failpoint.DELETE_BRANCH, BEFORE, branch_off):
        graph.branches.delete("dev")
    assert branch_names(graph) == ["main", "feature"]
    for expected in (["Cleo"], ["Cleo", "Dora"]):
        assert shown(graph, "feature") == sorted(["Ada", "Bob", "Former", *expected])
        if len(expected) == 1:
            graph.load({"Person": people("Dora")}, branch="feature")
            graph.branches.create("dev")
            write(graph, "overwrite", "Other")
    assert shown(graph, "dev") == ["Ada", "Bob", "Other"]
    graph.branches.delete("feature")
    graph.branches.delete("dev")
    assert shown(graph) == ["Ada", "Bob"]


def orphan(graph: Graph) -> None:
    """A creation that died after its ref, and whose parent was deleted at that moment."""
    graph.branches.create("parent")
    happens = both(
        at(Failpoint.CREATE_BRANCH, BEFORE, lambda: graph.branches.delete("parent")),
        at(Failpoint.BEGIN_BRANCH, BEFORE, die),
    )
    with failpoints.installed(happens), pytest.raises(Crash):
        graph.branches.create("dev", from_="parent")
    assert graph.storage.list("__manifest/_refs/branches") == [ref_path("dev")]


def test_a_creation_that_died_and_whose_parent_is_gone_leaves_no_branch(graph: Graph) -> None:
    orphan(graph)
    with pytest.raises(BranchNotFound):
        graph.snapshot(branch="dev")
    with pytest.raises(BranchNotFound):
        write(graph, "append", "Cleo")
    graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


def test_such_a_leftover_is_not_listed_as_a_branch(graph: Graph) -> None:
    orphan(graph)
    assert branch_names(graph) == ["main"]
    with pytest.raises(BranchNotFound):
        graph.branches.get("dev")


def test_such_a_leftover_does_not_hide_the_commits_of_other_branches(graph: Graph) -> None:
    orphan(graph)
    graph.branches.create("other")
    commit = graph.load({"Person": people("Cleo")}, branch="other").commit
    assert commit is not None
    assert graph.commits.show(commit.commit_id) == commit
    with pytest.raises(CommitNotFound):
        graph.commits.show("01K9ZZZZZZZZZZZZZZZZZZZZZZ")


def test_such_a_leftover_does_not_keep_other_branches_from_being_reclaimed(graph: Graph) -> None:
    orphan(graph)
    life = graph.branches.create("other").life
    graph.load({"Person": people("Cleo")}, branch="other")
    graph.branches.delete("other")
    assert forks_for(graph, life) == []


def test_a_commit_can_be_looked_up_while_another_branch_is_deleted(graph: Graph) -> None:
    """Between the listing of the branches and the look into one of them it may go."""
    graph.branches.create("gone")
    storage = Faulty(graph.storage)
    reader = graph_on(storage)
    asked: list[str] = []

    def delete_first(verb: str, path: str) -> bool:
        if verb == "get" and path == ref_path("gone"):
            asked.append(path)
            if len(asked) == 2:
                graph.branches.delete("gone")
        return False

    storage.fails = delete_first
    with pytest.raises(CommitNotFound):
        reader.commits.show("01K9ZZZZZZZZZZZZZZZZZZZZZZ")
    assert len(asked) == 2


# -- lives that meet ------------------------------------------------------------------------------------------


def live_once(graph: Graph) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Former")


def test_a_publish_of_the_former_life_that_comes_while_the_next_begins_is_not_shown_by_it(graph: Graph) -> None:
    """The writer stands before its publish while the branch is deleted, half-way, and made again, up to its ref."""
    live_once(graph)
    residue = newest(graph.storage, "dev")

    def live_again() -> None:
        dies(Failpoint.RECLAIM, BEFORE, lambda: graph.branches.delete("dev"))
        dies(Failpoint.BEGIN_BRANCH, BEFORE, lambda: graph.branches.create("dev"))

    with meanwhile(Failpoint.PUBLISH, BEFORE, live_again), suppress(OmnigraphError):
        write(graph, "append", "Late")
    assert newest(graph.storage, "dev") == residue + 1  # it landed
    assert is_borrowed(graph, "dev")
    assert shown(graph, "dev") == ["Ada", "Bob"]
    write(graph, "append", "Next")
    assert shown(graph, "dev") == ["Ada", "Bob", "Next"]
    for version in range(1, residue + 2):
        with pytest.raises(CommitNotFound):
            graph.snapshot(branch="dev", version=version)


def test_a_publish_of_the_former_life_that_comes_when_the_next_has_begun_fails(graph: Graph) -> None:
    live_once(graph)

    def live_again() -> None:
        graph.branches.delete("dev")
        graph.branches.create("dev")

    with meanwhile(Failpoint.PUBLISH, BEFORE, live_again), pytest.raises(BranchNotFound):
        write(graph, "append", "Late")
    assert_usable(graph, "Ada", "Bob")
    assert_all_at_rest(graph)


@pytest.mark.parametrize(
    ("point", "earlier"),
    [
        (Failpoint.ARM, 0),
        (Failpoint.FORK, 0),
        (Failpoint.COMMIT_TABLE, 0),
        (Failpoint.ARM, 1),
        (Failpoint.COMMIT_TABLE, 1),
    ],
)
def test_a_write_that_was_under_way_when_its_branch_was_deleted_does_not_reach_the_next_life(
    graph: Graph, point: Failpoint, earlier: int
) -> None:
    life = graph.branches.create("dev").life
    for number in range(earlier):
        write(graph, "append", f"Former{number}")

    def live_again() -> None:
        graph.branches.delete("dev")
        graph.branches.create("dev")

    with meanwhile(point, AFTER, live_again), pytest.raises(BranchNotFound):
        write(graph, "append", "Late")
    assert shown(graph, "dev") == ["Ada", "Bob"]
    assert_all_at_rest(graph)
    assert forks_for(graph, life) == []
    assert_usable(graph, "Ada", "Bob")


def _born_again(graph: Graph) -> None:
    graph.branches.delete("dev")
    graph.branches.create("dev")


def test_a_write_that_is_prepared_anew_when_its_branch_has_a_next_life_does_not_reach_that(graph: Graph) -> None:
    graph.branches.create("dev")
    slow = graph.begin_load("dev")
    staged = slow.stage(PERSON, people("Slow").to_batches(), LoadMode.APPEND)
    assert staged is not None
    write(graph, "append", "Fast")

    with meanwhile(Failpoint.CLEAN, AFTER, lambda: _born_again(graph)), pytest.raises(BranchNotFound, match="deleted"):
        slow.commit([staged])

    assert shown(graph, "dev") == ["Ada", "Bob"]
    assert_all_at_rest(graph)


def test_a_merge_that_is_prepared_anew_when_its_target_has_a_next_life_does_not_reach_that(graph: Graph) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Old")
    graph.load({"Person": people("Cleo")})
    slow = graph_on(graph.storage, WriteOptions(lease=0.05, patience=20))  # whoever overtakes it waits for its lease

    def overtake() -> None:
        with failpoints.installed(lambda _point, _moment: None):
            write(graph, "append", "Fast")

    with (
        pytest.raises(BranchNotFound, match="'dev' was deleted"),
        failpoints.installed(
            both(at(Failpoint.ARM, AFTER, overtake), at(Failpoint.CLEAN, AFTER, lambda: _born_again(graph)))
        ),
    ):
        slow.merge("main", into="dev")

    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]
    assert "merge" not in graph.commits.list("dev")[0].extra


def test_a_commit_that_another_finished_before_the_branch_was_deleted_was_committed(graph: Graph) -> None:
    graph.branches.create("dev")
    slow = graph_on(graph.storage, WriteOptions(lease=0.05, patience=20))

    def finished_merged_and_deleted() -> None:
        with failpoints.installed(lambda _point, _moment: None):
            _undo_others(graph)  # it finds everything landed, so it publishes
            graph.merge("dev", delete_branch=True)
            _born_again_from_nothing(graph)

    with meanwhile(Failpoint.PUBLISH, BEFORE, finished_merged_and_deleted):
        receipt = slow.load({"Person": people("Slow")}, branch="dev")

    assert receipt.commit is not None
    assert receipt.commit.commit_id == graph.commits.list()[0].merged_parent_id
    assert shown(graph) == ["Ada", "Bob", "Slow"]
    assert_all_at_rest(graph)


def _born_again_from_nothing(graph: Graph) -> None:
    """Two more lives, so that the newest versions under the name are of others."""
    for name in ("Cleo", "Dora"):
        graph.branches.create("dev")
        write(graph, "append", name)
        graph.branches.delete("dev")


def test_a_merge_that_deletes_its_source_keeps_what_was_committed_there_meanwhile(
    graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Cleo")

    def late() -> None:
        with failpoints.installed(lambda _point, _moment: None):
            write(graph, "append", "Late")

    with meanwhile(Failpoint.DISARM, AFTER, late):
        merged = graph.merge("dev", delete_branch=True)

    assert merged.commit is not None
    assert shown(graph) == ["Ada", "Bob", "Cleo"]
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo", "Late"]
    assert "'dev' was merged and not deleted: it has newer commits" in caplog.text
    graph.merge("dev", delete_branch=True)
    assert shown(graph) == ["Ada", "Bob", "Cleo", "Late"]
    assert branch_names(graph) == ["main"]


def test_a_merge_that_deletes_its_source_leaves_the_next_life_of_the_name_alone(graph: Graph) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Cleo")

    def live_again() -> None:
        with failpoints.installed(lambda _point, _moment: None):
            _born_again(graph)

    with meanwhile(Failpoint.DISARM, AFTER, live_again):
        assert graph.merge("dev", delete_branch=True).commit is not None
    assert branch_names(graph) == ["main", "dev"]


def test_a_merge_whose_source_somebody_else_deletes_once_it_is_merged_has_done_what_it_was_to_do(graph: Graph) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Cleo")

    with meanwhile(Failpoint.DISARM, AFTER, lambda: graph.branches.delete("dev")):
        assert graph.merge("dev", delete_branch=True).commit is not None
    assert shown(graph) == ["Ada", "Bob", "Cleo"]
    assert branch_names(graph) == ["main"]


def test_a_merge_that_cannot_delete_its_source_is_told_as_the_merge_that_it_is(
    graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Cleo")

    with meanwhile(Failpoint.DELETE_BRANCH, BEFORE, fail):
        assert graph.merge("dev", delete_branch=True).commit is not None
    assert branch_names(graph) == ["main", "dev"]
    assert "'dev' was merged and not deleted: the store did not answer" in caplog.text


def test_staging_on_a_branch_that_is_deleted_meanwhile_says_that(graph: Graph) -> None:
    graph.branches.create("dev")
    write(graph, "append", "Cleo")
    with graph.transaction("dev") as transaction:
        graph.branches.delete("dev")

        with pytest.raises(BranchNotFound, match="'dev' was deleted"):
            transaction.load("Person", people("Slow", age=3), "merge")


def test_a_creator_that_sleeps_for_a_whole_life_of_the_name_shows_nothing_of_that(graph: Graph) -> None:
    def live() -> None:
        graph.branches.create("dev")
        write(graph, "append", "Old")
        graph.branches.delete("dev")

    with meanwhile(
        Failpoint.CREATE_BRANCH, BEFORE, live
    ):  # it has looked whether the name is free, and puts its ref now
        graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob")


def test_the_first_version_of_a_branch_that_never_came_to_be_does_not_hide_the_next_life_of_its_name(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its creator sleeps within Lance, right before the clone is put: the parent's versions have greater numbers than those of
    the next life.
    """
    graph.branches.create("x")
    for number in range(5):
        graph.load({"Person": people(f"X{number}")}, branch="x")
    clone, asleep = manifests._clone, [True]

    def sleeping(storage: Storage, info: BranchInfo) -> None:
        if not asleep:
            clone(storage, info)
            return
        asleep.clear()
        clone(storage, info)
        written = {path: storage.get(path) for path in storage.list("__manifest/tree/dev")}
        for path in written:
            storage.delete(path)
        storage.delete(ref_path("x"))  # by one who had looked for heirs before this one was there
        graph.branches.create("dev")
        write(graph, "append", "New")
        for path, data in written.items():
            with suppress(ObjectExists):
                storage.put_if_absent(path, data)

    monkeypatch.setattr(manifests, "_clone", sleeping)
    with pytest.raises(BranchNotFound):
        graph.branches.create("dev", from_="x")
    assert_usable(graph, "Ada", "Bob", "New")


@pytest.mark.parametrize("lives", [0, 1])
def test_a_creator_that_wakes_up_when_its_branch_has_a_next_life_changes_nothing_of_that(
    graph: Graph, lives: int
) -> None:
    """It stands between its ref and its first version while the branch is deleted, made again and written to."""
    for _ in range(lives):
        live_once(graph)
        graph.branches.delete("dev")
    commits = []

    def live_again() -> None:
        graph.branches.delete("dev")
        graph.branches.create("dev")
        write(graph, "append", "Precious")
        commits.extend(graph.commits.list("dev"))

    with meanwhile(Failpoint.BEGIN_BRANCH, BEFORE, live_again), suppress(BranchNotFound):
        graph.branches.create("dev")
    assert shown(graph, "dev") == ["Ada", "Bob", "Precious"]
    assert graph.commits.list("dev") == commits
    assert_usable(graph, "Ada", "Bob", "Precious")


@pytest.mark.parametrize("lives", [0, 1])
def test_a_creator_that_wakes_up_before_the_next_life_has_begun_does_not_begin_it_with_its_own_origin(
    graph: Graph, lives: int
) -> None:
    for _ in range(lives):
        live_once(graph)
        graph.branches.delete("dev")

    def live_again() -> None:
        graph.branches.delete("dev")
        graph.load({"Person": people("Cleo")})
        graph.branches.create("dev")  # from the newer main; it dies before it begins

    actions = each_time(Failpoint.BEGIN_BRANCH, BEFORE, _swallowing(live_again), die)
    with failpoints.installed(actions), suppress(BranchNotFound):
        graph.branches.create("dev")
    assert graph.branches.get("dev").parent_version == graph.snapshot().version
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]
    assert_usable(graph, "Ada", "Bob", "Cleo")


def test_a_creator_whose_parent_went_and_that_wakes_up_late_does_not_take_away_the_names_next_life(
    graph: Graph,
) -> None:
    graph.branches.create("parent")

    def live_again() -> None:
        graph.branches.create("dev")
        write(graph, "append", "Precious")

    happens = both(
        at(Failpoint.CREATE_BRANCH, BEFORE, lambda: graph.branches.delete("parent")),
        at(Failpoint.BEGIN_BRANCH, BEFORE, live_again),
    )
    with failpoints.installed(happens), pytest.raises(BranchNotFound):
        graph.branches.create("dev", from_="parent")
    assert_usable(graph, "Ada", "Bob", "Precious")


def _swallowing(action: Callable[[], None]) -> Callable[[], None]:
    def act() -> None:
        with suppress(Crash):
            action()

    return act


# -- a deletion that died -------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", list(Moment))
def test_after_a_deletion_that_died_the_name_is_free_and_shows_nothing_old(graph: Graph, moment: Moment) -> None:
    live_once(graph)
    with dying(Failpoint.RECLAIM, moment):
        graph.branches.delete("dev")
    assert branch_names(graph) == ["main"]
    assert len(forks(graph)) == (1 if moment is BEFORE else 0)
    graph.load({"Person": people("Cleo")})
    graph.branches.create("dev")
    assert_usable(graph, "Ada", "Bob", "Cleo")


def test_a_deletion_that_died_before_the_ref_has_done_nothing(graph: Graph) -> None:
    live_once(graph)
    with dying(Failpoint.DELETE_BRANCH, BEFORE):
        graph.branches.delete("dev")
    assert_usable(graph, "Ada", "Bob", "Former")


def test_a_deletion_ends_the_life_that_it_looked_at_and_no_later_one(graph: Graph) -> None:
    """It has found no descendants and stands before the ref while the branch is deleted, made again and branched from."""
    live_once(graph)

    def live_again() -> None:
        graph.branches.delete("dev")
        graph.branches.create("dev")
        write(graph, "append", "Precious")
        graph.branches.create("feature", from_="dev")

    with meanwhile(Failpoint.DELETE_BRANCH, BEFORE, live_again), suppress(BranchNotFound):
        graph.branches.delete("dev")
    assert branch_names(graph) == ["main", "dev", "feature"]
    assert shown(graph, "dev") == shown(graph, "feature") == ["Ada", "Bob", "Precious"]


@pytest.mark.parametrize("point", [Failpoint.ARM, Failpoint.FORK, Failpoint.COMMIT_TABLE])
def test_the_operation_that_was_left_on_a_deleted_branch_is_discarded_with_an_audit_row(
    graph: Graph, point: Failpoint
) -> None:
    life = graph.branches.create("dev").life
    with dying(point, AFTER):
        graph.load({"Person": people("Dead")}, branch="dev", actor="ada")
    operation = left_behind(graph.storage)
    graph.branches.delete("dev")
    (record,) = graph.maintenance.recoveries()
    assert (record.kind, record.operation_id) == (RecoveryKind.ORPHANED_BRANCH_DISCARDED, operation.operation_id)
    assert (record.actor, record.tables) == ("ada", ())
    assert forks_for(graph, life) == []
    assert shown(graph) == ["Ada", "Bob"]
    assert_all_at_rest(graph)


def test_the_operation_that_a_dead_deletion_left_is_discarded_by_whoever_opens_the_graph_next(graph: Graph) -> None:
    life = graph.branches.create("dev").life
    with dying(Failpoint.COMMIT_TABLE, AFTER):
        write(graph, "append", "Dead")
    with dying(Failpoint.RECLAIM, BEFORE):
        graph.branches.delete("dev")
    graph.branches.create("dev")
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    (record,) = recovered.maintenance.recoveries()
    assert record.kind is RecoveryKind.ORPHANED_BRANCH_DISCARDED
    assert forks_for(recovered, life) == []
    assert_usable(recovered, "Ada", "Bob")


@contextmanager
def armed_too_late_to_be_seen(storage: Storage) -> Iterator[None]:
    """Whoever acts in the block looked for sidecars right before the one that is there was put."""
    (path,) = sidecar_paths(storage)
    armed = storage.get(path)
    storage.delete(path)
    yield
    storage.put(path, armed)


@pytest.mark.parametrize("reclaimed", [True, False])
def test_a_merge_that_died_and_whose_source_is_gone_is_undone_because_nobody_kept_what_it_was_to_adopt(
    graph: Graph,
    reclaimed: bool,  # noqa: FBT001
) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    with dying(Failpoint.ARM, AFTER):
        graph.merge("dev", actor="ada")
    with armed_too_late_to_be_seen(graph.storage):
        if reclaimed:
            graph.branches.delete("dev")
        else:
            with dying(Failpoint.RECLAIM, BEFORE):
                graph.branches.delete("dev")
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    (record,) = recovered.maintenance.recoveries()
    assert (record.kind, record.actor) == (RecoveryKind.ROLLED_BACK, "ada")
    recovered.branches.create("dev")
    assert_usable(recovered, "Ada", "Bob")


def test_a_line_that_passes_to_another_branch_while_a_deletion_looks_who_shows_it_is_kept(graph: Graph) -> None:
    """It is read of main that it does not show the line; then main takes it over from a branch that is read too late."""
    for name in ("dev", "x"):
        graph.branches.create(name)
    graph.load({"Person": people("Cleo")}, branch="dev")
    graph.merge("dev", into="x")
    looks: list[int] = []

    def pass_on(verb: str, path: str) -> bool:
        if looks and (verb, path) == ("get", ref_path("x")):
            looks.append(len(looks))
            if len(looks) == 3:  # the ref was read with all the others, and is read now for what it shows
                graph.merge("x", delete_branch=True)
        return False

    with failpoints.installed(at(Failpoint.RECLAIM, BEFORE, lambda: looks.append(0))):
        graph_on(Faulty(graph.storage, pass_on)).branches.delete("dev")
    assert branch_names(graph) == ["main"]
    assert shown(graph) == ["Ada", "Bob", "Cleo"]
    graph.load({"Person": people("Dora")})
    assert shown(graph) == ["Ada", "Bob", "Cleo", "Dora"]


def test_a_deletion_beside_others_that_never_end_drops_nothing_and_says_so(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shown_module, "LOOKS", 3)
    life = graph.branches.create("dev").life
    graph.load({"Person": people("Cleo")}, branch="dev")
    graph.branches.create("x")
    looks: list[int] = []

    def replace(verb: str, path: str) -> bool:
        if looks and (verb, path) == ("get", ref_path("x")):
            looks.append(len(looks))
            if len(looks) % 2:  # between the look at all refs and that at what this branch shows
                graph.branches.delete("x")
                graph.branches.create("x")
        return False

    with failpoints.installed(at(Failpoint.RECLAIM, BEFORE, lambda: looks.append(0))):
        graph_on(Faulty(graph.storage, replace)).branches.delete("dev")
    assert branch_names(graph) == ["main", "x"]
    assert "what branch 'dev' left behind is still there: In each of 3 looks" in caplog.text
    assert len(forks_for(graph, life)) == 1
    graph.maintenance.cleanup(older_than=timedelta(0), confirm=True)
    assert forks_for(graph, life) == []


def test_a_merge_that_died_is_not_taken_for_done_because_another_one_adopted_the_same(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    with dying(Failpoint.ARM, AFTER):
        graph.merge("dev", actor="ada")
    with armed_too_late_to_be_seen(graph.storage):
        graph.merge("dev", actor="bob")
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    (record,) = recovered.maintenance.recoveries()
    assert (record.kind, record.actor) == (RecoveryKind.ROLLED_BACK, "ada")
    assert shown(recovered) == ["Ada", "Bob", "Cleo"]
    assert [commit.actor for commit in recovered.commits.list() if commit.merged_parent_id] == ["bob"]


def test_a_merge_whose_answer_is_lost_after_another_one_adopted_the_same_is_told_as_not_done(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    rival = at(Failpoint.ARM, BEFORE, lambda: graph.merge("dev"))
    with failpoints.installed(both(rival, at(Failpoint.PUBLISH, BEFORE, fail, nth=2))), pytest.raises(StorageError):
        graph.merge("dev", message="slow")
    assert shown(graph) == ["Ada", "Bob", "Cleo"]
    assert len([commit for commit in graph.commits.list() if commit.merged_parent_id]) == 1
    assert graph.merge("dev").commit is None
    assert sidecar_paths(graph.storage) == []


def test_a_slow_merge_that_finds_its_source_gone_is_not_published_by_whoever_takes_it_for_dead(graph: Graph) -> None:
    """He has seen that the source stands, and is about to publish; it is deleted, the writer finds that out and gives up."""
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    armed, go_on = threading.Event(), threading.Event()
    told: list[OmnigraphError] = []

    def merge() -> None:
        try:
            graph.merge("dev")
        except OmnigraphError as error:
            told.append(error)

    def stand_still() -> None:
        armed.set()
        go_on.wait(60)

    def give_up() -> None:
        go_on.set()
        writer.join(60)

    writer = threading.Thread(target=merge)
    slow = at(Failpoint.ARM, AFTER, stand_still)
    gone = at(Failpoint.ROLL_FORWARD, BEFORE, lambda: graph.branches.delete("dev"))
    with failpoints.installed(both(slow, both(gone, at(Failpoint.RECLAIM, BEFORE, give_up)))):
        writer.start()
        assert armed.wait(60)
        abandon(graph.storage)
        recovered = reopened(graph.storage)
    assert [type(error) for error in told] == [VersionConflict]
    recovered.branches.create("dev")
    assert_usable(recovered, "Ada", "Bob")


def test_a_merge_that_died_and_whose_source_stands_is_finished_also_when_the_source_has_moved_on(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    with dying(Failpoint.PUBLISH, BEFORE):
        graph.merge("dev", actor="ada")
    graph.load({"Person": people("Dora")}, branch="dev")
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    (record,) = recovered.maintenance.recoveries()
    assert (record.kind, record.actor) == (RecoveryKind.ROLLED_FORWARD, "ada")
    recovered.branches.delete("dev")
    assert shown(recovered) == ["Ada", "Bob", "Cleo"]
    recovered.load({"Person": people("Emma")})
    assert shown(recovered) == ["Ada", "Bob", "Cleo", "Emma"]
    assert sidecar_paths(recovered.storage) == []


def test_deleting_a_branch_leaves_the_operations_of_others_alone(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.branches.create("other")
    with dying(Failpoint.COMMIT_TABLE, AFTER):
        graph.load({"Person": people("Cleo")}, branch="other")
    with dying(Failpoint.COMMIT_TABLE, AFTER):
        graph.load({"Company": companies("Acme")})
    graph.branches.delete("dev")
    assert len(sidecar_paths(graph.storage)) == 2
    abandon(graph.storage)
    recovered = reopened(graph.storage)
    assert shown(recovered, "other") == ["Ada", "Bob", "Cleo"]
    assert shown(recovered, "main", "Company") == ["Acme"]
    assert_all_at_rest(recovered)


def test_the_line_of_a_first_write_under_way_is_not_reclaimed_with_a_former_branch(graph: Graph) -> None:
    live_once(graph)
    graph.branches.create("other")
    with meanwhile(Failpoint.PUBLISH, BEFORE, lambda: graph.branches.delete("dev")):
        graph.load({"Person": people("Cleo")}, branch="other")
    assert shown(graph, "other") == ["Ada", "Bob", "Cleo"]


# -- two first writers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("point", [Failpoint.STAGE, Failpoint.ARM, Failpoint.FORK, Failpoint.COMMIT_TABLE])
def test_of_two_first_writers_of_a_table_both_end_visible_on_one_line(
    graph: Graph, point: Failpoint, mode: str
) -> None:
    """The second writes in full while the first stands there, with everything staged on main's line or about to be."""
    life = graph.branches.create("dev").life
    quick = graph_on(graph.storage, WriteOptions(lease=0.05, patience=20))
    second = graph_on(graph.storage)
    with meanwhile(point, BEFORE, lambda: write(second, mode, "Second")):
        write(quick, mode, "First")
    assert shown(graph, "dev") == ["Ada", "Bob", "First", "Second"]
    assert shown(graph) == ["Ada", "Bob"]
    assert_all_at_rest(graph)
    assert line(graph, "dev") in forks_for(graph, life)


def test_an_overwrite_that_another_first_write_overtook_is_a_conflict(graph: Graph) -> None:
    graph.branches.create("dev")
    with (
        meanwhile(Failpoint.STAGE, AFTER, lambda: write(graph, "append", "Second")),
        pytest.raises(VersionConflict) as caught,
    ):
        write(graph, "overwrite", "First")
    assert caught.value.details["table_key"] == PERSON
    assert shown(graph, "dev") == ["Ada", "Bob", "Second"]
    assert_all_at_rest(graph)


def test_first_writers_of_two_tables_do_not_disturb_each_other(graph: Graph) -> None:
    graph.branches.create("dev")
    with meanwhile(
        Failpoint.PUBLISH, BEFORE, lambda: graph.load({"Company": companies("Acme")}, branch="dev") and None
    ):
        write(graph, "append", "Cleo")
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]
    assert shown(graph, "dev", "Company") == ["Acme"]
    assert_all_at_rest(graph)


def test_a_first_writer_that_was_taken_for_dead_does_not_publish_the_line_that_was_dropped(graph: Graph) -> None:
    graph.branches.create("dev")
    slow = graph_on(graph.storage, WriteOptions(lease=0.05, patience=20))
    with meanwhile(Failpoint.COMMIT_TABLE, BEFORE, lambda: _undo_others(graph)):
        write(slow, "append", "Slow")
    assert shown(graph, "dev") == ["Ada", "Bob", "Slow"]
    assert_all_at_rest(graph)


def _undo_others(graph: Graph) -> None:
    abandon(graph.storage)
    reopened(graph.storage)
    assert sidecar_paths(graph.storage) == []


def test_four_threads_that_write_first_all_end_visible(graph: Graph) -> None:
    life = graph.branches.create("dev").life
    failures: list[BaseException] = []
    ready = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            own = graph_on(graph.storage)
            ready.wait()
            write(own, "append", f"t{number}")
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert shown(graph, "dev") == ["Ada", "Bob", "t0", "t1", "t2", "t3"]
    assert forks_for(graph, life) == [line(graph, "dev")]
    assert_all_at_rest(graph)


def test_main_goes_on_while_a_branch_forks_its_tables(graph: Graph) -> None:
    """What was staged on main's line for the branch stays readable whatever main does to that line afterwards."""
    graph.branches.create("dev")
    replace = pa.table({"name": ["Zoe"], "age": pa.array([1], pa.int32())})

    def replace_all() -> None:
        graph.load({"Person": replace, "Knows": edges(("Zoe", "Zoe"))}, mode="overwrite")

    with meanwhile(Failpoint.FORK, BEFORE, replace_all):
        write(graph, "merge", "Cleo", "Ada")
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]
    assert shown(graph) == ["Zoe"]
    assert_all_at_rest(graph)
