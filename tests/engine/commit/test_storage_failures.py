"""What each failure of the store means to the writer that meets it, and to the next one."""

from __future__ import annotations

import logging
from pathlib import Path

import lance
import pytest
from crash_scene import (
    AFTER,
    BEFORE,
    Faulty,
    abandon,
    assert_at_rest,
    at,
    content,
    dying,
    edges,
    fail,
    graph_on,
    heads,
    left_behind,
    names,
    new_local_graph,
    people,
    reopened,
    sidecar_paths,
)
from omnigraph_engine import failpoints
from omnigraph_engine.commit.sidecar import RECOVERY
from omnigraph_engine.errors import OutcomeUnknown, StorageError
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.audit import AUDIT, RecoveryKind
from omnigraph_engine.storage import Storage


@pytest.fixture
def storage(tmp_path: Path, social: str) -> Storage:
    graph = new_local_graph(tmp_path, social)
    graph.load({"Person": people("Ada")})
    return graph.storage


def load_two_tables(graph: Graph) -> str:
    receipt = graph.load({"Person": people("Bob"), "Knows": edges(("Bob", "Ada"))})
    assert receipt.commit is not None
    return receipt.commit.commit_id


# -- arm ----------------------------------------------------------------------------------------------------


def test_a_sidecar_that_cannot_be_written_means_that_nothing_happened(storage: Storage) -> None:
    before, versions = content(storage), heads(storage)
    faulty = Faulty(storage, lambda verb, path: verb == "put_if_absent" and path.startswith(RECOVERY))
    with pytest.raises(StorageError) as caught:
        load_two_tables(graph_on(faulty))
    assert caught.value.retryable
    assert (content(storage), heads(storage)) == (before, versions)
    assert_at_rest(storage)


def test_a_sidecar_that_was_written_without_an_answer_is_removed_again(storage: Storage) -> None:
    before, versions = content(storage), heads(storage)
    with failpoints.installed(at(Failpoint.ARM, AFTER, fail)), pytest.raises(StorageError):
        load_two_tables(graph_on(storage))
    assert (content(storage), heads(storage)) == (before, versions)
    assert_at_rest(storage)


def test_a_sidecar_that_can_neither_be_written_nor_removed_is_settled_by_the_next_writer(storage: Storage) -> None:
    before = content(storage)
    faulty = Faulty(storage, lambda verb, path: verb == "delete" and path.startswith(RECOVERY))
    with failpoints.installed(at(Failpoint.ARM, AFTER, fail)), pytest.raises(StorageError):
        load_two_tables(graph_on(faulty))
    assert len(sidecar_paths(storage)) == 1
    abandon(storage)
    reopened(storage)
    assert content(storage) == before
    assert_at_rest(storage)


# -- list ---------------------------------------------------------------------------------------------------


def test_sidecars_that_cannot_be_listed_fail_the_write_and_the_open(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, versions = content(storage), heads(storage)
    faulty = Faulty(storage, lambda verb, path: verb == "list" and path.startswith(RECOVERY))
    with pytest.raises(StorageError):
        load_two_tables(graph_on(faulty))
    real = Storage.list

    def deaf(self: Storage, prefix: str = "", *, limit: int | None = None) -> list[str]:
        if prefix.startswith(RECOVERY):
            raise StorageError("no answer")
        return real(self, prefix, limit=limit)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "list", deaf)
        with pytest.raises(StorageError):
            Graph.open(storage.root)
        assert Graph.open(storage.root, "ro").snapshot().table("Person").count() == 1
    assert (content(storage), heads(storage)) == (before, versions)
    assert_at_rest(storage)


def test_a_sidecar_that_cannot_be_read_from_the_store_fails_the_write(storage: Storage) -> None:
    with dying(Failpoint.ARM, AFTER):
        load_two_tables(graph_on(storage))
    faulty = Faulty(storage, lambda verb, path: verb == "get" and path.startswith(RECOVERY))
    with pytest.raises(StorageError):
        graph_on(faulty).load({"Person": people("Cleo")})
    assert names(storage) == ["Ada"]


# -- delete -------------------------------------------------------------------------------------------------


def test_a_sidecar_that_cannot_be_deleted_is_a_warning_and_the_write_is_durable(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = Faulty(storage, lambda verb, path: verb == "delete" and path.startswith(RECOVERY))
    with caplog.at_level(logging.WARNING):
        commit_id = load_two_tables(graph_on(faulty))
    operation = left_behind(storage)
    assert operation.path in caplog.text
    assert names(storage) == ["Ada", "Bob"]
    abandon(storage)
    graph_on(storage).load({"Person": people("Cleo")})
    assert_at_rest(storage)
    (record,) = reopened(storage).maintenance.recoveries()
    assert (record.kind, record.commit_id) == (RecoveryKind.ROLLED_FORWARD, commit_id)
    assert names(storage) == ["Ada", "Bob", "Cleo"]


# -- audit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [Failpoint.COMMIT_TABLE, Failpoint.PUBLISH], ids=["undone", "finished"])
def test_an_audit_row_that_cannot_be_written_keeps_the_sidecar_until_it_can(
    storage: Storage, point: Failpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with dying(point, BEFORE, 1):
        load_two_tables(graph_on(storage))
    operation = left_behind(storage)
    abandon(storage)
    faulty = Faulty(storage, lambda _verb, path: path.startswith(AUDIT))
    with caplog.at_level(logging.WARNING):
        graph_on(faulty).maintenance.recover()
    assert operation.operation_id in caplog.text
    assert operation.path in sidecar_paths(storage)
    settled, versions = content(storage), heads(storage)
    manifest = graph_on(storage).snapshot().version
    graph_on(faulty).maintenance.recover()
    recovered = reopened(storage)
    assert [record.operation_id for record in recovered.maintenance.recoveries()] == [operation.operation_id]
    assert (content(storage), heads(storage), recovered.snapshot().version) == (settled, versions, manifest)
    assert_at_rest(storage)


@pytest.mark.parametrize("when", ["its version landed", "its answer was on the way"])
def test_an_audit_row_whose_answer_was_lost_is_not_written_again(storage: Storage, when: str) -> None:
    with dying(Failpoint.COMMIT_TABLE, AFTER):
        load_two_tables(graph_on(storage))
    abandon(storage)

    class LostAnswer(Faulty):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            if path.startswith(AUDIT):
                fail()

    if when == "its version landed":
        graph_on(LostAnswer(storage)).maintenance.recover()
    else:
        with failpoints.installed(at(Failpoint.AUDIT, AFTER, fail)):
            graph_on(storage).maintenance.recover()
    assert len(reopened(storage).maintenance.recoveries()) == 1
    assert_at_rest(storage)


# -- the decision -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2])
def test_a_table_commit_whose_answer_was_lost_counts(storage: Storage, nth: int) -> None:
    with failpoints.installed(at(Failpoint.COMMIT_TABLE, AFTER, fail, nth)):
        commit_id = load_two_tables(graph_on(storage))
    assert names(storage) == ["Ada", "Bob"]
    assert reopened(storage).snapshot().commit.commit_id == commit_id
    assert reopened(storage).maintenance.recoveries() == []
    assert_at_rest(storage)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_table_commit_that_the_store_refuses_leaves_nothing_visible(storage: Storage, nth: int) -> None:
    before = content(storage)
    with failpoints.installed(at(Failpoint.COMMIT_TABLE, BEFORE, fail, nth)), pytest.raises(StorageError):
        load_two_tables(graph_on(storage))
    assert content(storage) == before
    assert_at_rest(storage)
    load_two_tables(graph_on(storage))


def test_a_publish_whose_answer_was_lost_is_a_success_and_happens_once(storage: Storage) -> None:
    with failpoints.installed(at(Failpoint.PUBLISH, AFTER, fail)):
        commit_id = load_two_tables(graph_on(storage))
    commits = reopened(storage).commits.list()
    assert [commit.commit_id for commit in commits].count(commit_id) == 1
    assert len(commits) == 3
    assert names(storage) == ["Ada", "Bob"]
    assert reopened(storage).maintenance.recoveries() == []
    assert_at_rest(storage)


def test_a_publish_that_the_store_refuses_is_settled_by_its_own_writer(storage: Storage) -> None:
    with failpoints.installed(at(Failpoint.PUBLISH, BEFORE, fail)):
        commit_id = load_two_tables(graph_on(storage))
    assert reopened(storage).snapshot().commit.commit_id == commit_id
    assert_at_rest(storage)


def cut_off(patched: pytest.MonkeyPatch) -> None:
    """From now on nobody reaches the store: neither Lance nor we."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError("LanceError(IO): Generic S3 error: error sending request: connection refused")

    patched.setattr(lance, "dataset", refuse)
    patched.setattr(Storage, "_asked", lambda _self, _verb, _path: fail())
    fail()


@pytest.mark.parametrize("moment", [BEFORE, AFTER], ids=["not published", "published"])
def test_a_store_that_dies_while_the_commit_is_decided_leaves_its_outcome_unknown_until_it_is_back(
    storage: Storage, moment: Moment
) -> None:
    graph = graph_on(storage)
    with (
        pytest.MonkeyPatch.context() as patched,
        failpoints.installed(at(Failpoint.PUBLISH, moment, lambda: cut_off(patched))),
        pytest.raises(OutcomeUnknown) as caught,
    ):
        load_two_tables(graph)
    operation = left_behind(storage)
    assert caught.value.details == {"commit_id": operation.commit_id, "operation_id": operation.operation_id}
    assert caught.value.hint
    assert not caught.value.retryable
    abandon(storage)
    recovered = reopened(storage)
    assert recovered.commits.show(operation.commit_id).commit_id == operation.commit_id
    assert names(storage) == ["Ada", "Bob"]
    assert_at_rest(storage)
