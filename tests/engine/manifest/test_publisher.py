"""The publish: all of a commit or nothing, once, in line with the others, at a price that history does not raise."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from omnigraph_engine.errors import PublishContention, StorageError, VersionConflict
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest import publisher
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.manifest.publisher import FOLD_AT_FRAGMENTS, Publication, TablePin, publish
from omnigraph_engine.manifest.rows import TableVersion
from omnigraph_engine.manifest.state import ManifestState, commits, find_commit
from omnigraph_engine.storage import Storage
from ulid import ULID

LINES = 8  # tables of their own for writers that do not get in each other's way


@pytest.fixture
def graph(storage: Storage, social: str) -> Graph:
    return Graph.create(storage.root, social, storage_options=storage.options)


@pytest.fixture
def local(tmp_path: Path, social: str) -> Storage:
    return Graph.create(tmp_path / "graph.omni", social).storage


@pytest.fixture
def wide(tmp_path: Path) -> Storage:
    schema = "\n".join(f"node Line{number} {{ name: String @key }}" for number in range(LINES))
    return Graph.create(tmp_path / "wide.omni", schema).storage


def state(storage: Storage, branch: str | None = None) -> ManifestState:
    return open_manifest(storage, branch).state


def publication(storage: Storage, *table_keys: str, branch: str | None = None, **more: Any) -> Publication:
    """A commit that moves each of the tables by one version from where it stands now."""
    tables = state(storage, branch).tables
    updates = tuple(
        TableVersion(key, tables[key].identity, tables[key].version + 1, branch, 7, "somewhere", 1)
        for key in table_keys
    )
    expected = {key: TablePin(tables[key].version, tables[key].branch) for key in table_keys}
    return Publication(**{"commit_id": str(ULID()), "branch": branch, "updates": updates, "expected": expected, **more})


def versions(storage: Storage) -> dict[str, int]:
    return {key: table.version for key, table in state(storage).tables.items()}


def commit_ids(storage: Storage) -> list[str]:
    return [commit.commit_id for commit in commits(open_manifest(storage).rows)]


class Interrupted(Storage):
    """A store in which something else happens just before, or in place of the answer to, a publish of the manifest."""

    def __init__(
        self, like: Storage, before: Callable[[], None] | None = None, *, lost_answers: int = 0, deaf: bool = False
    ) -> None:
        super().__init__(like.root, like.options)
        self._before = before
        self.lost_answers = lost_answers
        self._deaf = deaf  # nor can Lance ask afterwards what became of it

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.startswith("__manifest/") and self._before is not None:
            with ThreadPoolExecutor(1) as elsewhere:  # Lance must not be called from inside its own call to us
                elsewhere.submit(self._before).result()
        super().put_if_absent(path, data)
        if path.startswith("__manifest/") and self.lost_answers:
            self.lost_answers -= 1
            raise StorageError("the connection was closed before the answer came")

    def size(self, path: str) -> int:
        if self._deaf and not self.lost_answers:
            raise StorageError("no connection")
        return super().size(path)


def once(action: Callable[[], Any]) -> Callable[[], None]:
    left = [action]

    def run() -> None:
        if left:
            left.pop()()

    return run


# -- what a publish makes visible ---------------------------------------------------------------------------


def test_a_publish_shows_all_its_tables_and_its_commit_at_once(graph: Graph) -> None:
    storage, genesis = graph.storage, graph.snapshot().commit
    published = publish(
        storage, publication(storage, "node:Person", "edge:Knows", actor="ada", extra={"message": "first"})
    )
    assert published.attempts == 1
    now = state(storage)
    assert versions(storage) == {"node:Company": 1, "node:Person": 2, "edge:Knows": 2, "edge:WorksAt": 1}
    assert now.tables["node:Person"].row_count == 7
    assert now.head == published.commit
    assert (now.head.parent_id, now.head.manifest_version, now.version) == (genesis.commit_id, 2, 2)
    assert (now.head.actor, now.head.extra) == ("ada", {"message": "first"})
    assert {table.version for table in open_manifest(storage, None, 1).state.tables.values()} == {1}
    assert find_commit(open_manifest(storage, None, 1).rows, published.commit.commit_id) is None


def test_a_publish_on_a_branch_is_seen_on_that_branch_alone(graph: Graph) -> None:
    storage = graph.storage
    publish(storage, publication(storage, "node:Person"))
    manifest = lance.dataset(storage.uri("__manifest"), storage_options=storage.options or None)
    manifest.create_branch("dev", (None, 2))
    on_main = state(storage)
    published = publish(storage, publication(storage, "node:Person", branch="dev"))
    assert state(storage) == on_main
    assert state(storage, "dev").head == published.commit
    assert (published.commit.branch, published.commit.parent_id) == ("dev", on_main.head.commit_id)
    assert state(storage, "dev").tables["node:Person"].version == 3
    heads = {row["object_id"] for row in open_manifest(storage, "dev").rows.to_pylist()}
    assert {"graph_head:main", "graph_head:dev"} <= heads


# -- expectations -------------------------------------------------------------------------------------------


def test_a_table_that_moved_is_a_conflict_and_nothing_of_the_commit_is_visible(graph: Graph) -> None:
    storage = graph.storage
    late = publication(storage, "node:Company", "node:Person")
    publish(storage, publication(storage, "node:Person"))
    before = state(storage)
    with pytest.raises(VersionConflict, match="version conflict on node:Person: expected 1, found 2") as caught:
        publish(storage, late)
    assert caught.value.details == {"table_key": "node:Person", "expected": 1, "actual": 2}
    assert caught.value.retryable
    assert state(storage) == before


def test_a_table_that_was_only_read_counts_too(local: Storage) -> None:
    late = publication(local, "edge:Knows")
    late = Publication(
        late.commit_id, None, late.updates, {**late.expected, "node:Person": TablePin(1), "node:Company": TablePin(1)}
    )
    publish(local, publication(local, "node:Person"))
    with pytest.raises(VersionConflict) as caught:
        publish(local, late)
    assert caught.value.details["table_key"] == "node:Person"


def test_a_table_that_is_not_there_is_a_conflict_with_nothing(local: Storage) -> None:
    missing = publication(local, "node:Person", expected={"node:Ghost": TablePin(4)})
    with pytest.raises(VersionConflict) as caught:
        publish(local, missing)
    assert caught.value.details == {"table_key": "node:Ghost", "expected": 4, "actual": None}


def test_the_same_version_on_another_line_of_the_table_is_a_conflict(local: Storage) -> None:
    with pytest.raises(VersionConflict):
        publish(local, publication(local, "node:Person", expected={"node:Person": TablePin(1, "fork")}))


def test_a_head_that_moved_is_a_conflict_for_those_who_asked(graph: Graph) -> None:
    storage = graph.storage
    head = state(storage).head.commit_id
    picky = publication(storage, "node:Company", expected_head=head)
    easy = publication(storage, "node:Company")
    winner = publish(storage, publication(storage, "node:Person"))
    with pytest.raises(VersionConflict) as caught:
        publish(storage, picky)
    assert caught.value.details == {
        "table_key": "graph_head:main",
        "expected": head,
        "actual": winner.commit.commit_id,
    }
    assert publish(storage, easy).commit.parent_id == winner.commit.commit_id


# -- races --------------------------------------------------------------------------------------------------


def test_a_lost_race_is_run_again_on_the_new_state_when_nothing_pinned_moved(graph: Graph) -> None:
    storage = graph.storage
    rival = publication(storage, "node:Company")
    racing = Interrupted(storage, before=once(lambda: publish(storage, rival)))
    published = publish(racing, publication(storage, "node:Person"))
    assert published.attempts == 2
    assert published.commit.parent_id == rival.commit_id
    assert published.commit.manifest_version == 3
    assert versions(storage) == {"node:Company": 2, "node:Person": 2, "edge:Knows": 1, "edge:WorksAt": 1}


def test_a_lost_race_over_a_pinned_table_is_a_conflict(graph: Graph) -> None:
    storage = graph.storage
    rival = publication(storage, "node:Person")
    racing = Interrupted(storage, before=once(lambda: publish(storage, rival)))
    with pytest.raises(VersionConflict):
        publish(racing, publication(storage, "node:Person"))
    assert commit_ids(storage)[0] == rival.commit_id
    assert len(commit_ids(storage)) == 2


def test_a_manifest_that_moved_in_another_way_is_a_lost_race_too(local: Storage) -> None:
    def other_writer() -> None:  # a maintenance of somebody else's: the head row is not touched
        lance.dataset(local.uri("__manifest")).optimize.compact_files()

    publish(local, publication(local, "node:Company"))
    published = publish(Interrupted(local, before=once(other_writer)), publication(local, "node:Person"))
    assert published.attempts == 2
    assert published.commit.manifest_version == state(local).version > 3


def test_a_publisher_that_always_loses_gives_up_and_may_be_run_again(local: Storage) -> None:
    def win() -> None:
        publish(local, publication(local, "node:Company"))

    racing = Interrupted(local, before=win)
    loser = publication(local, "node:Person")
    with pytest.raises(PublishContention, match=f"commit {loser.commit_id} is not visible") as caught:
        publish(racing, loser, attempts=3)
    assert caught.value.retryable
    assert caught.value.details == {"branch": "main", "commit_id": loser.commit_id}
    assert len(commit_ids(local)) == 4
    assert loser.commit_id not in commit_ids(local)
    assert publish(local, loser).commit.manifest_version == state(local).version


@pytest.mark.parametrize("deaf", [False, True], ids=["asked again", "not to be asked"])
def test_a_publish_that_landed_but_was_reported_failed_is_a_success_and_lands_once(graph: Graph, *, deaf: bool) -> None:
    storage = graph.storage
    failing = Interrupted(storage, lost_answers=1, deaf=deaf)
    wanted = publication(storage, "node:Person")
    published = publish(failing, wanted, attempts=1)
    assert failing.lost_answers == 0
    assert published.commit.commit_id == wanted.commit_id
    assert state(storage).head == published.commit
    assert commit_ids(storage).count(wanted.commit_id) == 1
    assert (state(storage).version, versions(storage)["node:Person"]) == (2, 2)


def test_an_answer_that_was_lost_is_not_taken_for_success_when_a_rival_stands_there(local: Storage) -> None:
    rival = publication(local, "node:Company")

    def lose() -> None:
        publish(local, rival)
        raise StorageError("the connection was closed before the answer came")

    wanted = publication(local, "node:Person")
    with pytest.raises(PublishContention):
        publish(Interrupted(local, before=once(lose)), wanted, attempts=1)
    assert commit_ids(local)[0] == rival.commit_id
    assert publish(local, wanted).commit.parent_id == rival.commit_id


def test_a_publish_that_landed_unseen_is_found_also_after_others_went_on(graph: Graph) -> None:
    storage = graph.storage
    wanted = publication(storage, "node:Person")
    first = publish(storage, wanted)
    publish(storage, publication(storage, "node:Person"))
    again = publish(storage, wanted)  # its expectations hold no more, and need not
    assert again.commit == first.commit
    assert len(commit_ids(storage)) == 3


def test_a_store_that_fails_before_the_publish_is_tried_again_and_then_reported(local: Storage) -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise StorageError("no answer")

    with pytest.raises(StorageError) as caught:
        publish(Interrupted(local, before=fail), publication(local, "node:Person"), attempts=3)
    assert caught.value.retryable
    assert len(calls) == 3
    assert state(local).version == 1
    assert publish(Interrupted(local, before=once(fail)), publication(local, "node:Person")).attempts == 2


def publish_patiently(storage: Storage, wanted: Publication) -> None:
    while True:
        try:
            publish(storage, wanted)
        except PublishContention:
            continue
        return


def check_lineage(storage: Storage) -> None:
    """Every commit is first shown by the very version it names, and follows the one before it."""
    found = list(commits(open_manifest(storage).rows))
    for child, parent in pairwise(found):
        assert child.parent_id == parent.commit_id
    for commit in found:
        version = commit.manifest_version
        assert open_manifest(storage, None, version).state.head == commit
        if version > 1:
            assert find_commit(open_manifest(storage, None, version - 1).rows, commit.commit_id) is None


def test_publishers_in_many_threads_all_land_exactly_once(wide: Storage) -> None:
    barrier = threading.Barrier(LINES)
    rounds = 3

    def writer(number: int) -> list[str]:
        own = Storage(wide.root)
        barrier.wait()
        wanted = []
        for _ in range(rounds):
            one = publication(own, f"node:Line{number}")
            publish_patiently(own, one)
            wanted.append(one.commit_id)
        return wanted

    with ThreadPoolExecutor(LINES) as pool:
        wanted = [commit_id for ids in pool.map(writer, range(LINES)) for commit_id in ids]
    landed = Counter(commit_ids(wide)[:-1])
    assert landed == Counter(wanted)
    assert set(versions(wide).values()) == {1 + rounds}
    check_lineage(wide)


PROCESS = """
    import sys
    sys.path.insert(0, sys.argv[3])
    from test_publisher import Storage, publication, publish_patiently

    storage = Storage(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(3):
        one = publication(storage, f"node:Line{sys.argv[2]}")
        publish_patiently(storage, one)
        print(one.commit_id, flush=True)
"""


def test_publishers_in_many_processes_all_land_exactly_once(wide: Storage) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROCESS), wide.root, str(number), str(Path(__file__).parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    wanted = [commit_id for writer in writers for commit_id in writer.communicate(timeout=60)[0].split()]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(wanted) == 6
    assert Counter(commit_ids(wide)[:-1]) == Counter(wanted)
    check_lineage(wide)


def test_rivals_for_one_table_have_one_winner_per_version(local: Storage) -> None:
    rivals = [publication(local, "node:Person") for _ in range(4)]
    barrier = threading.Barrier(4)

    def attempt(wanted: Publication) -> bool:
        own = Storage(local.root)
        barrier.wait()
        try:
            publish(own, wanted)
        except VersionConflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(attempt, rivals))
    assert sum(won) == 1
    assert commit_ids(local)[0] == rivals[won.index(True)].commit_id
    assert len(commit_ids(local)) == 2


# -- folding ------------------------------------------------------------------------------------------------


def dataset(storage: Storage, version: int | None = None) -> LanceDataset:
    return lance.dataset(storage.uri("__manifest"), version=version, storage_options=storage.options or None)


def by_id(rows: pa.Table) -> dict[str, dict[str, Any]]:
    return {row.pop("object_id"): row for row in rows.to_pylist()}


def publish_until_folded(storage: Storage) -> tuple[int, int]:
    """The manifest versions just before and just after the next fold."""
    for _ in range(FOLD_AT_FRAGMENTS + 1):
        landed = publish(storage, publication(storage, "node:Person")).commit.manifest_version
        if dataset(storage).version > landed:
            return landed, dataset(storage).version
    raise AssertionError("no fold happened")


def test_folding_leaves_rows_row_ids_and_snapshots_as_they_were(graph: Graph) -> None:
    storage = graph.storage
    before, after = publish_until_folded(storage)
    assert after == before + 1
    assert len(dataset(storage, before).get_fragments()) == FOLD_AT_FRAGMENTS
    assert len(dataset(storage, after).get_fragments()) == 1
    columns = [*dataset(storage).schema.names, "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    assert by_id(dataset(storage, after).to_table(columns)) == by_id(dataset(storage, before).to_table(columns))
    assert dataset(storage, after).schema.equals(dataset(storage, before).schema, check_metadata=True)
    old, new = (open_manifest(storage, None, version).state for version in (before, after))
    assert (new.tables, new.head) == (old.tables, old.head)
    dataset(storage).validate()
    check_lineage(storage)


def test_a_reader_of_an_older_version_is_undisturbed_by_a_fold(local: Storage) -> None:
    publish(local, publication(local, "node:Person"))
    held, unread = open_manifest(local), open_manifest(local)
    rows = by_id(held.rows)
    publish_until_folded(local)
    assert by_id(unread.rows) == rows
    assert by_id(open_manifest(local, None, held.version).rows) == rows
    assert unread.state == held.state


def test_a_publish_over_a_fold_it_did_not_see_lands_after_it(local: Storage) -> None:
    def fold() -> None:
        publish_until_folded(local)

    published = publish(Interrupted(local, before=once(fold)), publication(local, "node:Company"))
    assert published.attempts == 2
    check_lineage(local)


def test_a_fold_that_fails_does_not_fail_the_commit_before_it(local: Storage) -> None:
    for _ in range(FOLD_AT_FRAGMENTS - 2):
        publish(local, publication(local, "node:Person"))
    puts: list[int] = []

    def fail_the_second() -> None:
        puts.append(1)
        if len(puts) == 2:
            raise StorageError("no answer")

    published = publish(Interrupted(local, before=fail_the_second), publication(local, "node:Person"))
    assert len(puts) == 2
    assert state(local).head == published.commit
    assert len(dataset(local).get_fragments()) == FOLD_AT_FRAGMENTS
    publish_until_folded(local)


def test_full_fragments_are_left_alone_and_do_not_trigger_folds(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "ROWS_PER_FOLDED_FRAGMENT", 6)
    monkeypatch.setattr(publisher, "FOLD_AT_FRAGMENTS", 3)
    folds = []
    for _ in range(24):
        landed = publish(local, publication(local, "node:Person")).commit.manifest_version
        folds.append(dataset(local).version > landed)
    assert sum(part.physical_rows >= 6 for part in dataset(local).get_fragments()) > 3
    assert folds.count(True) > 3
    assert (True, True) not in pairwise(folds)
    check_lineage(local)


# -- the price ----------------------------------------------------------------------------------------------


@dataclass
class Cost:
    reads: int
    writes: int
    requests: Counter[str]  # of small objects, by verb


@contextmanager
def counted_datasets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LanceDataset]]:
    """Every Lance dataset that is opened inside the block; each counts its own reads and writes."""
    opened: list[LanceDataset] = []
    real = LanceDataset.__init__

    def record(self: LanceDataset, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        opened.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(LanceDataset, "__init__", record)
        yield opened


def cost_of_publishing(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Cost:
    wanted = publication(storage, "node:Person")
    storage.operations.clear()
    with counted_datasets(monkeypatch) as opened:
        publish(storage, wanted)
    stats = [handle.io_stats_incremental() for handle in opened]
    assert len(stats) >= 2
    return Cost(
        reads=sum(one.read_iops for one in stats),
        writes=sum(one.write_iops for one in stats),
        requests=Counter(storage.operations),
    )


def dearest(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Cost:
    """The most of everything that any publish of one whole fold period costs."""
    costs = [cost_of_publishing(storage, monkeypatch) for _ in range(FOLD_AT_FRAGMENTS)]
    requests: Counter[str] = Counter()
    for cost in costs:
        requests |= cost.requests
    return Cost(max(cost.reads for cost in costs), max(cost.writes for cost in costs), requests)


def test_the_price_of_a_publish_does_not_grow_with_history(local: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    costs: dict[int, Cost] = {}
    person = state(local).tables["node:Person"]
    history = 0
    for length in (10, 100, 1000):
        for version in range(1 + history, 1 + length):
            update = TableVersion("node:Person", person.identity, version + 1, None, 7, "somewhere", 1)
            publish(local, Publication(str(ULID()), None, (update,), {"node:Person": TablePin(version)}))
        costs[length] = dearest(local, monkeypatch)
        history = length + FOLD_AT_FRAGMENTS
    few, some, many = costs[10], costs[100], costs[1000]
    # Lance reads a small fragment whole and a folded one column by column: a few reads more, up to about 600 commits. It
    # also joins neighbouring reads that come close together in time, so on a busy machine their number wavers.
    assert many.reads <= 1.5 * few.reads
    assert many.writes == some.writes == few.writes
    assert many.requests == some.requests == few.requests
