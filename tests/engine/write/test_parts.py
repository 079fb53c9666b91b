"""What workers stage in parts and one place commits; endpoints by column; edges that are left out."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from omnigraph_engine.errors import ConstraintViolation, DuplicateKey, InvalidArgument, UnknownProperty
from omnigraph_engine.graph import Graph
from omnigraph_engine.tables import numbers
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.write.endpoints import Endpoint, Endpoints, with_endpoints
from omnigraph_engine.write.load import Load, LoadMode

SCHEMA = """
node Person { name: String @key  age: I32? }
node Place { country: String  town: String  @key(country, town) }
edge Knows: Person -> Person { since: I32? }
edge Lives: Person -> Place
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.create(tmp_path / "graph.omni", SCHEMA)
    graph.load({"Person": pa.table({"name": ["Ada", "Bob"], "age": pa.array([36, 40], pa.int32())})})
    return graph


def people(*names: str, age: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"name": list(names), "age": pa.array([age] * len(names), pa.int32())})


def knows(*pairs: tuple[str, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"src": [src for src, _ in pairs], "dst": [dst for _, dst in pairs]})


def elsewhere(load: Load) -> Load:
    arrived: Load = pickle.loads(pickle.dumps(load))  # noqa: S301
    return arrived


def ages(graph: Graph) -> dict[str, int]:
    return {row["name"]: row["age"] for row in graph.snapshot().table("Person").to_arrow().to_pylist()}


def test_parts_of_a_merge_that_workers_staged_are_one_commit(graph: Graph) -> None:
    load = graph.begin_load()
    parts = [
        elsewhere(load).stage_part("node:Person", [people(*names)], LoadMode.MERGE)
        for names in (("Ada", "Cleo"), ("Bob",))
    ]
    staged = load.gather("node:Person", [part for part in parts if part is not None], LoadMode.MERGE)
    assert staged is not None

    receipt = load.commit([staged])

    assert ages(graph) == {"Ada": 1, "Bob": 1, "Cleo": 1}
    table = receipt.tables["node:Person"]
    assert (table.inserted, table.updated) == (1, 2)


def test_one_id_in_the_parts_of_two_workers_is_refused(graph: Graph) -> None:
    load = graph.begin_load()
    parts = [elsewhere(load).stage_part("node:Person", [people("Ada")], LoadMode.MERGE) for _ in range(2)]
    staged = load.gather("node:Person", [part for part in parts if part is not None], LoadMode.MERGE)
    assert staged is not None

    with pytest.raises(DuplicateKey, match="more than once in the data: 'Ada'"):
        load.commit([staged])
    assert ages(graph) == {"Ada": 36, "Bob": 40}


def test_overwriting_with_no_part_empties_the_type(graph: Graph) -> None:
    load = graph.begin_load()
    staged = load.gather("node:Person", [], LoadMode.OVERWRITE)
    assert staged is not None
    load.commit([staged])
    assert graph.snapshot().table("Person").count() == 0
    assert load.gather("node:Person", [], LoadMode.MERGE) is None
    assert load.gather("node:Person", [], LoadMode.APPEND) is None


@pytest.mark.parametrize("mode", list(LoadMode))
def test_edges_whose_nodes_do_not_exist_are_left_out_and_counted(graph: Graph, mode: LoadMode) -> None:
    load = graph.begin_load(skip_dangling=True)
    edges = knows(("Ada", "Bob"), ("Ada", "Zoe"), ("Zoe", "Bob"), ("Bob", "Ada"), ("Zoe", "Zed"))
    staged = load.stage("edge:Knows", [edges], mode)
    assert staged is not None

    receipt = load.commit([staged])

    assert receipt.tables["edge:Knows"].skipped == 3
    assert receipt.tables["edge:Knows"].inserted == 2
    stored = graph.snapshot().table("Knows").to_arrow(columns=["src", "dst"]).to_pylist()
    assert sorted((row["src"], row["dst"]) for row in stored) == [("Ada", "Bob"), ("Bob", "Ada")]


def test_edges_to_nodes_of_the_same_commit_are_kept(graph: Graph) -> None:
    load = graph.begin_load(skip_dangling=True)
    parts = [
        load.stage("node:Person", [people("Zoe")], LoadMode.APPEND),
        load.stage("edge:Knows", [knows(("Ada", "Zoe"))], LoadMode.APPEND),
    ]
    receipt = load.commit([part for part in parts if part is not None])
    assert receipt.tables["edge:Knows"].skipped == 0
    assert graph.snapshot().table("Knows").count() == 1


def test_when_every_edge_is_left_out_nothing_is_committed(graph: Graph) -> None:
    before = graph.snapshot().id
    load = graph.begin_load(skip_dangling=True)
    staged = load.stage("edge:Knows", [knows(("Zoe", "Zed"))], LoadMode.APPEND)
    assert staged is not None
    receipt = load.commit([staged])
    assert receipt.commit is None
    assert receipt.tables["edge:Knows"].skipped == 1
    assert graph.snapshot().id == before


def test_ids_that_the_load_made_itself_need_no_comparison(graph: Graph) -> None:
    load = graph.begin_load()
    made = load.stage("edge:Knows", [knows(("Ada", "Bob"))], LoadMode.APPEND)
    given = load.stage("edge:Knows", [knows(("Ada", "Bob")).append_column("id", pa.array(["k1"]))], LoadMode.APPEND)
    keyed = load.stage("node:Person", [people("Cleo")], LoadMode.APPEND)
    assert [staged.minted_ids for staged in (made, given, keyed) if staged is not None] == [True, False, False]
    assert made is not None
    assert StagedWrite.from_json(made.to_json()).minted_ids


def test_given_ids_of_edges_are_compared(graph: Graph) -> None:
    edge = pa.table({"id": ["k1"], "src": ["Ada"], "dst": ["Bob"]})
    graph.load({"Knows": edge})
    with pytest.raises(DuplicateKey, match="exist already: 'k1'"):
        graph.load({"Knows": edge})
    with pytest.raises(DuplicateKey, match="more than once"):
        graph.load({"Knows": pa.table({"id": ["k2", "k2"], "src": ["Ada", "Ada"], "dst": ["Bob", "Bob"]})})


def test_ids_are_compared_the_same_when_they_are_dealt_into_buckets(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "HELD_ROWS", 2)
    names = [f"p{number}" for number in range(9)]
    graph.load({"Person": pa.table({"name": names})})
    with pytest.raises(DuplicateKey) as raised:
        graph.load({"Person": pa.table({"name": [*names, "new"]})})
    assert raised.value.details["count"] == 9
    with pytest.raises(DuplicateKey) as raised:
        graph.load({"Person": pa.table({"name": ["x", "y", "x", "y", "z"]})})
    assert sorted(raised.value.details["values"]) == ["x", "y"]


def test_endpoints_are_taken_from_the_columns_that_are_named(graph: Graph) -> None:
    accepted = graph.schema.accepted
    given = pa.RecordBatch.from_pydict({"who": ["Ada"], "land": ["CZ"], "city": ["Brno"]})
    endpoints = Endpoints(Endpoint(("who",)), Endpoint(("land", "city"), by_key=True))

    edges = with_endpoints(given, accepted, accepted.catalog.edges["Lives"], endpoints)

    graph.load({"Place": pa.table({"country": ["CZ"], "town": ["Brno"]})})
    graph.load({"Lives": edges})
    assert graph.snapshot().table("Lives").to_arrow(columns=["src"]).to_pylist() == [{"src": "Ada"}]


def test_a_column_that_is_a_property_stays_one_when_an_endpoint_is_taken_from_it(graph: Graph) -> None:
    catalog = Graph.create(f"{graph.uri}.2", "node N { n: I64 @key }\nedge E: N -> N { n: I64 }").schema.accepted
    given = pa.RecordBatch.from_pydict({"n": [1], "dst": ["2"]})
    endpoints = Endpoints(Endpoint(("n",), by_key=True))
    assert with_endpoints(given, catalog, catalog.catalog.edges["E"], endpoints).to_pydict() == {
        "n": [1],
        "src": ["1"],
        "dst": ["2"],
    }


def test_endpoints_that_cannot_be_taken_are_refused(graph: Graph) -> None:
    accepted = graph.schema.accepted
    lives = accepted.catalog.edges["Lives"]
    given = pa.RecordBatch.from_pydict({"who": ["Ada"], "town": pa.array([None], pa.string())})
    with pytest.raises(UnknownProperty, match=r"no column 'whom'.*Did you mean 'who'"):
        with_endpoints(given, accepted, lives, Endpoints(Endpoint(("whom",)), Endpoint(("town",))))
    with pytest.raises(InvalidArgument, match=r"2 member\(s\), and 1 column"):
        with_endpoints(given, accepted, lives, Endpoints(Endpoint(("who",)), Endpoint(("town",), by_key=True)))
    with pytest.raises(ConstraintViolation, match="must not be null"):
        with_endpoints(given, accepted, lives, Endpoints(Endpoint(("who",)), Endpoint(("who", "town"), by_key=True)))
