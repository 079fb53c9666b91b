"""What two branches must not have together although each may have its part, and what a merge leaves behind."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from branch_writes import delete, merge_in_parts, parts_of, state, travelled, upsert_unchecked
from omnigraph_engine.branches import rules
from omnigraph_engine.branches.conflicts import NO_SIDE_RESOLVES, ConflictKind, ConflictList, way_out
from omnigraph_engine.branches.merge import MergeOptions, MergeOutcome, MergeResult
from omnigraph_engine.branches.plan import TableAction
from omnigraph_engine.errors import BranchNotFound, InvalidArgument, MergeConflict, ReadOnlyGraph, VersionConflict
from omnigraph_engine.failpoints import Failpoint, Moment, installed
from omnigraph_engine.graph import Graph
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables import buckets

SCHEMA = """
node Person { name: String @key  mail: String? @unique  first: String?  last: String?  @unique(first, last) }
node Team { name: String @key }
edge Leads: Person -> Team @card(0..2)
edge Likes: Person -> Person { weight: I32? }
"""


def person(name: str, mail: str | None = None, first: str | None = None, last: str | None = None) -> pa.Table:
    values = {"name": name, "mail": mail, "first": first, "last": last}
    return pa.table({key: pa.array([value], pa.string()) for key, value in values.items()})


def edge(entity: str, src: str, dst: str) -> pa.Table:
    return pa.table({"id": [entity], "src": [src], "dst": [dst]})


def names(*given: str) -> pa.Table:
    return pa.table({"name": list(given)})


@pytest.fixture(params=["in memory", "in buckets on disk"])
def graph(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Graph:
    if request.param != "in memory":
        monkeypatch.setattr(buckets, "HELD_ROWS", 0)
        monkeypatch.setattr(buckets, "BUCKETS", 3)
        monkeypatch.setattr(rules, "_FEW", 0)
    graph = Graph.create(tmp_path / "g", SCHEMA)
    graph.load({"Person": names("a", "b", "c"), "Team": names("t", "u", "v", "w"), "Likes": edge("ab", "a", "b")})
    graph.branches.create("dev")
    return graph


def conflicts(graph: Graph, **options: Any) -> list[tuple[str, str, str]]:
    """Kind, type and id of what stands against merging dev, which a dry run and the merge itself tell alike."""
    planned = graph.merge("dev", dry_run=True, **options)
    assert planned.outcome is MergeOutcome.CONFLICTS
    before = graph.snapshot().version
    for merge in (graph.merge, partial(merge_in_parts, graph)):
        with pytest.raises(MergeConflict) as caught:
            merge("dev", **options)
        assert caught.value.conflicts.equals(planned.conflicts)
    assert graph.snapshot().version == before
    return [(row["kind"], row["type"], row["id"]) for row in planned.conflicts.to_pylist()]


class TestTheAdvice:
    @pytest.mark.parametrize("kind", sorted(NO_SIDE_RESOLVES))
    def test_a_side_is_not_advised_where_none_resolves_anything(self, kind: ConflictKind) -> None:
        assert way_out(_of(kind), "take one") == (
            f"Change one of the branches, then merge: taking a side does not resolve {kind.value}."
        )

    def test_a_side_is_advised_for_what_it_resolves(self) -> None:
        assert way_out(_of(ConflictKind.DIVERGENT_UPDATE), "take one") == "Change one side, or take one."
        mixed = _of(ConflictKind.UNIQUE, ConflictKind.DELETE_UPDATE)
        assert way_out(mixed, "take one") == "Change one side, or take one. Taking a side does not resolve unique."

    def test_it_is_the_hint_of_the_error(self, graph: Graph) -> None:
        graph.load({"Likes": edge("bc", "b", "c")}, branch="dev")
        delete(graph, "main", {"node:Person": ["c"]})
        with pytest.raises(MergeConflict) as caught:
            graph.merge("dev")
        assert "on_conflict" not in str(caught.value.hint)
        graph.load({"Person": person("a", mail="dev")}, branch="dev", mode="merge")
        graph.load({"Person": person("a", mail="main")}, mode="merge")
        with pytest.raises(MergeConflict) as caught:
            graph.merge("dev")
        assert 'on_conflict="ours"' in str(caught.value.hint)


def _of(*kinds: ConflictKind) -> pa.Table:
    found = ConflictList()
    for kind in kinds:
        found.add(kind, "Person", pa.array(["a"]))
    return found.to_arrow(resolved=False)


class TestOrphans:
    def test_an_edge_of_the_source_needs_the_node_that_the_target_deleted(self, graph: Graph) -> None:
        graph.load({"Likes": edge("bc", "b", "c")}, branch="dev")
        delete(graph, "main", {"node:Person": ["c"]})
        assert conflicts(graph) == [("orphan edge", "Likes", "bc")]

    def test_an_edge_of_the_target_needs_the_node_that_the_source_deleted(self, graph: Graph) -> None:
        delete(graph, "dev", {"node:Person": ["c"]})
        graph.load({"Likes": edge("bc", "b", "c")})
        assert conflicts(graph) == [("orphan edge", "Likes", "bc")]

    def test_also_when_both_sides_changed_both_tables(self, graph: Graph) -> None:
        graph.load({"Likes": edge("bc", "b", "c"), "Person": names("dev")}, branch="dev")
        delete(graph, "main", {"node:Person": ["c"], "edge:Likes": ["ab"]})
        assert conflicts(graph) == [("orphan edge", "Likes", "bc")]

    def test_taking_a_side_does_not_resolve_it(self, graph: Graph) -> None:
        graph.load({"Likes": edge("bc", "b", "c")}, branch="dev")
        delete(graph, "main", {"node:Person": ["c"]})
        assert conflicts(graph, on_conflict="theirs") == [("orphan edge", "Likes", "bc")]

    def test_a_node_that_the_merge_brings_back_is_there_for_its_edges(self, graph: Graph) -> None:
        graph.load({"Person": person("c", mail="new")}, branch="dev", mode="merge")
        graph.load({"Likes": edge("bc", "b", "c")}, branch="dev")
        delete(graph, "main", {"node:Person": ["c"]})
        assert ("delete against update", "Person", "c") in conflicts(graph)
        graph.merge("dev", on_conflict="theirs")
        assert graph.snapshot().table("Person").count("id = 'c'") == 1

    def test_an_edge_with_ends_of_both_sides_needs_the_node_that_the_other_side_deleted(self, graph: Graph) -> None:
        graph.load({"Likes": edge("ab", "c", "b")}, branch="dev", mode="merge")
        graph.load({"Person": names("n")})
        graph.merge("main", into="dev")
        delete(graph, "dev", {"node:Person": ["n"]})
        graph.load({"Likes": edge("ab", "a", "n")}, mode="merge")
        assert conflicts(graph, granularity="property") == [("orphan edge", "Likes", "ab")]

    def test_a_node_and_its_edges_deleted_on_one_side_go(self, graph: Graph) -> None:
        delete(graph, "dev", {"node:Person": ["b"], "edge:Likes": ["ab"]})
        graph.load({"Person": names("m"), "Likes": edge("ac", "a", "c")})
        assert graph.merge("dev").outcome is MergeOutcome.MERGED
        assert graph.snapshot().table("Likes").to_arrow(["id"])["id"].to_pylist() == ["ac"]
        assert sorted(graph.snapshot().table("Person").to_arrow(["id"])["id"].to_pylist()) == ["a", "c", "m"]


class TestUnique:
    def test_each_side_gave_the_value_to_an_entity_of_its_own(self, graph: Graph) -> None:
        graph.load({"Person": person("d", mail="x")}, branch="dev")
        graph.load({"Person": person("m", mail="x")})
        assert conflicts(graph) == [("unique", "Person", "d")]

    def test_a_value_that_one_side_moved_is_free(self, graph: Graph) -> None:
        graph.load({"Person": person("a", mail="x")}, mode="merge")
        graph.merge("main", into="dev")
        graph.load({"Person": person("a", mail="y")}, branch="dev", mode="merge")
        graph.load({"Person": person("d", mail="x")}, branch="dev")
        graph.load({"Person": names("m")})
        assert graph.merge("dev").outcome is MergeOutcome.MERGED

    def test_properties_of_both_sides_together_meet_a_row_that_nobody_touched(self, graph: Graph) -> None:
        graph.load({"Person": pa.concat_tables([person("k", None, "A", "B"), person("l", None, "C", "D")])})
        graph.merge("main", into="dev")
        graph.load({"Person": person("l", None, "A", "D")}, branch="dev", mode="merge")
        graph.load({"Person": person("l", None, "C", "B")}, mode="merge")
        assert conflicts(graph, granularity="property") == [("unique", "Person", "l")]

    def test_properties_of_both_sides_together_meet_a_row_that_comes_with_them(self, graph: Graph) -> None:
        graph.load({"Person": pa.concat_tables([person("k", None, "A", "B"), person("l", None, "C", "D")])})
        graph.merge("main", into="dev")
        for branch, one, other in (("dev", ("X", "B"), ("X", "D")), ("main", ("A", "Y"), ("C", "Y"))):
            both = pa.concat_tables([person("k", None, *one), person("l", None, *other)])
            graph.load({"Person": both}, branch=branch, mode="merge")
        assert conflicts(graph, granularity="property") == [("unique", "Person", "k"), ("unique", "Person", "l")]


class TestCardinality:
    def test_too_many_edges_together(self, graph: Graph) -> None:
        graph.load({"Leads": edge("1", "a", "t")})
        graph.merge("main", into="dev")
        graph.load({"Leads": edge("2", "a", "u")}, branch="dev")
        graph.load({"Leads": edge("3", "a", "v")})
        assert conflicts(graph) == [("cardinality", "Leads", "a")]

    @pytest.mark.parametrize("edges_on_both_sides", [True, False])
    @pytest.mark.parametrize(("deletes", "winner"), [("main", "theirs"), ("dev", "ours")])
    def test_a_node_that_one_side_kept_needs_the_edges_that_the_other_deleted(
        self, tmp_path: Path, deletes: str, winner: str, *, edges_on_both_sides: bool
    ) -> None:
        graph = Graph.create(tmp_path / "least", SCHEMA.replace("0..2", "1..2"))
        leads = pa.concat_tables([edge("1", "a", "t"), edge("2", "b", "t")])
        graph.load({"Person": names("a", "b"), "Team": names("t"), "Leads": leads})
        graph.branches.create("dev")
        keeps = "dev" if deletes == "main" else "main"
        graph.load({"Person": person("a", mail="new")}, branch=keeps, mode="merge")
        if edges_on_both_sides:
            graph.load({"Leads": edge("3", "b", "t")}, branch=keeps)
        delete(graph, deletes, {"node:Person": ["a"], "edge:Leads": ["1"]})
        assert conflicts(graph, on_conflict=winner) == [("cardinality", "Leads", "a")]

    def test_one_edge_given_up_makes_room(self, graph: Graph) -> None:
        graph.load({"Leads": pa.concat_tables([edge("1", "a", "t"), edge("2", "a", "u")])})
        graph.merge("main", into="dev")
        delete(graph, "dev", {"edge:Leads": ["1"]})
        graph.load({"Leads": edge("3", "a", "v")}, branch="dev")
        graph.load({"Leads": edge("4", "b", "v")})
        graph.merge("dev")
        assert sorted(graph.snapshot().table("Leads").to_arrow(["id"])["id"].to_pylist()) == ["2", "3", "4"]


class TestValues:
    """Rows of an engine that does not know our rules: what is merged by entity is held against them again."""

    SCHEMA = """
    node Pet {
        name: String @key
        age: I32?
        kind: enum(cat, dog)?
        tag: String?
        spot: Vector(2)?
        @range(age, 0..30)
        @check(tag, "^[a-z]+$")
    }
    """

    @pytest.fixture
    def graph(self, tmp_path: Path) -> Graph:
        graph = Graph.create(tmp_path / "g", self.SCHEMA)
        graph.load({"Pet": names("bo", "mia")})
        graph.branches.create("dev")
        return graph

    def _write(self, graph: Graph, branch: str, **values: Any) -> None:
        schema = graph.snapshot().table("Pet").table.schema
        row = {**dict.fromkeys(schema.names), **values, "id": values["name"]}
        upsert_unchecked(graph, branch, "node:Pet", pa.Table.from_pylist([row], schema))

    @pytest.mark.parametrize(
        ("column", "value", "rule"),
        [
            ("age", 31, "age must be within 0..30"),
            ("kind", "cow", "kind must be one of cat, dog"),
            ("tag", "A1", "tag must match '^[a-z]+$'"),
        ],
    )
    def test_a_value_that_the_schema_does_not_allow_is_a_conflict(
        self, graph: Graph, column: str, value: Any, rule: str
    ) -> None:
        self._write(graph, "dev", name="mia", **{column: value})
        graph.load({"Pet": names("zoe")})
        assert conflicts(graph) == [("value constraint", "Pet", "mia")]
        assert conflicts(graph, on_conflict="theirs") == [("value constraint", "Pet", "mia")]
        [told] = graph.merge("dev", dry_run=True).conflicts.to_pylist()
        assert json.loads(told["source"]) == {"id": "mia", column: value, "rule": rule}

    def test_every_rule_that_a_row_breaks_is_told(self, graph: Graph) -> None:
        self._write(graph, "dev", name="new", age=-1, spot=[1.0, float("nan")])
        graph.load({"Pet": names("zoe")})
        assert conflicts(graph) == [("value constraint", "Pet", "new")] * 2

    def test_a_row_of_which_the_target_keeps_its_own_is_not_held_against_them(self, graph: Graph) -> None:
        self._write(graph, "dev", name="mia", age=31)
        graph.load({"Pet": pa.table({"name": ["mia"], "age": pa.array([3], pa.int32())})}, mode="merge")
        assert graph.merge("dev", on_conflict="ours").outcome is MergeOutcome.MERGED
        assert state(graph, "main")["Pet"]["mia"]["age"] == 3


class TestTheMergeAsAWhole:
    def test_a_table_that_only_the_source_changed_is_adopted_unread(self, graph: Graph) -> None:
        graph.load({"Person": names("d")}, branch="dev")
        graph.load({"Team": names("x")})
        result = graph.merge("dev")
        assert {key: table.action for key, table in result.tables.items()} == {"node:Person": TableAction.ADOPTED}
        shown = graph.snapshot(branch="dev").table("Person").published
        assert graph.snapshot().table("Person").published == shown

    def test_an_adopted_table_is_written_by_each_side_on_a_line_of_its_own(self, graph: Graph) -> None:
        graph.load({"Person": names("d")}, branch="dev")
        graph.merge("dev")
        graph.load({"Person": names("main")})
        graph.load({"Person": names("dev")}, branch="dev")
        assert graph.snapshot().table("Person").count() == graph.snapshot(branch="dev").table("Person").count() == 5
        assert graph.snapshot().table("Person").count("id = 'dev'") == 0

    def test_an_adopted_table_outlives_the_branch_it_came_from(self, graph: Graph) -> None:
        graph.load({"Person": names("d")}, branch="dev")
        result = graph.merge("dev", delete_branch=True)
        graph.branches.create("dev")
        graph.load({"Person": names("again")}, branch="dev")
        graph.branches.delete("dev")
        assert graph.snapshot().table("Person").count() == 4
        assert graph.snapshot(commit=result.commit.id if result.commit else "").table("Person").to_arrow().num_rows == 4

    def test_the_commit_has_two_parents_and_says_what_was_merged(self, graph: Graph) -> None:
        target = graph.snapshot().commit.id
        graph.load({"Person": names("d")}, branch="dev")
        source = graph.snapshot(branch="dev").commit.id
        commit = graph.merge("dev", actor="ada", message="review done").commit
        assert commit is not None
        assert (commit.parent_id, commit.merged_parent_id, commit.actor) == (target, source, "ada")
        assert commit.extra["message"] == "review done"
        assert commit.extra["merge"]["source"] == "dev"

    def test_what_was_resolved_how_is_in_the_commit(self, graph: Graph) -> None:
        graph.load({"Person": person("a", mail="dev")}, branch="dev", mode="merge")
        graph.load({"Person": person("a", mail="main")}, mode="merge")
        commit = graph.merge("dev", on_conflict={"Person": "ours"}).commit
        assert commit is not None
        assert commit.extra["merge"]["resolved"] == [
            {"type": "Person", "kind": "divergent update", "resolution": "ours", "count": 1}
        ]

    def test_a_dry_run_leaves_no_file_behind(self, graph: Graph) -> None:
        graph.load({"Person": person("a", mail="dev")}, branch="dev", mode="merge")
        graph.load({"Person": person("b", mail="main")}, mode="merge")
        before = graph.storage.list()
        for merge in (graph.merge, partial(merge_in_parts, graph)):
            assert merge("dev", dry_run=True).outcome is MergeOutcome.MERGED
            assert graph.storage.list() == before

    def test_a_target_that_moves_meanwhile_is_merged_anew(self, graph: Graph) -> None:
        graph.load({"Person": names("d")}, branch="dev")
        graph.load({"Person": names("m")})
        result = _with_a_rival(graph, lambda: graph.load({"Person": names("rival")}), point=Failpoint.ARM)
        assert result.outcome is MergeOutcome.MERGED
        shown = set(graph.snapshot().table("Person").to_arrow(["id"])["id"].to_pylist())
        assert shown == {"a", "b", "c", "d", "m", "rival"}

    def test_parts_are_void_when_the_target_has_moved_and_others_are_made(self, graph: Graph) -> None:
        graph.load({"Person": names("d")}, branch="dev")
        graph.load({"Person": names("m")})
        merge = graph.begin_merge("dev", "main", MergeOptions())
        works = merge.begin(elsewhere=0)
        assert isinstance(works, dict)
        graph.load({"Person": person("a", mail="rival")}, mode="merge")
        again = merge.go_on({key: parts_of(work, 2) for key, work in works.items()}, elsewhere=0)
        assert isinstance(again, dict)
        result = merge.go_on({key: parts_of(work, 2) for key, work in again.items()}, elsewhere=0)
        assert isinstance(result, MergeResult)
        assert result.outcome is MergeOutcome.MERGED
        shown = {row["id"]: row["mail"] for row in graph.snapshot().table("Person").to_arrow().to_pylist()}
        assert shown == {"a": "rival", **dict.fromkeys("bcdm")}

    def test_a_property_may_have_the_name_of_what_a_merge_notes_itself(self, tmp_path: Path) -> None:
        graph = Graph.create(tmp_path / "came", "node Guest { name: String @key  came: Bool?  origin: String? }")
        guests = {"name": ["a", "b"], "came": [True, False], "origin": ["x", "y"]}
        graph.load({"Guest": pa.table(guests)})
        graph.branches.create("dev")
        graph.load({"Guest": pa.table({"name": ["a"], "came": [False], "origin": ["z"]})}, mode="merge", branch="dev")
        graph.load({"Guest": pa.table({"name": ["b"], "came": [True], "origin": ["y"]})}, mode="merge")
        graph.merge("dev")
        shown = {row["id"]: (row["came"], row["origin"]) for row in state(graph, "main")["Guest"].values()}
        assert shown == {"a": (False, "z"), "b": (True, "y")}

    def test_a_small_table_is_merged_where_the_merge_is_begun(self, graph: Graph) -> None:
        graph.load({"Person": names("d")}, branch="dev")
        graph.load({"Person": names("m")})
        merge = travelled(graph.begin_merge("dev", "main", MergeOptions(delete_branch=True)))
        assert isinstance(merge.begin(elsewhere=3), MergeResult)
        assert [branch.name for branch in graph.branches.list()] == ["main"]

    def test_what_the_source_commits_meanwhile_is_not_merged(self, graph: Graph) -> None:
        graph.load({"Person": names("d")}, branch="dev")
        _with_a_rival(graph, lambda: graph.load({"Person": names("late")}, branch="dev"))
        assert graph.snapshot().table("Person").count("id = 'late'") == 0
        graph.merge("dev")
        assert graph.snapshot().table("Person").count("id = 'late'") == 1

    def test_a_source_that_is_deleted_meanwhile_is_a_conflict_and_nothing_is_merged(self, graph: Graph) -> None:
        graph.load({"Person": names("d")}, branch="dev")
        with pytest.raises(VersionConflict):
            _with_a_rival(graph, lambda: graph.branches.delete("dev"), point=Failpoint.ARM)
        assert graph.snapshot().table("Person").to_arrow().num_rows == 3
        assert graph.storage.list("__recovery") == []

    def test_branches_that_both_merged_a_third_one_have_it_in_common(self, graph: Graph) -> None:
        graph.branches.create("other")
        graph.load({"Person": names("shared")}, branch="dev")
        graph.merge("dev", into="other")
        graph.load({"Team": names("x")})
        graph.merge("dev")
        graph.branches.delete("dev")
        delete(graph, "other", {"node:Person": ["shared"]})
        graph.merge("other")
        assert graph.snapshot().table("Person").count("id = 'shared'") == 0

    def test_wrong_arguments_are_told(self, graph: Graph) -> None:
        with pytest.raises(BranchNotFound):
            graph.merge("nowhere")
        with pytest.raises(InvalidArgument):
            graph.merge("main")
        with pytest.raises(InvalidArgument, match="granularity"):
            graph.merge("dev", granularity="column")
        with pytest.raises(InvalidArgument, match="on_conflict"):
            graph.merge("dev", on_conflict={"Nobody": "ours"})
        with pytest.raises(ReadOnlyGraph):
            Graph.open(graph.uri, "ro").merge("dev")


def _with_a_rival(graph: Graph, rival: Any, point: Failpoint = Failpoint.PUBLISH) -> MergeResult:
    """Merges dev while somebody else acts, once, right before the merge reaches a point."""
    done = []

    def act(reached: Failpoint, moment: Moment) -> None:
        if reached is point and moment is Moment.BEFORE and not done:
            done.append(True)
            rival()

    with installed(act):
        return graph.merge("dev")


@pytest.mark.parametrize(
    ("commits_on_main", "action"), [(1, TableAction.ADOPTED), (2, TableAction.MERGED), (4, TableAction.MERGED)]
)
def test_a_branch_that_took_main_in_is_merged_in_full_however_many_versions_main_had_made(
    graph: Graph, commits_on_main: int, action: TableAction
) -> None:
    graph.load({"Team": names("on dev")}, branch="dev")
    for number in range(commits_on_main):
        graph.load({"Team": names(f"on main {number}")})
    graph.merge("main", into="dev")
    on_dev = state(graph, "dev")

    merged = graph.merge("dev")

    # The manifest shows of a table the row with the greatest version, so no lower or equal one can be adopted.
    assert (merged.outcome, merged.tables["node:Team"].action) == (MergeOutcome.FAST_FORWARD, action)
    assert state(graph, "main") == on_dev
    assert graph.snapshot().table("Team").count() == len(on_dev["Team"])
    graph.load({"Team": names("afterwards")})
    assert set(state(graph, "main")["Team"]) == {*on_dev["Team"], "afterwards"}


@pytest.mark.parametrize("by_workers", [False, True])
def test_branches_are_compared_and_merged_on_every_kind_of_store(storage: Storage, by_workers: bool) -> None:  # noqa: FBT001
    graph = Graph.create(storage.root, SCHEMA, storage_options=storage.options)
    graph.load({"Person": names("a", "b", "c", "d"), "Team": names("t"), "Likes": edge("ab", "a", "b")})
    graph.load({"Person": names("e")})
    graph.branches.create("dev")
    graph.load({"Person": pa.concat_tables([person("a", mail="dev"), person("f")])}, branch="dev", mode="merge")
    delete(graph, "dev", {"node:Person": ["c", "e"]})
    graph.load({"Likes": edge("fd", "f", "d")}, branch="dev")
    graph.load({"Person": pa.concat_tables([person("b", mail="main"), person("g")])}, mode="merge")
    delete(graph, "main", {"node:Person": ["d"]})
    on_main = graph.snapshot().commit.id
    merge = partial(merge_in_parts, graph) if by_workers else graph.merge

    with pytest.raises(MergeConflict) as refused:
        merge("dev")
    assert refused.value.conflicts.select(["kind", "type", "id"]).to_pylist() == [
        {"kind": "orphan edge", "type": "Likes", "id": "fd"}
    ]
    graph.load({"Likes": edge("fd", "f", "b")}, branch="dev", mode="merge")
    merged = merge("dev", delete_branch=True)

    assert merged.outcome is MergeOutcome.MERGED
    assert [info.name for info in graph.branches.list()] == ["main"]
    told = graph.diff(on_main, "main")
    changes = {key: told.table(key).to_arrow().select(["change", "id"]).to_pylist() for key in told.tables}
    assert changes == {
        "edge:Likes": [{"change": "inserted", "id": "fd"}],
        "node:Person": [
            {"change": "updated", "id": "a"},
            {"change": "deleted", "id": "c"},
            {"change": "deleted", "id": "e"},
            {"change": "inserted", "id": "f"},
        ],
    }
    people = state(graph, "main")["Person"]
    assert {name: row["mail"] for name, row in people.items()} == {"a": "dev", "b": "main", "f": None, "g": None}


@pytest.mark.parametrize("deleted", [False, True])
def test_the_nearest_common_commit_is_found_also_on_a_branch_that_was_deleted(graph: Graph, deleted: bool) -> None:  # noqa: FBT001
    graph.branches.create("other")
    graph.load({"Person": person("a", first="changed")}, branch="dev", mode="merge")
    common = graph.snapshot(branch="dev").commit.id
    graph.merge("dev", into="other")
    graph.load({"Person": names("on other")}, branch="other")
    graph.load({"Person": person("a")}, branch="dev", mode="merge")
    graph.merge("dev")
    if deleted:
        graph.branches.delete("dev")

    merged = graph.merge("other")

    assert merged.base_commit == common
    people = state(graph, "main")["Person"]
    assert people.keys() == {"a", "b", "c", "on other"}
    assert people["a"]["first"] is None  # dev took its change back after other had it


def test_a_change_back_after_crosswise_merges_is_not_lost_but_told(graph: Graph) -> None:
    """Two bases: one knows the change, the other the change back, and neither is the later one."""
    graph.branches.create("m")
    graph.branches.create("d")
    graph.load({"Person": person("a", mail="1")}, branch="m", mode="merge")
    graph.load({"Person": person("b", mail="2")}, branch="d", mode="merge")
    graph.branches.create("m2", from_="m")
    graph.branches.create("d2", from_="d")
    graph.merge("d", into="m2")
    graph.merge("m", into="d2")
    graph.load({"Person": names("a")}, branch="d2", mode="merge")
    result = graph.merge("d2", into="m2", dry_run=True)
    assert [(row["kind"], row["id"]) for row in result.conflicts.to_pylist()] == [("divergent update", "a")]


@pytest.mark.parametrize("seed", range(4))
def test_merging_either_way_gives_the_same_graph_when_nothing_contradicts(graph: Graph, seed: int) -> None:
    choose = Random(seed)  # noqa: S311 - a test's choices
    graph.load({"Person": names(*(f"p{number}" for number in range(12)))})
    sides = {"x": [f"p{number}" for number in range(6)], "y": [f"p{number}" for number in range(6, 12)]}
    for side, own in sides.items():
        graph.branches.create(side)
        for number in range(3):
            changed = choose.sample(own, 2)
            rows = [person(name, mail=f"{side}{number}-{name}") for name in changed]
            graph.load({"Person": pa.concat_tables([*rows, person(f"{side}{number}")])}, branch=side, mode="merge")
            graph.load({"Likes": edge(f"{side}-{number}", choose.choice(own), "a")}, branch=side)
        own_edge = f"{side}-0"
        delete(graph, side, {"edge:Likes": [own_edge]})
    for side, other in (("x", "y"), ("y", "x")):
        graph.branches.create(f"{side}-with-{other}", from_=side)
        graph.merge(other, into=f"{side}-with-{other}")
    assert state(graph, "x-with-y") == state(graph, "y-with-x")
    assert state(graph, "x-with-y")["Person"].keys() >= {"x0", "y0", "p0"}
