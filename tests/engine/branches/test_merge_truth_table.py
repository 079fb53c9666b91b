"""Every pair of things that two sides can do to one entity, and what merging them gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from branch_writes import SCHEMA, delete, knows, people, state
from omnigraph_engine.branches.merge import MergeOutcome
from omnigraph_engine.errors import MergeConflict
from omnigraph_engine.graph import Graph

CONFLICT = "conflict"
Row = tuple[Any, ...]

BASE: Row = ("x", 1, "here")
AFTER: dict[str, Row | None] = {
    "nothing": BASE,
    "rewrite": BASE,
    "age": ("x", 2, "here"),
    "age too": ("x", 3, "here"),
    "city": ("x", 1, "there"),
    "delete": None,
    "delete and insert": ("x", 9, "again"),
}
CHANGES = ["age", "age too", "city", "delete and insert"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.create(tmp_path_factory.mktemp("truth") / "g", SCHEMA)
    graph.load({"Person": people(("x", 1, "here"), ("other", 0, ""), ("bystander", 0, "")), "City": _city("z")})
    graph.load({"Knows": knows(("e", "other", "bystander", 1), ("f", "other", "other", 0))})
    return graph


def _city(name: str) -> Any:
    return people((name,)).select(["name"])


def _do(graph: Graph, branch: str, deed: str) -> None:
    if deed in ("age", "age too", "city", "rewrite"):
        graph.load({"Person": people(AFTER[deed] or BASE)}, branch=branch, mode="merge")
    if deed.startswith("delete"):
        delete(graph, branch, {"node:Person": ["x"]})
    if deed == "delete and insert":
        graph.load({"Person": people(AFTER[deed] or BASE)}, branch=branch)


def expected(source: str, target: str, granularity: str) -> Row | str | None:
    """What the entity is afterwards, by the rule itself: base, both sides, and nothing of how it is stored."""
    theirs, ours = AFTER[source], AFTER[target]
    if theirs in (BASE, ours):
        return ours
    if ours == BASE:
        return theirs
    if theirs is None or ours is None or granularity == "row":
        return CONFLICT
    pairs = list(zip(BASE, theirs, ours, strict=True))
    if any(their not in (base, our) and our != base for base, their, our in pairs):
        return CONFLICT
    return tuple(our if their == base else their for base, their, our in pairs)


@pytest.mark.parametrize(
    ("source", "target", "granularity"),
    [
        *((source, target, "row") for source in AFTER for target in AFTER),
        # Properties only matter where both sides left some.
        *((source, target, "property") for source in CHANGES for target in CHANGES),
    ],
)
def test_a_node_after_both_sides_did_something(graph: Graph, source: str, target: str, granularity: str) -> None:
    ours, theirs = (f"{side}-{source}-{target}-{granularity}".replace(" ", "_") for side in ("ours", "theirs"))
    graph.branches.create(ours)
    graph.branches.create(theirs)
    _do(graph, theirs, source)
    _do(graph, ours, target)
    outcome = expected(source, target, granularity)
    if outcome == CONFLICT:
        before = state(graph, ours)
        with pytest.raises(MergeConflict) as caught:
            graph.merge(theirs, into=ours, granularity=granularity)
        assert caught.value.conflicts["id"].to_pylist() == ["x"]
        kind = "delete against update" if None in (AFTER[source], AFTER[target]) else "divergent update"
        assert caught.value.conflicts["kind"].to_pylist() == [kind]
        assert state(graph, ours) == before
        for side, row in (("ours", AFTER[target]), ("theirs", AFTER[source])):
            branch = f"{ours}-{side}"
            graph.branches.create(branch, from_=ours)
            result = graph.merge(theirs, into=branch, granularity=granularity, on_conflict={"Person": side})
            assert result.resolved["resolution"].to_pylist() == [side]
            assert _row(graph, branch) == row
        return
    graph.merge(theirs, into=ours, granularity=granularity)
    assert _row(graph, ours) == outcome
    assert graph.merge(theirs, into=ours).outcome is MergeOutcome.UP_TO_DATE
    assert graph.snapshot(branch=ours).table("Person").count() == len(state(graph, ours)["Person"])


def _row(graph: Graph, branch: str) -> Row | None:
    row = state(graph, branch)["Person"].get("x")
    return None if row is None else (row["name"], row["age"], row["city"])


@pytest.mark.parametrize(
    ("theirs", "ours", "outcome"),
    [
        (("n", 1, "a"), ("n", 1, "a"), ("n", 1, "a")),
        (("n", 1, "a"), ("n", 2, "a"), CONFLICT),
        (("n", 1, "a"), None, ("n", 1, "a")),
        (None, ("n", 1, "a"), ("n", 1, "a")),
    ],
)
def test_an_entity_that_both_sides_make(
    tmp_path: Path, theirs: Row | None, ours: Row | None, outcome: Row | str
) -> None:
    graph = Graph.create(tmp_path / "g", SCHEMA)
    graph.load({"Person": people(("x", 1, "here"))})
    graph.branches.create("dev")
    graph.load({"Person": people(*([theirs] if theirs else []), ("d",))}, branch="dev")
    graph.load({"Person": people(*([ours] if ours else []), ("m",))})
    if outcome == CONFLICT:
        with pytest.raises(MergeConflict) as caught:
            graph.merge("dev", granularity="property")
        assert caught.value.conflicts["kind"].to_pylist() == ["divergent insert"]
        graph.merge("dev", on_conflict="theirs")
        outcome = theirs or ""
    else:
        graph.merge("dev")
    rows = state(graph, "main")["Person"]
    assert (rows["n"]["name"], rows["n"]["age"], rows["n"]["city"]) == outcome
    assert rows.keys() == {"x", "n", "d", "m"}


@pytest.mark.parametrize("target", ["nothing", "since", "delete"])
@pytest.mark.parametrize("source", ["nothing", "since", "src", "delete"])
def test_an_edge_after_both_sides_did_something(graph: Graph, source: str, target: str) -> None:
    after = {
        "nothing": ("e", "other", "bystander", 1),
        "since": ("e", "other", "bystander", 2),
        "src": ("e", "bystander", "bystander", 1),
        "delete": None,
    }
    ours, theirs = (f"edge-{side}-{source}-{target}" for side in ("ours", "theirs"))
    for branch, deed in ((ours, target), (theirs, source)):
        graph.branches.create(branch)
        row = after[deed]
        if row is None:
            delete(graph, branch, {"edge:Knows": ["e"]})
        elif deed != "nothing":
            graph.load({"Knows": knows(row)}, branch=branch, mode="merge")
    base = after["nothing"]
    if after[source] in (base, after[target]) or after[target] == base:
        outcome = after[target] if after[source] == base else after[source]
        graph.merge(theirs, into=ours)
        row = state(graph, ours)["Knows"].get("e")
        assert (None if row is None else (row["id"], row["src"], row["dst"], row["since"])) == outcome
    else:
        with pytest.raises(MergeConflict):
            graph.merge(theirs, into=ours)
