"""How a graph comes to be and is recognised again: never half, never twice, never something else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from omnigraph_engine import lifecycle
from omnigraph_engine.errors import (
    GraphCreationPending,
    GraphDamaged,
    GraphExists,
    GraphNotFound,
    GraphTooNew,
    GraphTooOld,
    InvalidArgument,
    NotAGraph,
    OmnigraphError,
    ReadOnlyGraph,
    SchemaContractBroken,
    SchemaError,
    SchemaSyntaxError,
    StorageError,
)
from omnigraph_engine.graph import Graph
from omnigraph_engine.lifecycle import CLAIM, create_graph, open_graph
from omnigraph_engine.manifest.rows import MANIFEST_SCHEMA
from omnigraph_engine.storage import Storage

STAMP = "omnigraph:internal_schema_version"
PERSON_TABLE = "nodes/0000000000000002-000000000000000a"
LAST_TABLE = "edges/0000000000000004-000000000000000c"


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "graph.omni")


def create(storage: Storage, schema: str) -> Graph:
    return Graph.create(storage.root, schema, storage_options=storage.options)


def open_again(storage: Storage) -> Graph:
    return Graph.open(storage.root, storage_options=storage.options)


def manifest(storage: Storage) -> Any:
    return lance.dataset(storage.uri("__manifest"), storage_options=storage.options or None)


class Killed(BaseException):
    """The process ends here: not an error that any handler would see."""


class Dying(Storage):
    """A store whose user dies at its first request that matches, just before or just after it is done."""

    def __init__(self, like: Storage, verb: str, path: str, *, done: bool, how: BaseException | None = None) -> None:
        super().__init__(like.root, like.options)
        self._end = (verb, path)
        self._done = done
        self._how = how or Killed()

    def _meet(self, verb: str, path: str, action: Callable[[], Any]) -> Any:
        if self._end[0] != verb or not path.startswith(self._end[1]):
            return action()
        if self._done:
            action()
        raise self._how

    def uri(self, path: str) -> str:  # asked for before each creation of a dataset
        return str(self._meet("uri", path, lambda: super(Dying, self).uri(path)))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._meet("put_if_absent", path, lambda: super(Dying, self).put_if_absent(path, data))

    def size(self, path: str) -> int:  # asked for after each creation of a table
        return int(self._meet("size", path, lambda: super(Dying, self).size(path)))

    def delete(self, path: str) -> None:
        self._meet("delete", path, lambda: super(Dying, self).delete(path))


def test_a_created_graph_opens_with_the_schema_it_was_given_and_no_rows(storage: Storage, social: str) -> None:
    created = create(storage, social)
    opened = open_again(storage)
    assert created.schema.source == opened.schema.source == social
    assert created.schema.accepted == opened.schema.accepted
    tables = opened.snapshot().tables
    assert {key: table.count() for key, table in tables.items()} == dict.fromkeys(
        ["edge:Knows", "edge:WorksAt", "node:Company", "node:Person"], 0
    )
    assert [commit.manifest_version for commit in opened.commits.list()] == [1]
    assert CLAIM not in storage.list()


@pytest.mark.parametrize(
    ("schema", "error"), [("node {", SchemaSyntaxError), ("edge Knows: Person -> Person", SchemaError)]
)
def test_a_wrong_schema_is_refused_before_anything_is_touched(
    tmp_path: Path, schema: str, error: type[OmnigraphError]
) -> None:
    with pytest.raises(error):
        Graph.create(tmp_path / "new.omni", schema)
    assert not (tmp_path / "new.omni").exists()


def test_creating_over_a_graph_is_refused_and_changes_nothing(storage: Storage, social: str) -> None:
    create(storage, social).load({"Company": pa.table({"name": ["Acme"]})})
    before = {path: storage.get(path) for path in storage.list()}
    with pytest.raises(GraphExists, match=r"(?s)a graph at .*Graph\.open"):
        create(storage, "node Other { name: String @key }")
    assert {path: storage.get(path) for path in storage.list()} == before


def test_creating_in_a_folder_that_holds_something_else_is_refused_and_names_it(storage: Storage, social: str) -> None:
    storage.put("holiday/photo.jpg", b"...")
    with pytest.raises(GraphExists, match=r"holds 'holiday/photo\.jpg'") as caught:
        create(storage, social)
    assert caught.value.hint is not None
    assert storage.list() == ["holiday/photo.jpg"]


def test_creating_where_a_file_is_is_refused(tmp_path: Path, social: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(GraphExists, match="is a file"):
        Graph.create(tmp_path / "file", social)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_pending_claim_is_never_taken_over(storage: Storage, social: str) -> None:
    storage.put(CLAIM, b'{"version":1,"attempt_id":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}')
    for attempt in (create, lambda place, _: open_again(place)):
        with pytest.raises(GraphCreationPending, match=r"under way, or one died.*remove everything") as caught:
            attempt(storage, social)
        assert caught.value.details == {"claim": storage.uri(CLAIM)}
    assert storage.list() == [CLAIM]


def test_a_claim_is_seen_however_many_files_its_creation_left(tmp_path: Path) -> None:
    schema = "\n".join(f"node Type{number} {{ name: String @key }}" for number in range(60))
    storage = Storage(tmp_path)
    with pytest.raises(Killed):
        create_graph(Dying(storage, "uri", "__manifest", done=False), schema)
    assert len(storage.list()) > 120
    for attempt in (create, lambda place, _: open_again(place)):
        with pytest.raises(GraphCreationPending):
            attempt(storage, schema)


STEPS = [
    ("put_if_absent", CLAIM, True),
    ("put_if_absent", "_schema.pg", True),
    ("put_if_absent", "_schema.ir.json", True),
    ("put_if_absent", "__schema_state.json", True),
    ("uri", "nodes/", False),
    ("size", "nodes/", True),
    ("size", PERSON_TABLE, True),
    ("size", "edges/", True),
    ("size", LAST_TABLE, True),
    ("uri", "__manifest", False),
]


@pytest.mark.parametrize(("verb", "path", "done"), STEPS, ids=[f"{verb} {path}" for verb, path, _ in STEPS])
def test_a_creation_that_died_before_its_manifest_is_no_graph(
    storage: Storage, social: str, verb: str, path: str, *, done: bool
) -> None:
    with pytest.raises(Killed):
        create_graph(Dying(storage, verb, path, done=done), social)
    left = storage.list()
    assert CLAIM in left
    with pytest.raises(GraphCreationPending, match="remove everything at this address and create it again"):
        create_graph(storage, social)
    with pytest.raises(GraphCreationPending, match="it holds no data yet"):
        open_graph(storage)
    assert storage.list() == left
    for residue in left:
        storage.delete(residue)
    assert create(storage, social).snapshot().version == 1


def test_a_creation_that_failed_before_its_claim_left_nothing(storage: Storage, social: str) -> None:
    failing = Dying(storage, "put_if_absent", CLAIM, done=False, how=StorageError("no answer"))
    with pytest.raises(StorageError, match="no answer"):
        create_graph(failing, social)
    assert storage.list() == []
    create(storage, social)


def test_a_store_that_fails_half_way_is_reported_and_leaves_no_graph(local: Storage, social: str) -> None:
    failing = Dying(local, "put_if_absent", "_schema.ir.json", done=False, how=StorageError("no answer"))
    with pytest.raises(StorageError, match="no answer"):
        create_graph(failing, social)
    with pytest.raises(GraphCreationPending):
        open_graph(local)


def test_a_staged_manifest_that_was_never_published_is_no_graph(local: Storage, social: str) -> None:
    with pytest.raises(Killed):
        create_graph(Dying(local, "uri", "__manifest", done=False), social)
    local.put(f"__manifest/_versions/{2**64 - 2:020d}.manifest-b0b1", b"staged")
    with pytest.raises(GraphCreationPending):
        create_graph(local, social)
    with pytest.raises(GraphCreationPending):
        open_graph(local)


def test_a_creation_that_died_after_its_manifest_is_a_graph_and_is_never_called_empty(
    storage: Storage, social: str
) -> None:
    with pytest.raises(Killed):
        create_graph(Dying(storage, "delete", CLAIM, done=False), social)
    assert CLAIM in storage.list()
    open_again(storage).load({"Company": pa.table({"name": ["Acme"]})})
    with pytest.raises(GraphExists, match="a graph at"):
        create_graph(storage, social)
    assert open_again(storage).snapshot().table("Company").count() == 1


def test_a_claim_that_cannot_be_removed_does_not_undo_the_creation(storage: Storage, social: str) -> None:
    stubborn = Dying(storage, "delete", CLAIM, done=False, how=StorageError("no answer"))
    assert create_graph(stubborn, social).source == social
    assert open_again(storage).snapshot().version == 1


KILL = """
    import json, os, signal, sys
    from omnigraph_engine.lifecycle import create_graph
    from omnigraph_engine.storage import Storage

    root, options, verb, path, schema = json.loads(sys.stdin.read())

    class Dying(Storage):
        def uri(self, path_):
            if (verb, path) == ("uri", path_):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().uri(path_)

        def delete(self, path_):
            if (verb, path) == ("delete", path_):
                os.kill(os.getpid(), signal.SIGKILL)
            super().delete(path_)

    create_graph(Dying(root, options), schema)
"""


@pytest.mark.parametrize(
    ("verb", "path", "exists"), [("uri", "__manifest", False), ("delete", CLAIM, True)], ids=["before", "after"]
)
def test_a_process_killed_around_its_manifest_leaves_residue_before_and_a_graph_after(
    storage: Storage, social: str, verb: str, path: str, *, exists: bool
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILL)],
        input=json.dumps([storage.root, storage.options, verb, path, social]),
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    with pytest.raises(GraphExists if exists else GraphCreationPending):
        create_graph(storage, social)
    if exists:
        assert open_again(storage).snapshot().version == 1
    else:
        with pytest.raises(GraphCreationPending):
            open_graph(storage)


def test_of_creators_at_once_exactly_one_wins_and_the_others_are_told_why(storage: Storage, social: str) -> None:
    creators = 4
    for turn in range(4):
        place = Storage(f"{storage.root}/{turn}", storage.options)
        barrier = threading.Barrier(creators)

        def attempt(number: int, place: Storage = place, barrier: threading.Barrier = barrier) -> str:
            own = Storage(place.root, place.options)
            schema = f"{social}\nnode Creator{number} {{ name: String @key }}"
            barrier.wait()
            try:
                create_graph(own, schema)
            except (GraphExists, GraphCreationPending):
                return ""
            return schema

        with ThreadPoolExecutor(creators) as pool:
            outcomes = [outcome for outcome in pool.map(attempt, range(creators)) if outcome]
        assert len(outcomes) == 1
        assert open_again(place).schema.source == outcomes[0]
        assert CLAIM not in place.list()


def test_a_creator_that_looked_before_another_came_and_went_leaves_the_others_graph_alone(
    storage: Storage, social: str
) -> None:
    class Late(Storage):
        """Everything another creator does happens between this one's look and its claim."""

        def put_if_absent(self, path: str, data: bytes) -> None:
            if path == CLAIM:
                create(storage, social)
            super().put_if_absent(path, data)

    with pytest.raises(GraphExists):
        create_graph(Late(storage.root, storage.options), social)
    assert CLAIM not in storage.list()
    assert open_again(storage).snapshot().version == 1


def test_opening_nothing_is_told_apart_from_opening_something_else(storage: Storage) -> None:
    nowhere = Storage(f"{storage.root}/nowhere", storage.options)
    with pytest.raises(GraphNotFound, match=r"nothing at .*Graph\.create"):
        open_again(nowhere)
    storage.put("notes.txt", b"mine")
    with pytest.raises(NotAGraph, match="no '__manifest'") as caught:
        open_again(storage)
    assert caught.value.hint is not None
    assert storage.list() == ["notes.txt"]


def test_opening_an_empty_folder_or_a_file_says_that_it_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(NotAGraph):
        Graph.open(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotAGraph, match="is a file"):
        Graph.open(tmp_path / "file")


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_truncated_manifest_is_damage_and_not_an_absent_graph(storage: Storage, social: str, keep: float) -> None:
    create(storage, social).load({"Company": pa.table({"name": ["Acme"]})})
    newest = f"__manifest/_versions/{2**64 - 3:020d}.manifest"
    whole = storage.get(newest)
    storage.put(newest, whole[: int(len(whole) * keep)])
    with pytest.raises(GraphDamaged, match="cannot be opened") as caught:
        open_again(storage)
    assert "backup" in (caught.value.hint or "")
    with pytest.raises(GraphExists):
        create(storage, social)
    storage.put(newest, whole)
    assert open_again(storage).snapshot().table("Company").count() == 1


@pytest.mark.parametrize(
    ("stamp", "error", "words"),
    [
        ("5", GraphTooOld, "format version 5.*Export it"),
        ("7", GraphTooNew, "format version 7.*Upgrade"),
        ("10", GraphTooNew, "format version 10"),
        (None, GraphDamaged, "no format stamp"),
        ("six", GraphDamaged, "not a number"),
    ],
)
def test_a_manifest_with_another_stamp_is_refused_by_every_door(
    local: Storage, social: str, stamp: str | None, error: type[OmnigraphError], words: str
) -> None:
    graph = create(local, social)
    manifest(local).update_schema_metadata({} if stamp is None else {STAMP: stamp}, replace=True)
    before = local.list()
    for door in (
        lambda: open_again(local),
        graph.snapshot,
        lambda: graph.load({"Company": pa.table({"name": ["Acme"]})}),
    ):
        with pytest.raises(error, match=words):
            door()
    assert local.list() == before


def test_a_manifest_of_the_first_formats_is_too_old_and_not_damaged(local: Storage) -> None:
    first = pa.schema([field for field in MANIFEST_SCHEMA if "_id" not in field.name or field.name == "object_id"])
    lance.write_dataset(first.empty_table(), local.uri("__manifest"), storage_options=local.options or None)
    with pytest.raises(GraphTooOld) as caught:
        open_again(local)
    assert caught.value.details == {"found": 1, "supported": 6}


def test_a_stamped_manifest_with_other_columns_is_damaged(local: Storage) -> None:
    odd = pa.schema([pa.field("object_id", pa.string())], metadata={STAMP: "6"})
    lance.write_dataset(odd.empty_table(), local.uri("__manifest"), storage_options=local.options or None)
    with pytest.raises(GraphDamaged, match="columns"):
        open_again(local)


def test_a_schema_file_edited_by_hand_is_refused(local: Storage, social: str) -> None:
    create(local, social)
    local.put("_schema.pg", social.replace("age: I32?", "age: I64?").encode())
    with pytest.raises(SchemaContractBroken, match=r"_schema\.pg was edited by hand"):
        open_again(local)
    local.put("_schema.pg", b"// the same schema, with a remark\n" + social.encode())
    assert open_again(local).schema.source.startswith("// the same")


@pytest.mark.parametrize("name", ["_schema.pg", "_schema.ir.json", "__schema_state.json"])
def test_a_missing_schema_file_is_named(local: Storage, social: str, name: str) -> None:
    create(local, social)
    local.delete(name)
    with pytest.raises(SchemaContractBroken, match="is missing") as caught:
        open_again(local)
    assert local.uri(name) in caught.value.message


def test_schema_files_of_another_graph_are_refused_and_the_tables_named(local: Storage, social: str) -> None:
    mine, other = (Storage(f"{local.root}/{name}", local.options) for name in ("mine", "other"))
    create(mine, social)
    create(other, social + "node City { name: String @key }")
    for name in ("_schema.pg", "_schema.ir.json", "__schema_state.json"):
        mine.put(name, other.get(name))
    with pytest.raises(GraphDamaged, match="disagree about") as caught:
        open_again(mine)
    assert "node:City" in caught.value.details["table_keys"]
    assert "node:Person" in caught.value.details["table_keys"]  # the same name under another identity


def test_a_graph_open_for_reading_refuses_to_load(storage: Storage, social: str) -> None:
    create(storage, social)
    before = storage.list()
    reader = Graph.open(storage.root, "ro", storage_options=storage.options)
    with pytest.raises(ReadOnlyGraph, match='mode="rw"'):
        reader.load({"Company": pa.table({"name": ["Acme"]})})
    with pytest.raises(ReadOnlyGraph):
        reader.load_jsonl(['{"type":"Company","data":{"name":"Acme"}}'])
    assert storage.list() == before
    assert reader.snapshot().table("Company").count() == 0


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match='"ro" to read only'):
        Graph.open(tmp_path, "w")  # type: ignore[arg-type]


def test_the_claim_names_its_attempt_as_the_format_says(local: Storage, social: str) -> None:
    with suppress(Killed):
        create_graph(Dying(local, "put_if_absent", CLAIM, done=True), social)
    claim = json.loads(local.get(lifecycle.CLAIM))
    assert list(claim) == ["version", "attempt_id"]
    assert (claim["version"], len(claim["attempt_id"])) == (1, 26)
