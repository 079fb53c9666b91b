from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from omnigraph_engine.errors import ConstraintViolation
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import accept_initial
from omnigraph_engine.write.checks import check_rows
from omnigraph_engine.write.conform import conform

SCHEMA = """
node Person {
    name: String
    nick: String?
    kind: enum(cat, dog)?
    age: I32?
    big: I64?
    weight: F32?
    score: F64?
    huge: U64?
    spot: Vector(2)?
    tags: [String]?
    @range(age, 0..150)
    @range(big, ..9007199254740993)
    @range(weight, 0.5..)
    @range(score, -1..1.5)
    @range(huge, 1..)
    @check(nick, "[a-z]+")
}
edge Knows: Person -> Person { how: enum(well, badly) }
"""
ACCEPTED = accept_initial(parse_catalog(SCHEMA))
PERSON = ACCEPTED.catalog.nodes["Person"]
KNOWS = ACCEPTED.catalog.edges["Knows"]


def _people(**columns: pa.Array) -> pa.RecordBatch:
    rows = len(next(iter(columns.values())))
    names = pa.array([f"n{at}" for at in range(rows)], pa.string())
    ids = pa.array([f"p{at}" for at in range(rows)], pa.string())
    return conform(pa.RecordBatch.from_pydict({"id": ids, "name": names, **columns}), ACCEPTED, PERSON)


def _broken(batch: pa.RecordBatch) -> dict[str, Any]:
    with pytest.raises(ConstraintViolation) as caught:
        check_rows(batch, PERSON)
    assert f"Person.{caught.value.details['property']}" in str(caught.value)
    return caught.value.details


def test_rows_that_keep_every_rule_pass() -> None:
    batch = _people(
        nick=pa.array(["ada", None]),
        kind=pa.array(["cat", None]),
        age=pa.array([0, 150]),
        big=pa.array([9007199254740993, None]),
        weight=pa.array([0.5, math.inf]),
        score=pa.array([-1.0, 1.5]),
        huge=pa.array([1, 2**64 - 1], pa.uint64()),
        spot=pa.array([[0.0, 1.0], None]),
        tags=pa.array([["a", None], []]),
    )

    check_rows(batch, PERSON)


def test_a_batch_without_rows_passes() -> None:
    check_rows(_people(age=pa.array([], pa.int32())), PERSON)


def test_a_null_in_a_required_column_is_refused_with_the_rows_it_is_in() -> None:
    batch = pa.RecordBatch.from_pydict({"id": ["p0", "p1", "p2"], "name": ["Ada", None, None]})

    details = _broken(conform(batch, ACCEPTED, PERSON))

    assert details == {
        "type": "Person",
        "property": "name",
        "rule": "required",
        "count": 2,
        "values": [None, None],
        "ids": ["p1", "p2"],
    }


@pytest.mark.parametrize("endpoint", ["src", "dst"])
def test_an_edge_without_an_endpoint_is_refused(endpoint: str) -> None:
    columns = {"src": pa.array(["a"]), "dst": pa.array(["b"]), "how": pa.array(["well"])}
    batch = pa.RecordBatch.from_pydict({**columns, endpoint: pa.array([None], pa.string())})

    with pytest.raises(ConstraintViolation, match=f"Knows.{endpoint} must not be null"):
        check_rows(conform(batch, ACCEPTED, KNOWS), KNOWS)


def test_a_value_outside_the_enum_is_refused_with_the_allowed_ones_in_the_message() -> None:
    batch = _people(kind=pa.array(["cat", "Dog", None, "cow"]))

    with pytest.raises(ConstraintViolation, match="must be one of cat, dog") as caught:
        check_rows(batch, PERSON)

    details = caught.value.details
    assert (details["rule"], details["count"], details["values"], details["ids"]) == (
        "enum",
        2,
        ["Dog", "cow"],
        ["p1", "p3"],
    )


@pytest.mark.parametrize(
    ("name", "values", "offending"),
    [
        ("age", pa.array([0, -1, 150, 151, None]), [-1, 151]),
        ("big", pa.array([9007199254740993, 9007199254740994]), [9007199254740994]),
        ("weight", pa.array([0.5, 0.25], pa.float32()), [0.25]),
        ("score", pa.array([1.5, 1.5000000000000002, -1.0]), [1.5000000000000002]),
        ("huge", pa.array([1, 0], pa.uint64()), [0]),
    ],
)
def test_a_value_outside_the_inclusive_bounds_is_refused(name: str, values: pa.Array, offending: list[Any]) -> None:
    details = _broken(_people(**{name: values}))

    assert (details["property"], details["rule"], details["values"]) == (name, "range", offending)


def test_nan_is_within_no_range_and_infinity_only_in_an_open_one() -> None:
    assert len(_broken(_people(weight=pa.array([math.nan, 1.0])))["values"]) == 1
    assert _broken(_people(score=pa.array([math.inf])))["values"] == [math.inf]


@pytest.mark.parametrize(
    ("bounds", "refused"),
    [
        ("0.5..", [0]),
        ("..0.5", [1, 2]),
        ("3000000000..", [0, 1, 2]),
        ("..-3000000000", [0, 1, 2]),
        ("-1000000000000000000.5..1000000000000000000.5", []),
    ],
)
def test_integers_are_compared_exactly_with_fractional_and_unreachable_bounds(bounds: str, refused: list[int]) -> None:
    accepted = accept_initial(parse_catalog(f"node T {{ n: I32?  @range(n, {bounds}) }}"))
    table = accepted.catalog.nodes["T"]
    batch = conform(pa.RecordBatch.from_pydict({"n": pa.array([0, 1, 2, None], pa.int32())}), accepted, table)

    if not refused:
        check_rows(batch, table)
        return
    with pytest.raises(ConstraintViolation) as caught:
        check_rows(batch, table)
    assert caught.value.details["values"] == refused


def test_a_check_matches_anywhere_in_the_text() -> None:
    details = _broken(_people(nick=pa.array(["1ada2", "ADA", None, ""])))

    assert (details["property"], details["rule"], details["values"]) == ("nick", "check", ["ADA", ""])


def test_a_vector_needs_finite_elements_and_the_error_shows_the_first_bad_one_of_each_row() -> None:
    spots = [[0.0, 1.0], None, [0.0, None], [math.inf, math.nan], [2.0, 3.0]]
    batch = _people(spot=pa.array(spots, pa.list_(pa.float32(), 2)))

    for rows in (batch, batch.slice(1)):
        details = _broken(rows)
        assert (details["rule"], details["count"]) == ("finite", 2)
        assert details["values"] == [None, math.inf]
        assert details["ids"] == ["p2", "p3"]


def test_an_error_counts_every_offending_row_but_carries_twenty_values() -> None:
    details = _broken(_people(age=pa.array([-1] * 45)))

    assert (details["count"], len(details["values"]), len(details["ids"])) == (45, 20, 20)


def test_a_long_value_is_shortened_in_the_message_and_whole_in_the_details() -> None:
    batch = _people(nick=pa.array(["A" * 10_000]))

    with pytest.raises(ConstraintViolation) as caught:
        check_rows(batch, PERSON)

    assert len(str(caught.value)) < 300
    assert caught.value.details["values"] == ["A" * 10_000]
