"""Endpoints by key: the columns are in the order in which the schema's text names the members of the key."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from omnigraph_engine.errors import InvalidArgument
from omnigraph_engine.graph import Graph
from omnigraph_engine.write.endpoints import Endpoint, Endpoints, with_endpoints

SCHEMA = """
node Person { name: String @key }
node Part { child: String  parent: String  @key(parent, child) }
node City { name: String  country: String  @key(name, country) }
edge Uses: Person -> Part
edge Lives: Person -> City
"""


@pytest.fixture(params=["created", "opened"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Graph:
    graph = Graph.create(tmp_path / "graph.omni", SCHEMA)
    return graph if request.param == "created" else Graph.open(graph.uri)


def destinations(graph: Graph, edge: str, first: str, second: str) -> list[str]:
    """The ids that an edge's ``dst`` gets from two columns with these values."""
    table = graph.schema.accepted.catalog.edges[edge]
    given = pa.RecordBatch.from_pydict({"src": ["Ada"], "one": [first], "two": [second]})
    endpoints = Endpoints(dst=Endpoint(("one", "two"), by_key=True))
    found: list[str] = with_endpoints(given, graph.schema.accepted, table, endpoints).column("dst").to_pylist()
    return found


@pytest.mark.parametrize(
    ("edge", "node", "members"), [("Uses", "Part", ("parent", "child")), ("Lives", "City", ("name", "country"))]
)
def test_the_columns_of_a_key_stand_in_the_order_of_its_declaration(
    graph: Graph, edge: str, node: str, members: tuple[str, str]
) -> None:
    """Also where both orders name a node that exists, which nothing but this order could tell apart."""
    first, second = members
    graph.load({node: pa.table({first: ["x", "y"], second: ["y", "x"]})})
    nodes = {(row[first], row[second]): row["id"] for row in graph.snapshot().table(node).to_arrow().to_pylist()}
    assert destinations(graph, edge, "x", "y") == [nodes["x", "y"]]
    assert destinations(graph, edge, "y", "x") == [nodes["y", "x"]]


def test_a_wrong_number_of_columns_is_told_the_key_as_it_was_declared(graph: Graph) -> None:
    table = graph.schema.accepted.catalog.edges["Uses"]
    given = pa.RecordBatch.from_pydict({"src": ["Ada"], "one": ["x"]})
    with pytest.raises(InvalidArgument, match=r"has 2 member\(s\), and 1 column\(s\)") as refused:
        with_endpoints(given, graph.schema.accepted, table, Endpoints(dst=Endpoint(("one",), by_key=True)))
    assert refused.value.hint == "The key is (parent, child)."
    assert refused.value.details["key"] == ["parent", "child"]
