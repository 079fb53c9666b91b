from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from omnigraph_engine.errors import InvalidArgument, ObjectExists, ObjectNotFound, StorageError
from omnigraph_engine.storage import Storage, normalise_root

OPERATIONS: dict[str, Callable[[Storage, str], object]] = {
    "put_if_absent": lambda storage, path: storage.put_if_absent(path, b"1"),
    "put": lambda storage, path: storage.put(path, b"1"),
    "get": lambda storage, path: storage.get(path),
    "head": lambda storage, path: storage.size(path),
    "list": lambda storage, path: storage.list(path),
    "delete": lambda storage, path: storage.delete(path),
}


class _Forbidden(BaseHTTPRequestHandler):
    """Answers everything with 403, which no client retries."""

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _refuse  # noqa: N815 - the base class looks for these names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def forbidden() -> Iterator[Storage]:
    """An S3 root whose store refuses every request."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forbidden)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Storage(
        "s3://graphs/g.omni",
        {
            "aws_endpoint": f"http://127.0.0.1:{server.server_port}",
            "allow_http": "true",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": "us-east-1",
        },
    )
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_was_put_is_what_get_and_size_tell(storage: Storage) -> None:
    storage.put("a/b c.json", b"one")
    storage.put("a/b c.json", b"three")
    storage.put("empty", b"")

    assert storage.get("a/b c.json") == b"three"
    assert storage.size("a/b c.json") == 5
    assert storage.get("empty") == b""


def test_the_first_put_if_absent_wins_and_the_second_changes_nothing(storage: Storage) -> None:
    storage.put_if_absent("claims/1.json", b"mine")

    with pytest.raises(ObjectExists, match=r"claims/1\.json") as caught:
        storage.put_if_absent("claims/1.json", b"yours")

    assert isinstance(caught.value, FileExistsError)
    assert caught.value.details["path"] == "claims/1.json"
    assert storage.get("claims/1.json") == b"mine"


def test_put_if_absent_that_meets_its_own_bytes_has_succeeded(storage: Storage) -> None:
    storage.put_if_absent("claims/1.json", b"mine")
    storage.put_if_absent("claims/1.json", b"mine")

    assert storage.get("claims/1.json") == b"mine"


def test_an_object_may_be_claimed_again_after_it_was_deleted(storage: Storage) -> None:
    storage.put_if_absent("claims/1.json", b"mine")
    storage.delete("claims/1.json")
    storage.put_if_absent("claims/1.json", b"yours")

    assert storage.get("claims/1.json") == b"yours"


def test_eight_racing_writers_of_one_object_have_exactly_one_winner(storage: Storage) -> None:
    writers = 8
    start = threading.Barrier(writers)

    def claim(path: str, writer: int) -> bool:
        start.wait()
        try:
            storage.put_if_absent(path, b"writer %d" % writer)
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(writers) as pool:
        for turn in range(5):
            path = f"claims/{turn}.json"
            won = list(pool.map(claim, [path] * writers, range(writers)))
            assert won.count(True) == 1
            assert storage.get(path) == b"writer %d" % won.index(True)


def test_an_absent_object_is_not_found_and_names_its_path(storage: Storage) -> None:
    for ask in (storage.get, storage.size):
        with pytest.raises(ObjectNotFound, match="does not exist") as caught:
            ask("no/such.json")
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.details["path"] == "no/such.json"


def test_delete_removes_and_deleting_what_is_absent_is_fine(storage: Storage) -> None:
    storage.put("a", b"1")

    storage.delete("a")
    storage.delete("a")
    storage.delete("never/there")

    assert storage.list() == []


def test_list_gives_the_sorted_paths_below_a_folder_and_none_of_its_namesakes(storage: Storage) -> None:
    for path in ("a/2", "a/1", "a/deep/3", "ab/1", "a.json"):
        storage.put(path, b"")

    assert storage.list("a") == ["a/1", "a/2", "a/deep/3"]
    assert storage.list() == ["a.json", "a/1", "a/2", "a/deep/3", "ab/1"]
    assert storage.list("absent") == []


def test_list_stops_near_its_limit(storage: Storage) -> None:
    for number in range(12):
        storage.put(f"a/{number:02d}", b"")

    assert len(storage.list("a", limit=1)) == 1
    assert set(storage.list("a", limit=5)) < set(storage.list("a"))
    assert len(storage.list("a", limit=100)) == 12


def test_a_root_exists_once_something_is_stored_there(storage: Storage) -> None:
    below = Storage(storage.uri("inner.omni"), storage.options)
    assert not below.root_exists()

    below.make_root()
    below.put("a", b"1")

    assert below.root_exists()
    assert storage.list() == ["inner.omni/a"]


def test_a_pickled_storage_reaches_the_same_objects_and_counts_afresh(storage: Storage) -> None:
    storage.put("a", b"1")

    copy: Storage = pickle.loads(pickle.dumps(storage))  # noqa: S301 - our own bytes

    assert copy.get("a") == b"1"
    assert (copy.root, copy.options) == (storage.root, storage.options)
    assert copy.operations == {"get": 1}


def test_operations_are_counted_by_verb(storage: Storage) -> None:
    storage.operations.clear()

    storage.put("a", b"1")
    storage.put_if_absent("b", b"1")
    storage.list()
    storage.delete("a")

    assert storage.operations == {"put": 1, "put_if_absent": 1, "list": 1, "delete": 1}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failing_disk_is_a_storage_error_naming_operation_and_path(tmp_path: Path, operation: str) -> None:
    storage = Storage(tmp_path)
    storage.put("file", b"1")

    with pytest.raises(StorageError, match=f"{operation} of '{tmp_path}/file/below' failed") as caught:
        OPERATIONS[operation](storage, "file/below")

    assert type(caught.value) is StorageError
    assert caught.value.retryable
    assert caught.value.details == {"path": "file/below", "operation": operation}


@pytest.mark.s3
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_refusing_object_store_is_a_storage_error_naming_operation_and_path(
    forbidden: Storage, operation: str
) -> None:
    with pytest.raises(StorageError, match=rf"{operation} of 's3://graphs/g\.omni/a/b' failed") as caught:
        OPERATIONS[operation](forbidden, "a/b")

    assert type(caught.value) is StorageError
    assert caught.value.details == {"path": "a/b", "operation": operation}


def test_a_local_root_that_was_never_made_is_a_storage_error_not_an_absent_object(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        Storage(tmp_path / "absent").get("a")

    assert not isinstance(caught.value, ObjectNotFound)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/tmp/graph", "/tmp/graph"),  # noqa: S108 - addresses, not files
        ("/tmp/graph/", "/tmp/graph"),  # noqa: S108
        ("//tmp/graph", "/tmp/graph"),  # noqa: S108
        ("/tmp/x/../graph", "/tmp/graph"),  # noqa: S108
        ("/tmp/a%20b", "/tmp/a%20b"),  # noqa: S108
        ("file:///tmp/graph/", "/tmp/graph"),  # noqa: S108
        ("file:///tmp/a%20b", "/tmp/a b"),  # noqa: S108
        ("file://localhost/tmp/graph", "/tmp/graph"),  # noqa: S108
        ("s3://bucket/graph", "s3://bucket/graph"),
        ("s3://bucket/graph//", "s3://bucket/graph"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_the_same_root_always_gets_the_same_text(given: str, expected: str) -> None:
    assert normalise_root(given) == expected
    assert normalise_root(normalise_root(given)) == expected


def test_a_relative_root_is_resolved_when_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert normalise_root("graphs/one/") == f"{tmp_path}/graphs/one"
    assert normalise_root(Path("graphs")) == f"{tmp_path}/graphs"


def test_an_empty_root_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="empty"):
        normalise_root("")


@pytest.mark.parametrize(
    ("root", "uri", "store_path"),
    [
        ("/data/g.omni", "/data/g.omni/a/b", "/data/g.omni/a/b"),
        ("s3://bucket/deep/g.omni", "s3://bucket/deep/g.omni/a/b", "deep/g.omni/a/b"),
        ("s3://bucket", "s3://bucket/a/b", "a/b"),
    ],
)
def test_a_store_names_objects_by_absolute_path_or_by_key(root: str, uri: str, store_path: str) -> None:
    storage = Storage(root)

    assert storage.uri("a/b") == uri
    assert storage.store_path("a/b") == store_path
