"""A branch is made at once, written to on its own, deleted at once, and its name is free again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from branch_scene import (
    COMPANY,
    KNOWS,
    PERSON,
    assert_all_at_rest,
    branch_names,
    forks,
    forks_for,
    line,
    meanwhile,
    shown,
)
from branch_writes import delete
from crash_scene import AFTER, BEFORE, Faulty, companies, dying, edges, graph_on, people, sidecar_paths
from lance import LanceDataset
from omnigraph_engine.commit.coordinator import CommitPlan, Coordinator, PhaseClock, TableAdoption
from omnigraph_engine.commit.lines import life_of
from omnigraph_engine.commit.recovery import RECOVERY_ACTOR
from omnigraph_engine.commit.sidecar import WriterKind
from omnigraph_engine.commit.transaction import capture
from omnigraph_engine.errors import (
    BranchExists,
    BranchHasDescendants,
    BranchNotFound,
    CommitNotFound,
    DuplicateKey,
    InvalidArgument,
    MissingEndpoint,
    ReadOnlyGraph,
)
from omnigraph_engine.failpoints import Failpoint
from omnigraph_engine.graph import Graph
from omnigraph_engine.lifecycle import open_graph
from omnigraph_engine.manifest.dataset import open_manifest
from omnigraph_engine.manifest.publisher import TablePin
from omnigraph_engine.manifest.refs import BranchInfo
from omnigraph_engine.write.load import LoadMode

MODES = ("append", "merge", "overwrite")


def adopt(graph: Graph, branch: str, table: str = PERSON) -> None:
    """Main shows the table as the branch does, as after a merge that found nothing to do but that."""
    contract, _ = open_graph(graph.storage)
    published = graph.snapshot(branch=branch).table(table).published
    adoption = TableAdoption(table, TablePin(published.version, published.branch), published.row_count)
    plan = CommitPlan(kind=WriterKind.BRANCH_MERGE, changes=(), adoptions=(adoption,))
    Coordinator(capture(graph.storage, contract, None), plan, lease=30, clock=PhaseClock()).run()


# -- creating -------------------------------------------------------------------------------------------------


def test_a_new_branch_shows_what_its_origin_shows_and_is_listed_after_main(anywhere: Graph) -> None:
    info = anywhere.branches.create("dev")
    assert branch_names(anywhere) == ["main", "dev"]
    assert anywhere.branches.get("dev") == info
    assert (info.name, info.parent, info.parent_version) == ("dev", "main", anywhere.snapshot().version)
    assert shown(anywhere, "dev") == shown(anywhere) == ["Ada", "Bob"]
    assert shown(anywhere, "dev", KNOWS) == ["Ada-Bob"]
    assert anywhere.snapshot(branch="dev").commit == anywhere.snapshot().commit


def test_a_creation_that_is_repeated_because_its_answer_was_lost_finds_its_own_branch(anywhere: Graph) -> None:
    info = anywhere.branches.create("dev", request="r1")
    anywhere.load({"Person": people("Cleo")}, branch="dev")
    assert anywhere.branches.create("dev", request="r1") == info
    assert shown(anywhere, "dev") == ["Ada", "Bob", "Cleo"]
    for other in ("r2", None):
        with pytest.raises(BranchExists):
            anywhere.branches.create("dev", request=other)
    with pytest.raises(BranchExists):
        anywhere.branches.create("dev/june", request="r1")  # another name is another branch


def test_of_two_runs_of_one_creation_at_the_same_time_both_get_the_one_branch(graph: Graph) -> None:
    made: list[BranchInfo] = []
    with meanwhile(Failpoint.CREATE_BRANCH, BEFORE, lambda: made.append(graph.branches.create("dev", request="r1"))):
        info = graph.branches.create("dev", request="r1")
    assert made == [info] == [graph.branches.get("dev")]


def test_a_creation_that_died_half_way_is_completed_by_its_repetition(graph: Graph) -> None:
    with dying(Failpoint.CREATE_BRANCH, AFTER):
        graph.branches.create("dev", request="r1")
    info = graph.branches.create("dev", request="r1")
    assert graph.branches.get("dev") == info
    assert not open_manifest(graph.storage, "dev").borrowed


def test_a_repeated_creation_of_a_branch_that_was_deleted_meanwhile_makes_another_one(graph: Graph) -> None:
    first = graph.branches.create("dev", request="r1")
    graph.load({"Person": people("Cleo")}, branch="dev")
    graph.branches.delete("dev")
    assert graph.branches.create("dev", request="r1").life != first.life
    assert shown(graph, "dev") == ["Ada", "Bob"]


def test_a_branch_of_a_branch_shows_that_branch(anywhere: Graph) -> None:
    anywhere.branches.create("dev")
    anywhere.load({"Person": people("Cleo")}, branch="dev")
    info = anywhere.branches.create("feature", from_="dev")
    anywhere.load({"Person": people("Dora")}, branch="feature")
    anywhere.load({"Person": people("Emma")}, branch="dev")
    assert info.parent == "dev"
    assert info.descends_from(anywhere.branches.get("dev"))
    assert shown(anywhere) == ["Ada", "Bob"]
    assert shown(anywhere, "dev") == ["Ada", "Bob", "Cleo", "Emma"]
    assert shown(anywhere, "feature") == ["Ada", "Bob", "Cleo", "Dora"]
    assert_all_at_rest(anywhere)


def test_a_branch_of_a_commit_shows_that_commit(graph: Graph) -> None:
    old = graph.snapshot().commit.commit_id
    graph.load({"Person": people("Cleo")})
    graph.branches.create("then", from_=old)
    graph.load({"Person": people("Dora")}, branch="then")
    assert shown(graph, "then") == ["Ada", "Bob", "Dora"]
    assert shown(graph) == ["Ada", "Bob", "Cleo"]


def test_a_branch_of_a_commit_of_another_branch_descends_from_that_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    receipt = graph.load({"Person": people("Cleo")}, branch="dev")
    graph.load({"Person": people("Dora")}, branch="dev")
    assert receipt.commit is not None
    info = graph.branches.create("then", from_=receipt.commit.commit_id)
    assert info.parent == "dev"
    assert shown(graph, "then") == ["Ada", "Bob", "Cleo"]
    with pytest.raises(BranchHasDescendants, match="then"):
        graph.branches.delete("dev")


def test_an_origin_that_does_not_exist_is_named_and_no_branch_is_made(graph: Graph) -> None:
    graph.branches.create("dev")
    with pytest.raises(BranchNotFound, match="'dve'") as caught:
        graph.branches.create("new", from_="dve")
    assert "dev" in str(caught.value.hint)
    assert branch_names(graph) == ["main", "dev"]


def test_a_branch_that_does_not_exist_is_neither_got_read_written_nor_listed(graph: Graph) -> None:
    graph.branches.create("dev")
    for attempt in (
        lambda: graph.branches.get("dve"),
        lambda: graph.snapshot(branch="dve"),
        lambda: graph.commits.list("dve"),
        lambda: graph.load({"Person": people("Cleo")}, branch="dve"),
        lambda: graph.branches.delete("dve"),
    ):
        with pytest.raises(BranchNotFound) as caught:
            attempt()
        assert "dev" in str(caught.value.hint)
        assert caught.value.details["branch"] == "dve"


def test_main_is_a_branch_that_can_be_got(graph: Graph) -> None:
    main = graph.branches.get("main")
    assert (main.name, main.parent, main.identifier) == ("main", None, ())
    assert graph.branches.list() == [main]


@pytest.mark.parametrize(
    "name",
    ["main", "__x", "", "a b", "a:b", "a\\b", "a%2Fb", "a?", "a*", "..", "a..b", "a/../b", ".", ".a", "a/.b",
     "a.lock", "a/b.lock", "/a", "a/", "a//b", "a\n", "x" * 151, "ö" * 16, "/".join("a" * 39)],
)  # fmt: skip
def test_a_name_that_no_branch_may_have_is_refused_and_leaves_nothing(graph: Graph, name: str) -> None:
    before = graph.storage.list()
    with pytest.raises(InvalidArgument) as caught:
        graph.branches.create(name)
    assert caught.value.details == {"branch": name}
    assert graph.storage.list() == before


@pytest.mark.parametrize("name", [None, 5, b"dev"])
def test_a_name_that_is_no_text_is_refused(graph: Graph, name: Any) -> None:
    with pytest.raises(InvalidArgument, match="a name is text"):
        graph.branches.create(name)


@pytest.mark.parametrize(
    "name",
    ["dev", "a.b-c_d", "team/feature", "a/b/c", "9", "größe", "Main", "main2", "a-b",
     "x" * 150, "ö" * 15, "/".join("a" * 38)],
)  # fmt: skip
def test_a_name_that_a_branch_may_have_can_be_made_written_and_deleted(graph: Graph, name: str) -> None:
    graph.branches.create(name)
    graph.load({"Person": people("Cleo")}, branch=name)
    assert branch_names(graph) == ["main", name]
    assert shown(graph, name) == ["Ada", "Bob", "Cleo"]
    graph.branches.delete(name)
    assert branch_names(graph) == ["main"]
    assert forks(graph) == []


def test_lance_itself_finds_a_branch_and_its_next_life_where_it_keeps_its_own(anywhere: Graph) -> None:
    storage, name = anywhere.storage, "team/größe"
    for lives in range(2):
        info = anywhere.branches.create(name)
        commit = anywhere.load({"Person": people("Cleo")}, branch=name).commit
        assert commit is not None
        manifest = lance.dataset(storage.uri("__manifest"), storage_options=storage.options or None)
        found = manifest.branches.list()[name]
        assert (found["parent_branch"], found["parent_version"]) == (None, info.parent_version), lives
        rows = manifest.checkout_version((name, None)).to_table()["object_id"].to_pylist()
        assert commit.commit_id in rows
        assert branch_names(anywhere) == ["main", name]
        anywhere.branches.delete(name)
    assert lance.dataset(storage.uri("__manifest"), storage_options=storage.options or None).branches.list() == {}


def test_a_branch_that_another_engine_made_is_a_branch(anywhere: Graph) -> None:
    storage = anywhere.storage
    manifest = lance.dataset(storage.uri("__manifest"), storage_options=storage.options or None)
    manifest.create_branch("theirs", (None, anywhere.snapshot().version))
    assert branch_names(anywhere) == ["main", "theirs"]
    anywhere.load({"Person": people("Cleo")}, branch="theirs")
    assert shown(anywhere, "theirs") == ["Ada", "Bob", "Cleo"]
    anywhere.branches.delete("theirs")
    assert branch_names(anywhere) == ["main"]


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b"), ("a", "a/b/c")]
)
def test_a_name_that_is_taken_or_a_folder_of_a_taken_one_is_refused(graph: Graph, first: str, second: str) -> None:
    info = graph.branches.create(first)
    with pytest.raises(BranchExists) as caught:
        graph.branches.create(second)
    assert caught.value.details["branch"] == second
    assert caught.value.hint
    assert graph.branches.list()[1:] == [info]


def test_names_that_only_begin_alike_do_not_collide(graph: Graph) -> None:
    for name in ("a", "ab", "a-b", "b/a", "b/c"):
        graph.branches.create(name)
    assert branch_names(graph) == ["main", "a", "a-b", "ab", "b/a", "b/c"]


def test_of_two_creators_of_one_name_one_wins_and_the_other_is_told(graph: Graph) -> None:
    made = []

    def create_too() -> None:
        made.append(graph.branches.create("dev"))

    with meanwhile(Failpoint.CREATE_BRANCH, BEFORE, create_too), pytest.raises(BranchExists, match="dev"):
        graph.branches.create("dev")
    assert graph.branches.list()[1:] == made
    assert shown(graph, "dev") == ["Ada", "Bob"]


# -- what creating costs --------------------------------------------------------------------------------------


def test_creating_a_branch_makes_no_commit_and_touches_no_table(anywhere: Graph) -> None:
    storage = anywhere.storage
    before = [path for path in storage.list() if path.startswith(("nodes/", "edges/"))]
    commits = anywhere.commits.list()
    anywhere.branches.create("dev")
    assert [path for path in storage.list() if path.startswith(("nodes/", "edges/"))] == before
    assert anywhere.commits.list("dev") == anywhere.commits.list() == commits
    assert sidecar_paths(storage) == []


@contextmanager
def operations(graph: Graph) -> Iterator[dict[str, int]]:
    """How often the block asks the store, for small objects and through every dataset that is opened in it."""
    storage = graph.storage
    assert isinstance(storage, Faulty)
    handles: list[LanceDataset] = []
    cost = {"small": 0, "reads": 0, "writes": 0}
    real = LanceDataset.__init__

    def record(self: LanceDataset, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        handles.append(self)

    storage.asked.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LanceDataset, "__init__", record)
        yield cost
    cost["small"] = len(storage.asked)
    for handle in handles:
        stats = handle.io_stats_incremental()
        cost["reads"] += stats.read_iops
        cost["writes"] += stats.write_iops


def test_a_deletion_that_is_repeated_because_its_answer_was_lost_leaves_a_later_branch_of_that_name_alone(
    anywhere: Graph,
) -> None:
    first = anywhere.branches.create("dev")
    for _ in range(2):
        anywhere.branches.delete("dev", life=first.life)
        assert branch_names(anywhere) == ["main"]
    anywhere.branches.create("dev")
    anywhere.branches.delete("dev", life=first.life)
    assert branch_names(anywhere) == ["main", "dev"]


@pytest.mark.parametrize("lives", [1, 2])
def test_creating_a_branch_costs_the_same_after_2_commits_and_after_60(graph: Graph, lives: int) -> None:
    """The manifest has as many fragments at both times: how many there are between two folds is a matter of luck."""
    graph = graph_on(Faulty(graph.storage))
    graph.load({"Company": companies("c0")})

    def cost(name: str) -> dict[str, int]:
        for _ in range(lives - 1):
            graph.branches.create(name)
            graph.branches.delete(name)
        with operations(graph) as counted:
            graph.branches.create(name)
        graph.branches.delete(name)
        return counted

    few = cost("few")
    for number in range(1, 58):
        graph.load({"Company": companies(f"c{number}")})
    many = cost("many")
    assert len(graph.commits.list()) >= 60
    assert many["small"] == few["small"]
    assert many["writes"] == few["writes"]
    assert many["reads"] <= few["reads"] + 16  # never more than the fragments between two folds
    assert few["small"] + few["reads"] + few["writes"] < 60


def test_a_branch_of_a_new_name_copies_nothing_of_its_parents_manifest(graph: Graph) -> None:
    for parent, name in (("main", "dev"), ("dev", "feature")):
        graph.branches.create(name, from_=parent)
        manifest = lance.dataset(graph.storage.uri(f"__manifest/tree/{name}"))
        own = [part for part in manifest.get_fragments() if part.metadata.files[0].base_id is None]
        assert [part.count_rows() for part in own] == [1]  # which life it is


def test_creating_a_branch_costs_the_same_beside_1_branch_and_beside_40(graph: Graph) -> None:
    graph = graph_on(Faulty(graph.storage))

    def cost(name: str) -> dict[str, int]:
        with operations(graph) as counted:
            graph.branches.create(name)
        return counted

    few = cost("few")
    for number in range(40):
        graph.branches.create(f"b{number}")
    assert cost("many") == few


# -- writing --------------------------------------------------------------------------------------------------


def test_what_is_written_on_a_branch_is_not_seen_on_main_nor_the_other_way_round(anywhere: Graph) -> None:
    anywhere.branches.create("dev")
    anywhere.load({"Person": people("Cleo"), "Knows": edges(("Cleo", "Ada"))}, branch="dev")
    anywhere.load({"Person": people("Dora"), "Knows": edges(("Dora", "Bob"))})
    anywhere.branches.create("other")
    assert shown(anywhere) == shown(anywhere, "other") == ["Ada", "Bob", "Dora"]
    assert shown(anywhere, "dev") == ["Ada", "Bob", "Cleo"]
    assert shown(anywhere, "main", KNOWS) == ["Ada-Bob", "Dora-Bob"]
    assert shown(anywhere, "dev", KNOWS) == ["Ada-Bob", "Cleo-Ada"]
    assert_all_at_rest(anywhere)


@pytest.mark.parametrize("second", MODES)
@pytest.mark.parametrize("first", MODES)
def test_every_mode_writes_to_a_branch_on_the_line_that_the_first_write_forked(
    graph: Graph, first: str, second: str
) -> None:
    content: dict[str, int | None] = {"Ada": None, "Bob": None}
    graph.branches.create("dev")
    lines = []
    for number, mode in enumerate((first, second)):
        kept = {} if mode == "append" else dict.fromkeys(("Ada", "Bob"), 10 + number)
        rows: dict[str, int | None] = {**kept, f"new{number}": number}
        table = pa.table({"name": list(rows), "age": pa.array(rows.values(), pa.int32())})
        receipt = graph.load({"Person": table}, mode=mode, branch="dev")
        content = rows if mode == "overwrite" else {**content, **rows}
        found = graph.snapshot(branch="dev").table("Person")
        assert {row["name"]: row["age"] for row in found.to_arrow().to_pylist()} == content
        assert found.count() == receipt.tables[PERSON].rows == len(content)
        lines.append(found.published.branch)
    assert lines[0] == lines[1] is not None
    assert forks(graph) == [lines[0]]
    assert shown(graph) == ["Ada", "Bob"]
    assert_all_at_rest(graph)


def test_only_the_tables_that_a_branch_writes_to_are_forked(graph: Graph) -> None:
    life = graph.branches.create("dev").life
    graph.load({"Person": people("Cleo")}, branch="dev")
    assert life_of(str(line(graph, "dev"))) == life
    assert (line(graph, "dev", KNOWS), line(graph, "dev", COMPANY)) == (None, None)
    graph.load({"Knows": edges(("Cleo", "Ada"))}, branch="dev")
    assert forks_for(graph, life) == [line(graph, "dev", KNOWS), line(graph, "dev")]
    assert forks(graph, COMPANY) == []


def test_a_deletion_of_nodes_with_their_edges_forks_the_tables_it_touches_and_no_other(graph: Graph) -> None:
    [edge] = shown(graph, "main", KNOWS)
    life = graph.branches.create("dev").life
    delete(graph, "dev", {PERSON: ["Bob"], KNOWS: [edge], COMPANY: ["nobody"]})
    assert (shown(graph, "dev"), shown(graph, "dev", KNOWS)) == (["Ada"], [])
    assert forks_for(graph, life) == [line(graph, "dev", KNOWS), line(graph, "dev")]
    assert (shown(graph), shown(graph, "main", KNOWS)) == (["Ada", "Bob"], [edge])


def test_a_branch_of_a_branch_forks_its_own_lines(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    feature = graph.branches.create("feature", from_="dev")
    assert line(graph, "feature") == line(graph, "dev")
    graph.load({"Person": people("Dora", age=4)}, mode="merge", branch="feature")
    assert life_of(str(line(graph, "feature"))) == feature.life
    assert life_of(str(line(graph, "dev"))) == dev.life
    third = graph.branches.create("third", from_="feature")
    graph.load({"Person": people("Bob", "Cleo", age=5)}, mode="merge", branch="third")
    assert life_of(str(line(graph, "third"))) == third.life
    rows = graph.snapshot(branch="third").table("Person").to_arrow().to_pylist()
    assert {row["name"]: row["age"] for row in rows} == {"Ada": None, "Bob": 5, "Cleo": 5, "Dora": 4}
    assert_all_at_rest(graph)


def test_an_edge_on_a_branch_needs_its_ends_on_that_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    graph.load({"Person": people("Dora")})
    graph.load({"Knows": edges(("Cleo", "Ada"))}, branch="dev")
    for branch, missing in (("dev", "Dora"), ("main", "Cleo")):
        with pytest.raises(MissingEndpoint, match=missing):
            graph.load({"Knows": edges((missing, "Ada"), ("Ada", "Ada"))}, branch=branch)
    assert shown(graph, "dev", KNOWS) == ["Ada-Bob", "Cleo-Ada"]
    with pytest.raises(DuplicateKey):
        graph.load({"Person": people("Cleo")}, branch="dev")
    graph.load({"Person": people("Cleo")})  # there it is new


def test_a_numbered_write_counts_on_the_branch_it_was_made_on_and_on_those_made_of_it_later(graph: Graph) -> None:
    graph.branches.create("dev")

    def write(branch: str, version: int, name: str) -> bool:
        with graph.transaction(branch, txn_app_id="etl", txn_version=version) as transaction:
            transaction.load("Person", people(name))
        assert transaction.receipt is not None
        return not transaction.receipt.replayed

    assert write("dev", 1, "Cleo")
    assert not write("dev", 1, "Cleo")
    assert write("main", 1, "Dora")
    graph.branches.create("feature", from_="dev")
    assert not write("feature", 1, "Emma")
    assert write("feature", 2, "Emma")
    assert write("dev", 2, "Finn")
    assert shown(graph, "feature") == ["Ada", "Bob", "Cleo", "Emma"]
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo", "Finn"]


def test_blobs_written_on_a_branch_and_before_it_are_read_on_it(tmp_path: Path) -> None:
    large = b"x" * 300_000
    graph = Graph.create(tmp_path / "g.omni", "node Photo { name: String @key  data: Blob? }")

    def photos(*rows: tuple[str, bytes | None]) -> pa.Table:
        return pa.table(
            {"name": [name for name, _ in rows], "data": pa.array([data for _, data in rows], pa.large_binary())}
        )

    def stored(branch: str) -> dict[str, bytes | None]:
        rows = graph.snapshot(branch=branch).table("Photo").to_arrow().to_pylist()
        return {row["name"]: row["data"] for row in rows}

    graph.load({"Photo": photos(("a", large), ("b", b"small"))})
    graph.branches.create("dev")
    graph.load({"Photo": photos(("c", large), ("d", None))}, branch="dev")
    graph.load({"Photo": photos(("b", large + b"!"))}, mode="merge", branch="dev")
    assert stored("dev") == {"a": large, "b": large + b"!", "c": large, "d": None}
    assert stored("main") == {"a": large, "b": b"small"}
    graph.load({"Photo": photos(("a", b"over"))}, mode="overwrite", branch="dev")
    assert stored("dev") == {"a": b"over"}


def test_many_small_writes_to_a_branch_are_folded_and_lose_nothing(graph: Graph) -> None:
    graph.branches.create("dev")
    for number in range(20):
        graph.load({"Person": people(f"p{number:02d}")}, branch="dev")
    assert shown(graph, "dev") == ["Ada", "Bob", *(f"p{number:02d}" for number in range(20))]
    assert len(graph.snapshot(branch="dev").table("Person").fragments()) < 20
    assert shown(graph) == ["Ada", "Bob"]
    assert len(forks(graph)) == 1
    assert_all_at_rest(graph)


# -- history --------------------------------------------------------------------------------------------------


def test_a_branch_shows_its_own_commits_before_those_it_inherited(graph: Graph) -> None:
    inherited = graph.commits.list()
    graph.branches.create("dev")
    graph.load({"Person": people("Dora")})
    own = [graph.load({"Person": people(name)}, branch="dev", actor="ada").commit for name in ("Cleo", "Emma")]
    found = graph.commits.list("dev")
    assert found == [*reversed(own), *inherited]
    assert [commit.branch for commit in found] == ["dev", "dev", *[None] * len(inherited)]
    assert found[0].parent_id == found[1].commit_id
    assert found[1].parent_id == inherited[0].commit_id
    assert graph.commits.list("dev", actor="ada") == found[:2]
    assert graph.commits.show(found[0].commit_id) == found[0]
    assert not any(commit.actor == RECOVERY_ACTOR for commit in found)


def test_a_branch_can_be_read_as_it_was_by_version_commit_and_time(graph: Graph) -> None:
    before = datetime.now(timezone.utc)
    graph.branches.create("dev")
    begun = graph.snapshot(branch="dev").version
    receipts = []
    for name in ("Cleo", "Dora"):
        time.sleep(0.002)  # two commits in one microsecond could not be told apart
        receipts.append(graph.load({"Person": people(name)}, branch="dev"))
    first = receipts[0].commit
    assert first is not None
    graph.load({"Person": people("Emma")})

    def seen(**when: Any) -> list[str]:
        return sorted(graph.snapshot(**when).table("Person").to_arrow(["id"])["id"].to_pylist())

    assert seen(branch="dev", version=first.manifest_version) == ["Ada", "Bob", "Cleo"]
    assert seen(commit=first.commit_id) == ["Ada", "Bob", "Cleo"]
    moment = datetime.fromtimestamp(first.created_at / 1e6, timezone.utc)
    assert seen(branch="dev", timestamp=moment.replace(microsecond=first.created_at % 10**6)) == ["Ada", "Bob", "Cleo"]
    assert seen(branch="dev", timestamp=before) == ["Ada", "Bob"]
    assert seen(branch="dev", version=begun) == ["Ada", "Bob"]
    for version in (1, 99):
        with pytest.raises(CommitNotFound, match="dev"):
            graph.snapshot(branch="dev", version=version)


@pytest.mark.parametrize("how", ["version", "commit", "timestamp"])
def test_a_later_life_of_a_name_has_a_history_as_good_as_the_first(graph: Graph, how: str) -> None:
    """Main has gone on meanwhile, so its manifest has more versions than the name ever had."""
    graph.branches.create("dev")
    graph.branches.delete("dev")
    for number in range(4):
        graph.load({"Company": companies(f"c{number}")})
    inherited = graph.commits.list()
    graph.branches.create("dev")
    own = []
    for name in ("Cleo", "Dora"):
        time.sleep(0.002)
        commit = graph.load({"Person": people(name)}, branch="dev").commit
        assert commit is not None
        own.append(commit)
    assert graph.snapshot(branch="dev").commit == own[1]
    assert graph.commits.list("dev") == [*reversed(own), *inherited]
    assert (own[1].parent_id, own[0].parent_id) == (own[0].commit_id, inherited[0].commit_id)
    first = own[0]
    moment = datetime.fromtimestamp(first.created_at // 10**6, timezone.utc).replace(
        microsecond=first.created_at % 10**6
    )
    when: dict[str, Any] = {
        "version": {"branch": "dev", "version": first.manifest_version},
        "commit": {"commit": first.commit_id},
        "timestamp": {"branch": "dev", "timestamp": moment},
    }[how]
    assert graph.snapshot(**when).table("Person").count() == 3
    graph.branches.create("feature", from_=first.commit_id)
    assert shown(graph, "feature") == ["Ada", "Bob", "Cleo"]


# -- deleting -------------------------------------------------------------------------------------------------


def test_a_deleted_branch_is_gone_with_its_commits_and_main_is_as_it_was(anywhere: Graph) -> None:
    life = anywhere.branches.create("dev").life
    commit = anywhere.load({"Person": people("Cleo"), "Knows": edges(("Cleo", "Ada"))}, branch="dev").commit
    assert commit is not None
    assert len(forks_for(anywhere, life)) == 2
    anywhere.branches.delete("dev")
    assert branch_names(anywhere) == ["main"]
    assert forks_for(anywhere, life) == []
    with pytest.raises(BranchNotFound):
        anywhere.snapshot(branch="dev")
    with pytest.raises(CommitNotFound):
        anywhere.snapshot(commit=commit.commit_id)
    assert shown(anywhere) == ["Ada", "Bob"]
    leftovers = [path for path in anywhere.storage.list() if path.startswith(("nodes/", "edges/")) and life in path]
    assert leftovers == []
    assert_all_at_rest(anywhere)


def test_a_branch_with_descendants_is_not_deleted_until_they_are(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.branches.create("feature", from_="dev")
    graph.branches.create("third", from_="feature")
    graph.branches.create("other")
    with pytest.raises(BranchHasDescendants) as caught:
        graph.branches.delete("dev")
    assert caught.value.details == {"branch": "dev", "descendants": ["feature", "third"]}
    for name in ("third", "feature", "dev"):
        graph.branches.delete(name)
    assert branch_names(graph) == ["main", "other"]


@pytest.mark.parametrize("name", ["main", "__run__1"])
def test_what_nobody_created_cannot_be_deleted(graph: Graph, name: str) -> None:
    with pytest.raises(InvalidArgument):
        graph.branches.delete(name)
    assert shown(graph) == ["Ada", "Bob"]


def test_a_branch_is_deleted_once(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.branches.delete("dev")
    with pytest.raises(BranchNotFound):
        graph.branches.delete("dev")


def test_a_name_can_be_used_again_at_once_and_shows_nothing_of_its_former_lives(anywhere: Graph) -> None:
    lives = set()
    for number in range(3):
        info = anywhere.branches.create("dev")
        lives.add(info.life)
        assert shown(anywhere, "dev") == shown(anywhere)
        assert anywhere.commits.list("dev") == anywhere.commits.list()
        anywhere.load({"Person": people("Cleo", f"d{number}")}, branch="dev")
        if number % 2:
            anywhere.load({"Person": people("Ada", age=number)}, mode="merge", branch="dev")
        assert shown(anywhere, "dev") == sorted(["Cleo", f"d{number}", *shown(anywhere)])
        anywhere.load({"Person": people(f"m{number}")})
        anywhere.branches.delete("dev")
        assert forks(anywhere) == []
    assert len(lives) == 3
    assert shown(anywhere) == ["Ada", "Bob", "m0", "m1", "m2"]
    assert_all_at_rest(anywhere)


def test_a_name_can_be_used_again_from_another_origin(graph: Graph) -> None:
    graph.branches.create("base")
    graph.load({"Person": people("Cleo")}, branch="base")
    graph.branches.create("dev")
    graph.load({"Person": people("Dora")}, branch="dev")
    graph.branches.delete("dev")
    info = graph.branches.create("dev", from_="base")
    assert info.parent == "base"
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo"]
    graph.load({"Person": people("Emma")}, branch="dev")
    graph.load({"Person": people("Ada", "Cleo", age=1)}, mode="merge", branch="dev")
    assert shown(graph, "dev") == ["Ada", "Bob", "Cleo", "Emma"]
    with pytest.raises(BranchHasDescendants):
        graph.branches.delete("base")


def test_versions_of_a_former_life_are_not_versions_of_the_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    former = graph.load({"Person": people("Cleo")}, branch="dev").commit
    assert former is not None
    graph.branches.delete("dev")
    graph.branches.create("dev")
    with pytest.raises(CommitNotFound):
        graph.snapshot(branch="dev", version=former.manifest_version)
    with pytest.raises(CommitNotFound):
        graph.snapshot(commit=former.commit_id)


def test_a_handle_on_a_former_life_does_not_write_into_the_next(graph: Graph) -> None:
    graph.branches.create("dev")
    load = graph.begin_load("dev")
    staged = load.stage(PERSON, people("Cleo").to_batches(), LoadMode.APPEND)
    assert staged is not None
    graph.branches.delete("dev")
    graph.branches.create("dev")
    with pytest.raises(BranchNotFound):
        load.commit([staged])
    assert shown(graph, "dev") == ["Ada", "Bob"]
    assert_all_at_rest(graph)


def test_a_line_that_another_branch_shows_outlives_the_branch_that_forked_it(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    graph.load({"Company": companies("Acme")}, branch="dev")
    adopt(graph, "dev")
    graph.branches.delete("dev")
    assert shown(graph) == ["Ada", "Bob", "Cleo"]
    assert forks_for(graph, dev.life) == [line(graph, "main")]
    graph.load({"Person": people("Dora")})  # main does not own that line: it forks one of its own
    assert life_of(str(line(graph, "main"))) == "main"
    graph.load({"Person": people("Ada", age=7)}, mode="merge")
    assert shown(graph) == ["Ada", "Bob", "Cleo", "Dora"]
    graph.branches.create("dev")
    graph.branches.delete("dev")
    assert shown(graph) == ["Ada", "Bob", "Cleo", "Dora"]
    assert_all_at_rest(graph)


def test_lines_that_a_shown_line_is_built_on_outlive_their_branches(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    graph.branches.create("feature", from_="dev")
    graph.load({"Person": people("Dora")}, branch="feature")
    adopt(graph, "feature")
    graph.branches.delete("feature")
    graph.branches.delete("dev")
    assert shown(graph) == ["Ada", "Bob", "Cleo", "Dora"]


def test_a_line_that_only_an_older_commit_shows_outlives_the_branch_that_forked_it(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    adopt(graph, "dev")
    merged = graph.snapshot().version
    graph.load({"Person": people("Dora")})
    graph.branches.delete("dev")
    old = graph.snapshot(version=merged).table("Person")
    assert sorted(old.to_arrow(["id"])["id"].to_pylist()) == ["Ada", "Bob", "Cleo"]


def test_a_line_that_main_shows_outlives_its_branch_also_when_its_writers_sidecar_was_left(graph: Graph) -> None:
    graph.branches.create("dev")
    with dying(Failpoint.DISARM, BEFORE):
        graph.load({"Person": people("Cleo")}, branch="dev")
    adopt(graph, "dev")
    graph.branches.delete("dev")
    assert sidecar_paths(graph.storage) == []
    assert shown(graph) == ["Ada", "Bob", "Cleo"]


# -- who may --------------------------------------------------------------------------------------------------


def test_a_graph_that_is_open_for_reading_neither_makes_nor_deletes_branches_but_reads_them(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.load({"Person": people("Cleo")}, branch="dev")
    reader = Graph.open(graph.storage.root, "ro")
    stored = graph.storage.list()
    for attempt in (
        lambda: reader.branches.create("new"),
        lambda: reader.branches.delete("dev"),
        lambda: reader.load({"Person": people("Dora")}, branch="dev"),
    ):
        with pytest.raises(ReadOnlyGraph):
            attempt()
    assert shown(reader, "dev") == ["Ada", "Bob", "Cleo"]
    assert reader.branches.list() == graph.branches.list()
    assert graph.storage.list() == stored
