"""What cannot be loaded is refused by a typed error, before anything durable happens, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from omnigraph_engine import failpoints
from omnigraph_engine.errors import (
    BranchNotFound,
    CardinalityViolation,
    ConstraintViolation,
    DuplicateKey,
    MissingEndpoint,
    OmnigraphError,
    ReadOnlyGraph,
    TypeMismatch,
    UnknownProperty,
    UnknownType,
)
from omnigraph_engine.failpoints import Failpoint, Moment
from omnigraph_engine.graph import Graph

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    born: Date?
    title: String
    face: Vector(3)?
}
edge Knows: Person -> Person @card(0..1)
"""


def people(*names: str, **columns: Any) -> pa.Table:
    return pa.table({"name": names, "title": ["x"] * len(names), **columns})


def knows(*pairs: tuple[str, str]) -> pa.Table:
    return pa.table({"src": [source for source, _ in pairs], "dst": [target for _, target in pairs]})


@dataclass(frozen=True)
class Bad:
    write: Callable[[Graph], object]
    error: type[OmnigraphError]
    code: str
    details: dict[str, Any]
    hint: str = ""  # a part of it


def load(**data: Any) -> Callable[[Graph], object]:
    mode = data.pop("mode", "append")
    return lambda graph: graph.load(data, mode=mode)


WRONG_LENGTH = pa.array([[1.0, 2.0]], pa.list_(pa.float32()))
CASES = {
    "unknown type": Bad(load(Persn=people("Eve")), UnknownType, "OG3004", {"type": "Persn"}, "Did you mean 'Person'?"),
    "unknown column": Bad(
        load(Person=people("Eve", agee=[1])),
        UnknownProperty,
        "OG3005",
        {"type": "Person", "property": "agee"},
        "Did you mean 'age'?",
    ),
    "wrong Arrow type": Bad(
        load(Person=people("Eve", age=["old"])), TypeMismatch, "OG4002", {"type": "Person", "property": "age"}, "cast"
    ),
    "Arrow type that no cast helps": Bad(
        load(Person=people("Eve", born=[1.5])), TypeMismatch, "OG4002", {"type": "Person", "property": "born"}
    ),
    "duplicate key in the input": Bad(
        load(Person=people("Eve", "Eve")),
        DuplicateKey,
        "OG4004",
        {"rule": "key", "count": 1, "values": ["Eve"]},
        "one row",
    ),
    "existing key on append": Bad(
        load(Person=people("Ada")), DuplicateKey, "OG4004", {"rule": "key", "count": 1, "values": ["Ada"]}, "merge"
    ),
    "duplicate of an existing key in a merge": Bad(
        load(Person=people("Ada", "Ada"), mode="merge"),
        DuplicateKey,
        "OG4004",
        {"rule": "key", "values": ["Ada"]},
        "one row",
    ),
    "missing endpoint": Bad(
        load(Knows=knows(("Bob", "Ghost"))),
        MissingEndpoint,
        "OG4005",
        {"type": "Knows", "property": "dst", "count": 1, "values": ["Ghost"]},
        "Person",
    ),
    "exceeded cardinality": Bad(
        load(Knows=knows(("Ada", "Ada"))),
        CardinalityViolation,
        "OG4007",
        {"type": "Knows", "property": "src", "rule": "card", "count": 1, "values": ["Ada"], "counts": [2]},
    ),
    "vector of the wrong length": Bad(
        load(Person=people("Eve", face=WRONG_LENGTH)),
        ConstraintViolation,
        "OG4003",
        {"type": "Person", "property": "face", "rule": "length", "count": 1},
    ),
    "null in a required column": Bad(
        load(Person=pa.table({"name": ["Eve"], "title": pa.array([None], pa.string())})),
        ConstraintViolation,
        "OG4003",
        {"type": "Person", "property": "title", "rule": "required", "count": 1, "ids": ["Eve"]},
    ),
    "required column missing": Bad(
        load(Person=pa.table({"name": ["Eve"]})),
        ConstraintViolation,
        "OG4003",
        {"type": "Person", "property": "title", "rule": "required"},
    ),
    "null in the key": Bad(
        load(Person=pa.table({"name": pa.array([None], pa.string()), "title": ["x"]})),
        ConstraintViolation,
        "OG4003",
        {"type": "Person", "property": "name", "rule": "required"},
    ),
    "bad row in the last batch of many": Bad(
        load(
            Person=pa.Table.from_batches(
                [
                    *people(*(f"p{n}" for n in range(50))).to_batches(max_chunksize=5),
                    *pa.table({"name": ["Eve"], "title": pa.array([None], pa.string())}).to_batches(),
                ]
            )
        ),
        ConstraintViolation,
        "OG4003",
        {"type": "Person", "property": "title", "rule": "required", "count": 1},
    ),
    "absent branch": Bad(
        lambda graph: graph.load({"Person": people("Eve")}, branch="dve"),
        BranchNotFound,
        "OG1010",
        {"branch": "dve"},
        "dev",
    ),
    "read-only handle": Bad(
        lambda graph: Graph.open(graph.uri, "ro").load({"Person": people("Eve")}),
        ReadOnlyGraph,
        "OG1012",
        {},
        'mode="rw"',
    ),
}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.create(tmp_path / "graph.omni", SCHEMA)
    graph.load({"Person": people("Ada", "Bob"), "Knows": knows(("Ada", "Bob"))})
    lance.dataset(graph.storage.uri("__manifest")).create_branch("dev", (None, 2))
    return graph


def durable(graph: Graph) -> dict[str, int]:
    """The newest version of the manifest and of every table, published or not."""
    locations = ["__manifest", *(table.published.location for table in graph.snapshot().tables.values())]
    return {location: lance.dataset(graph.storage.uri(location)).version for location in locations}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_input_is_refused_before_anything_moves(graph: Graph, case: Bad) -> None:
    before = durable(graph)
    reached: list[Failpoint] = []

    def record(point: Failpoint, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            reached.append(point)

    with failpoints.installed(record), pytest.raises(OmnigraphError) as caught:
        case.write(graph)
    error = caught.value
    assert type(error) is case.error
    assert error.code == case.code
    assert str(error).startswith(case.code)
    assert not error.retryable
    assert case.details.items() <= error.details.items()
    assert case.hint in (error.hint or "")
    assert set(reached) <= {Failpoint.STAGE}
    assert durable(graph) == before
    assert graph.storage.list("__recovery") == []
    graph.load({"Person": people("Eve")})


def test_the_hint_for_a_wrong_type_names_the_cast_that_works(graph: Graph) -> None:
    with pytest.raises(TypeMismatch) as caught:
        graph.load({"Person": people("Eve", age=["41"])})
    assert "int32" in str(caught.value.hint)
    graph.load({"Person": people("Eve", age=pa.array(["41"]).cast(pa.int32()))})
