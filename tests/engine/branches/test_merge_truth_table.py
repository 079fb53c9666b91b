"""Every pair of things that two sides can do to one entity, node or edge, and what merging them gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from branch_writes import SCHEMA, delete, knows, people, state
from omnigraph_engine.branches.merge import MergeOutcome
from omnigraph_engine.errors import MergeConflict
from omnigraph_engine.graph import Graph

CONFLICT = "conflict"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Kind:
    """A node or edge type, one entity of it, and what the entity is after each thing that a side can do."""

    table_key: str
    columns: tuple[str, ...]
    table: Callable[..., pa.Table]
    after: Mapping[str, Row | None]
    made: Mapping[str, Row | None]  # of an entity that there was not

    @property
    def name(self) -> str:
        return self.table_key.split(":")[1]

    @property
    def base(self) -> Row:
        row = self.after["nothing"]
        assert row is not None
        return row


NODE = Kind(
    "node:Person",
    ("name", "age", "city"),
    people,
    {
        "nothing": ("x", 1, "here"),
        "rewrite": ("x", 1, "here"),
        "one property": ("x", 2, "here"),
        "the same property": ("x", 3, "here"),
        "another property": ("x", 1, "there"),
        "delete": None,
        "delete and insert": ("x", 9, "again"),
    },
    {"nothing": None, "insert": ("n", 1, "a"), "insert another": ("n", 2, "a")},
)
EDGE = Kind(
    "edge:Knows",
    ("id", "src", "dst", "since"),
    knows,
    {
        "nothing": ("e", "other", "bystander", 1),
        "rewrite": ("e", "other", "bystander", 1),
        "one property": ("e", "other", "bystander", 2),
        "the same property": ("e", "other", "bystander", 3),
        "another property": ("e", "other", "other", 1),
        "the source": ("e", "bystander", "bystander", 1),
        "delete": None,
        "delete and insert": ("e", "bystander", "other", 9),
    },
    {"nothing": None, "insert": ("n", "other", "other", 1), "insert another": ("n", "other", "bystander", 1)},
)
KINDS = {"node": NODE, "edge": EDGE}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Graph]:
    """A graph for what the source does to a kind of entity: one for all cells would have very many branches."""

    @cache
    def made(_name: str, _source: str) -> Graph:
        graph = Graph.create(tmp_path_factory.mktemp("truth") / "g", SCHEMA)
        graph.load({"Person": people(NODE.base, ("other", 0, ""), ("bystander", 0, ""))})
        graph.load({"Knows": knows(EDGE.base, ("f", "other", "other", 0))})
        return graph

    return made


def _do(graph: Graph, branch: str, kind: Kind, deed: str, row: Row | None) -> None:
    if deed == "nothing":
        return
    if deed.startswith("delete"):
        delete(graph, branch, {kind.table_key: [kind.base[0]]})
    if row is not None:
        graph.load({kind.name: kind.table(row)}, branch=branch, mode="append" if "insert" in deed else "merge")


def expected(kind: Kind, source: str, target: str, granularity: str) -> Row | str | None:
    """What the entity is afterwards, by the rule itself: base, both sides, and nothing of how it is stored."""
    theirs, ours = kind.after[source], kind.after[target]
    if theirs in (kind.base, ours):
        return ours
    if ours == kind.base:
        return theirs
    if theirs is None or ours is None or granularity == "row":
        return CONFLICT
    values = list(zip(kind.base, theirs, ours, strict=True))
    if any(their not in (base, our) and our != base for base, their, our in values):
        return CONFLICT
    return tuple(our if their == base else their for base, their, our in values)


def _cells() -> list[tuple[str, str, str, str]]:
    cells = []
    for name, kind in KINDS.items():
        cells += [(name, source, target, "row") for source in kind.after for target in kind.after]
        # Properties only matter where both sides changed some and left the entity.
        changes = [deed for deed, row in kind.after.items() if row not in (None, kind.base)]
        cells += [(name, source, target, "property") for source in changes for target in changes]
    return cells


@pytest.mark.parametrize(("name", "source", "target", "granularity"), _cells())
def test_an_entity_after_both_sides_did_something(
    graphs: Callable[[str, str], Graph], name: str, source: str, target: str, granularity: str
) -> None:
    kind, graph = KINDS[name], graphs(name, source)
    ours, theirs = (f"{side}-{name}-{source}-{target}-{granularity}".replace(" ", "_") for side in ("ours", "theirs"))
    for branch, deed in ((ours, target), (theirs, source)):
        graph.branches.create(branch)
        _do(graph, branch, kind, deed, kind.after[deed])
    outcome = expected(kind, source, target, granularity)
    if outcome == CONFLICT:
        told = "delete against update" if None in (kind.after[source], kind.after[target]) else "divergent update"
        _refused(graph, kind, theirs, ours, granularity, told)
        _resolved(graph, kind, theirs, ours, granularity, {"ours": kind.after[target], "theirs": kind.after[source]})
        return
    graph.merge(theirs, into=ours, granularity=granularity)
    assert _row(graph, ours, kind) == outcome
    assert graph.merge(theirs, into=ours).outcome is MergeOutcome.UP_TO_DATE
    assert graph.snapshot(branch=ours).table(kind.name).count() == len(state(graph, ours)[kind.name])


@pytest.mark.parametrize("granularity", ["row", "property"])
@pytest.mark.parametrize("target", NODE.made)
@pytest.mark.parametrize("source", NODE.made)
@pytest.mark.parametrize("name", KINDS)
def test_an_entity_that_one_side_or_both_make(
    graphs: Callable[[str, str], Graph], name: str, source: str, target: str, granularity: str
) -> None:
    kind, graph = KINDS[name], graphs(name, source)
    ours, theirs = (
        f"new-{side}-{name}-{source}-{target}-{granularity}".replace(" ", "_") for side in ("ours", "theirs")
    )
    for branch, deed in ((ours, target), (theirs, source)):
        graph.branches.create(branch)
        _do(graph, branch, kind, deed, kind.made[deed])
    mine, other = kind.made[target], kind.made[source]
    if None not in (mine, other) and mine != other:
        _refused(graph, kind, theirs, ours, granularity, "divergent insert")
        _resolved(graph, kind, theirs, ours, granularity, {"ours": mine, "theirs": other})
        return
    graph.merge(theirs, into=ours, granularity=granularity)
    assert _row(graph, ours, kind, "n") == (other if mine is None else mine)


def _refused(graph: Graph, kind: Kind, theirs: str, ours: str, granularity: str, told: str) -> None:
    before = state(graph, ours)
    with pytest.raises(MergeConflict) as caught:
        graph.merge(theirs, into=ours, granularity=granularity)
    conflicts = caught.value.conflicts
    assert [(row["type"], row["kind"]) for row in conflicts.to_pylist()] == [(kind.name, told)]
    assert state(graph, ours) == before


def _resolved(
    graph: Graph, kind: Kind, theirs: str, ours: str, granularity: str, rows: Mapping[str, Row | None]
) -> None:
    for side, row in rows.items():
        branch = f"{ours}-{side}"
        graph.branches.create(branch, from_=ours)
        result = graph.merge(theirs, into=branch, granularity=granularity, on_conflict={kind.name: side})
        assert result.resolved["resolution"].to_pylist() == [side]
        assert _row(graph, branch, kind, result.resolved["id"][0].as_py()) == row


def _row(graph: Graph, branch: str, kind: Kind, entity: str | None = None) -> Row | None:
    row = state(graph, branch)[kind.name].get(entity or kind.base[0])
    return None if row is None else tuple(row[column] for column in kind.columns)
