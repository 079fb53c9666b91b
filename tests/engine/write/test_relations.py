"""The rules between rows: keys, ``@unique``, endpoints and ``@card``, in every mode and against a naive oracle."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omnigraph_engine.errors import (
    CardinalityViolation,
    ConstraintViolation,
    DuplicateKey,
    MissingEndpoint,
    UniqueViolation,
    VersionConflict,
)
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables import buckets, numbers
from omnigraph_engine.write import relations
from omnigraph_engine.write.load import LoadMode

SCHEMA = """
node Person {
    name: String @key
    email: String? @unique
    first: String?
    last: String?
    tags: [String]? @unique
    at: DateTime? @unique
    @unique(first, last)
}
node Company { name: String @key }
edge Knows: Person -> Person { @unique(src, dst) }
edge Likes: Person -> Person @card(0..2)
edge WorksAt: Person -> Company @card(1..1)
"""
Row = dict[str, Any]
Load = tuple[str, list[Row], str]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.create(tmp_path / "graph.omni", SCHEMA)


def person(name: str, **more: Any) -> Row:
    return {"name": name, **more}


def edge(source: str, target: str, name: str | None = None) -> Row:
    return {"id": name or f"{source}-{target}", "src": source, "dst": target}


PERSON = pa.schema(
    [
        ("name", pa.string()),
        ("email", pa.string()),
        ("first", pa.string()),
        ("last", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("ms")),
    ]
)
COMPANY = pa.schema([("name", pa.string())])
EDGE = pa.schema([("id", pa.string()), ("src", pa.string()), ("dst", pa.string())])
SCHEMAS = {"Person": PERSON, "Company": COMPANY}


def load(graph: Graph, *loads: Load) -> None:
    """Several loads, one commit."""
    with graph.transaction() as transaction:
        for name, rows, mode in loads:
            transaction.load(name, pa.Table.from_pylist(rows, schema=SCHEMAS.get(name, EDGE)), mode)


def refused(graph: Graph, error: type[ConstraintViolation], *loads: Load) -> dict[str, Any]:
    """The details of the violation; nothing has moved."""
    before = graph.snapshot().version
    with pytest.raises(ConstraintViolation) as caught:
        load(graph, *loads)
    assert type(caught.value) is error
    assert graph.snapshot().version == before
    details = caught.value.details
    assert details["table_key"] in str(caught.value)
    assert repr(details["values"][0]) in str(caught.value)
    return details


def broken(type_name: str, name: str, rule: str, *values: Any) -> dict[str, Any]:
    kind = "node" if type_name in SCHEMAS else "edge"
    return {
        "type": type_name,
        "table_key": f"{kind}:{type_name}",
        "property": name,
        "rule": rule,
        "count": len(values),
        "values": list(values),
    }


# -- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_an_id_may_occur_once_in_the_data(graph: Graph, mode: str) -> None:
    rows = [person("Ada"), person("Bob"), person("Ada")]
    assert refused(graph, DuplicateKey, ("Person", rows, mode)) == broken("Person", "id", "key", "Ada")


def test_an_id_that_exists_may_occur_once_in_the_data_of_a_merge(graph: Graph) -> None:
    load(graph, ("Person", [person('A"da')], "append"))
    rows = [person('A"da'), person("Bob"), person('A"da')]
    assert refused(graph, DuplicateKey, ("Person", rows, "merge")) == broken("Person", "id", "key", 'A"da')


def test_an_id_may_occur_once_in_all_parts_of_an_append(graph: Graph) -> None:
    first, second = ("Person", [person("Ada")], "append"), ("Person", [person("Ada")], "append")
    assert refused(graph, DuplicateKey, first, second) == broken("Person", "id", "key", "Ada")


def test_an_id_that_exists_is_refused_by_append_alone(graph: Graph) -> None:
    load(graph, ("Person", [person("Ada"), person("O'Hara"), person("back\\slash")], "append"))
    for name in ("Ada", "O'Hara", "back\\slash"):
        found = refused(graph, DuplicateKey, ("Person", [person("Bob"), person(name)], "append"))
        assert found == broken("Person", "id", "key", name)
    load(graph, ("Person", [person("Ada"), person("Bob")], "merge"))
    load(graph, ("Person", [person("Ada")], "overwrite"))


def test_edge_ids_are_keys_too(graph: Graph) -> None:
    load(graph, ("Person", [person("Ada")], "append"), ("Likes", [edge("Ada", "Ada", "e")], "append"))
    assert refused(graph, DuplicateKey, ("Likes", [edge("Ada", "Ada", "e")], "append"))["values"] == ["e"]


# -- @unique ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize(
    ("name", "value"), [("email", "a@b"), ("tags", ["x", "y"]), ("tags", []), ("at", 86_400_001)], ids=str
)
def test_a_unique_value_may_occur_once_in_the_data(graph: Graph, mode: str, name: str, value: Any) -> None:
    rows = [person("Ada", **{name: value}), person("Bob", **{name: value})]
    found = refused(graph, UniqueViolation, ("Person", rows, mode))
    assert (found["type"], found["property"], found["rule"], found["count"]) == ("Person", name, "unique", 1)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_unique_value_may_occur_once_in_the_data_and_the_graph(graph: Graph, mode: str) -> None:
    load(graph, ("Person", [person("Ada", email="a@b", at=1), person("Bob", email="b@b")], "append"))
    found = refused(graph, UniqueViolation, ("Person", [person("Cleo", email="a@b")], mode))
    assert found == broken("Person", "email", "unique", "a@b")
    load(graph, ("Person", [person("Cleo", email="c@b", at=2)], mode))
    load(graph, ("Person", [person("Dora", email="a@b")], "overwrite"))


def test_rows_of_a_merge_may_keep_swap_and_hand_over_their_unique_values(graph: Graph) -> None:
    load(graph, ("Person", [person("Ada", email="a"), person("Bob", email="b"), person("Cleo", email="c")], "append"))
    load(graph, ("Person", [person("Ada", email="a")], "merge"))
    load(graph, ("Person", [person("Ada", email="b"), person("Bob", email="a")], "merge"))
    load(graph, ("Person", [person("Ada", email=None), person("Dora", email="b")], "merge"))
    found = refused(graph, UniqueViolation, ("Person", [person("Ada", email="c"), person("Bob", email="x")], "merge"))
    assert found["values"] == ["c"]


def test_a_group_is_unique_as_a_whole_and_a_null_in_it_exempts_the_row(graph: Graph) -> None:
    load(graph, ("Person", [person("1", first="A", last="B"), person("2", first="A", last="C")], "append"))
    load(graph, ("Person", [person("3", first="A"), person("4", first="A"), person("5"), person("6")], "append"))
    found = refused(graph, UniqueViolation, ("Person", [person("7", first="A", last="B")], "append"))
    assert (found["property"], found["count"]) == ("first, last", 1)


def test_edges_may_be_unique_by_their_ends(graph: Graph) -> None:
    load(graph, ("Person", [person("Ada"), person("Bob")], "append"), ("Knows", [edge("Ada", "Bob")], "append"))
    load(graph, ("Knows", [edge("Bob", "Ada")], "append"))
    found = refused(graph, UniqueViolation, ("Knows", [edge("Ada", "Bob", "again")], "append"))
    assert (found["type"], found["property"]) == ("Knows", "dst, src")
    load(graph, ("Knows", [edge("Ada", "Bob")], "merge"))


# -- endpoints ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("role", ["src", "dst"])
def test_both_ends_of_an_edge_must_exist(graph: Graph, mode: str, role: str) -> None:
    load(graph, ("Person", [person("Ada")], "append"))
    row = edge("Ghost", "Ada") if role == "src" else edge("Ada", "Ghost")
    assert refused(graph, MissingEndpoint, ("Likes", [row], mode)) == broken("Likes", role, role, "Ghost")


def test_ends_may_come_with_their_edges_in_any_order(graph: Graph) -> None:
    load(graph, ("Knows", [edge("Ada", "Bob")], "append"), ("Person", [person("Ada"), person("Bob")], "append"))
    load(graph, ("Knows", [edge("Bob", "Cleo")], "merge"), ("Person", [person("Cleo")], "merge"))


def test_the_end_must_be_of_the_right_type(graph: Graph) -> None:
    load(graph, ("Person", [person("Ada")], "append"), ("Company", [{"name": "Acme"}], "append"))
    assert refused(graph, MissingEndpoint, ("WorksAt", [edge("Ada", "Ada")], "append"))["values"] == ["Ada"]


REMAINING: list[tuple[str, list[Load], bool]] = [
    ("alone", [], False),
    ("with an edge appended", [("Likes", [edge("Ada", "Ada")], "append")], False),
    ("with another edge merged", [("Likes", [edge("Ada", "Ada")], "merge")], False),
    ("with the edge itself moved by a merge", [("Likes", [edge("Ada", "Ada", "Ada-Bob")], "merge")], True),
    ("with the edge merged as it was", [("Likes", [edge("Ada", "Bob")], "merge")], False),
    ("with the edges overwritten", [("Likes", [edge("Ada", "Ada")], "overwrite")], True),
    ("with the edges overwritten as they were", [("Likes", [edge("Ada", "Bob")], "overwrite")], False),
]


@pytest.mark.parametrize(("loads", "allowed"), [case[1:] for case in REMAINING], ids=[case[0] for case in REMAINING])
def test_nodes_that_remaining_edges_need_cannot_be_overwritten_away(
    graph: Graph, loads: list[Load], *, allowed: bool
) -> None:
    load(graph, ("Person", [person("Ada"), person("Bob")], "append"), ("Likes", [edge("Ada", "Bob")], "append"))
    change: Load = ("Person", [person("Ada")], "overwrite")
    if allowed:
        load(graph, change, *loads)
        assert graph.snapshot().table("Likes").to_arrow()["dst"].to_pylist() == ["Ada"]
    else:
        assert refused(graph, MissingEndpoint, change, *loads) == broken("Likes", "dst", "dst", "Bob")


# -- @card --------------------------------------------------------------------------------------------------


@pytest.fixture
def working(graph: Graph) -> Graph:
    """Ada and Bob work somewhere, Cleo nowhere."""
    load(
        graph,
        ("Person", [person("Ada"), person("Bob"), person("Cleo")], "append"),
        ("Company", [{"name": "Acme"}, {"name": "Brno"}], "append"),
        ("WorksAt", [edge("Ada", "Acme", "a"), edge("Bob", "Acme", "b")], "append"),
    )
    return graph


def test_a_source_may_not_have_more_edges_than_allowed(working: Graph) -> None:
    found = refused(working, CardinalityViolation, ("WorksAt", [edge("Ada", "Brno", "x")], "append"))
    assert found == {**broken("WorksAt", "src", "card", "Ada"), "counts": [2]}
    rows = [edge("Ada", "Bob", str(number)) for number in range(3)]
    for mode in ("append", "merge", "overwrite"):
        assert refused(working, CardinalityViolation, ("Likes", rows, mode))["counts"] == [3]
    load(working, ("Likes", rows[:2], "append"))
    assert refused(working, CardinalityViolation, ("Likes", rows[2:], "merge"))["counts"] == [3]


def test_a_merge_that_replaces_an_edge_does_not_add_one(working: Graph) -> None:
    load(working, ("WorksAt", [edge("Ada", "Brno", "a")], "merge"))


def test_a_source_that_an_edge_left_counts_too(working: Graph) -> None:
    found = refused(working, CardinalityViolation, ("WorksAt", [edge("Cleo", "Acme", "a")], "merge"))
    assert found == {**broken("WorksAt", "src", "card", "Ada"), "counts": [0]}
    load(working, ("WorksAt", [edge("Bob", "Acme", "a"), edge("Ada", "Acme", "b")], "merge"))


def test_a_source_that_an_overwrite_leaves_without_edges_counts_too(working: Graph) -> None:
    found = refused(working, CardinalityViolation, ("WorksAt", [edge("Bob", "Acme")], "overwrite"))
    assert found == {**broken("WorksAt", "src", "card", "Ada"), "counts": [0]}
    without_ada: Load = ("Person", [person("Bob"), person("Cleo")], "overwrite")
    load(working, ("WorksAt", [edge("Bob", "Acme")], "overwrite"), without_ada)


@pytest.mark.parametrize("edges", [0, 1])
def test_nodes_are_not_overwritten_away_under_edges_that_come_at_the_same_time(graph: Graph, edges: int) -> None:
    load(graph, ("Person", [person("Ada"), person("Bob"), person("Cy")], "append"))
    load(graph, ("Knows", [edge("Ada", "Ada")] * edges, "append")) if edges else None
    replacing = graph.begin_load()
    staged = replacing.stage(
        "node:Person",
        pa.Table.from_pylist([person("Ada"), person("Cy")], schema=PERSON).to_batches(),
        LoadMode.OVERWRITE,
    )
    assert staged is not None
    load(graph, ("Knows", [edge("Bob", "Cy")], "append"))
    with pytest.raises((VersionConflict, MissingEndpoint)):
        replacing.commit([staged])
    assert stored(graph)["Person"] == {"Ada", "Bob", "Cy"}


# -- what a violation says ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spilled", [False, True], ids=["in memory", "on disk"])
def test_a_violation_shows_the_first_values_and_counts_all(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, *, spilled: bool
) -> None:
    if spilled:
        monkeypatch.setattr(buckets, "HELD_ROWS", 3)
        monkeypatch.setattr(numbers, "HELD_ROWS", 3)
    many = [f"p{number}" for number in range(50)]
    twice = [person(name, email=f"{number % 25}") for number, name in enumerate(many)]
    load(graph, ("Person", [person(name) for name in many], "append"))
    cases: list[tuple[int, type[ConstraintViolation], Load]] = [
        (50, DuplicateKey, ("Person", [person(name) for name in many], "append")),
        (50, DuplicateKey, ("Company", [{"name": name} for name in many * 2], "append")),
        (25, UniqueViolation, ("Person", twice, "merge")),
        (50, MissingEndpoint, ("Likes", [edge("p0", f"ghost{name}") for name in many], "append")),
        (50, CardinalityViolation, ("Likes", [edge(name, "p1", name + n) for name in many for n in "abc"], "append")),
    ]
    for count, error, bad in cases:
        found = refused(graph, error, bad)
        assert (found["count"], len(found["values"]), len(set(found["values"]))) == (count, 20, 20)


@pytest.mark.parametrize(("pushed", "small"), [(0, 0), (256, 10_000)], ids=["streamed", "looked up"])
def test_large_and_small_writes_are_judged_alike(
    working: Graph, monkeypatch: pytest.MonkeyPatch, pushed: int, small: int
) -> None:
    monkeypatch.setattr(relations, "PUSHED_KEYS", pushed)
    monkeypatch.setattr(relations, "SMALL_WRITE", small)
    refused(working, DuplicateKey, ("Person", [person("Ada")], "append"))
    refused(working, MissingEndpoint, ("Likes", [edge("Ada", "Ghost")], "append"))
    refused(working, CardinalityViolation, ("WorksAt", [edge("Ada", "Brno", "x")], "append"))
    refused(working, CardinalityViolation, ("WorksAt", [edge("Cleo", "Brno", "a")], "merge"))
    load(working, ("Person", [person("Dora", email="d")], "append"), ("WorksAt", [edge("Dora", "Acme")], "append"))
    refused(working, UniqueViolation, ("Person", [person("Eve", email="d")], "merge"))


# -- the oracle ---------------------------------------------------------------------------------------------

State = dict[str, dict[str, Row]]
EDGES = {"Knows": ("Person", "Person"), "Likes": ("Person", "Person"), "WorksAt": ("Person", "Company")}
CARDS = {"Likes": (0, 2), "WorksAt": (1, 1)}
UNIQUES = {"Person": [("email",), ("first", "last")], "Knows": [("src", "dst")]}


def identity(row: Row) -> str:
    return str(row["id"] if "id" in row else row["name"])


def verdict(state: State, loads: list[Load]) -> tuple[State, set[type[ConstraintViolation]]]:
    """The graph after the loads, and every rule that it would break: by looking at all of it."""
    after = {name: dict(rows) for name, rows in state.items()}
    found: set[type[ConstraintViolation]] = set()
    touched: dict[str, set[str]] = defaultdict(set)
    for name, rows, mode in loads:
        ids = [identity(row) for row in rows]
        if len(set(ids)) < len(ids) or (mode == "append" and set(ids) & set(state[name])):
            found.add(DuplicateKey)
        replaced = state[name] if mode == "overwrite" else {one: state[name][one] for one in ids if one in state[name]}
        touched[name] = {row.get("src", "") for row in (*rows, *replaced.values())}
        after[name] = {**({} if mode == "overwrite" else state[name]), **{identity(row): row for row in rows}}
    if any(repeats(after[name], group) for name, groups in UNIQUES.items() for group in groups):
        found.add(UniqueViolation)
    for name, (sources, targets) in EDGES.items():
        if any(row["src"] not in after[sources] or row["dst"] not in after[targets] for row in after[name].values()):
            found.add(MissingEndpoint)
    for name, (low, high) in CARDS.items():
        counts = Counter(row["src"] for row in after[name].values())
        if any(not low <= counts[source] <= high for source in touched[name] & set(after["Person"])):
            found.add(CardinalityViolation)
    return after, found


def repeats(rows: dict[str, Row], group: tuple[str, ...]) -> bool:
    values = [tuple(row.get(column) for column in group) for row in rows.values()]
    whole = [value for value in values if None not in value]
    return len(set(whole)) < len(whole)


NAMES = st.sampled_from(["a", "b", "c", "d'"])
VALUES = st.sampled_from([None, None, "x", "y"])
PEOPLE = st.builds(person, NAMES, email=VALUES, first=VALUES, last=VALUES)
COMPANIES = st.builds(lambda name: {"name": name}, NAMES)
LINKS = st.builds(edge, NAMES, NAMES, st.sampled_from(["1", "2", "3", "4", "5"]))


@st.composite
def commits(draw: st.DrawFn) -> list[Load]:
    chosen = draw(st.lists(st.sampled_from(["Person", "Company", *EDGES]), min_size=1, max_size=4, unique=True))
    loads: list[Load] = []
    for name in chosen:
        rows = {"Person": PEOPLE, "Company": COMPANIES}.get(name, LINKS)
        mode = draw(st.sampled_from(["append", "merge", "merge", "overwrite"]))
        distinct = None if draw(st.integers(0, 9)) == 0 else identity
        loads.append((name, draw(st.lists(rows, min_size=1, max_size=5, unique_by=distinct)), mode))
    return loads


def stored(graph: Graph) -> dict[str, set[str]]:
    snapshot = graph.snapshot()
    return {key.split(":")[1]: set(table.to_arrow(["id"])["id"].to_pylist()) for key, table in snapshot.tables.items()}


@settings(max_examples=60, deadline=None)
@given(history=st.lists(commits(), min_size=1, max_size=4), spilled=st.booleans())
def test_the_checks_agree_with_looking_at_the_whole_graph(history: list[list[Load]], *, spilled: bool) -> None:
    state: State = {
        "Person": {name: person(name) for name in "abc"},
        "Company": {"a": {"name": "a"}},
        "Knows": {},
        "Likes": {},
        "WorksAt": {},
    }
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        if spilled:
            patched.setattr(buckets, "HELD_ROWS", 1)
            patched.setattr(buckets, "BUCKETS", 3)
            patched.setattr(numbers, "HELD_ROWS", 0)
            patched.setattr(numbers, "BUCKET_ROWS", 1)
            patched.setattr(relations, "PUSHED_KEYS", 0)
        graph = Graph.create(Path(folder) / "graph.omni", SCHEMA)
        load(graph, *((name, list(rows.values()), "append") for name, rows in state.items() if rows))
        for loads in history:
            after, rules = verdict(state, loads)
            if rules:
                with pytest.raises(tuple(rules)):
                    load(graph, *loads)
            else:
                load(graph, *loads)
                state = after
            assert stored(graph) == {name: set(rows) for name, rows in state.items()}
