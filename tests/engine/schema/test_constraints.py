"""The canonical order of constraints: the bytes of the schema hash depend on it."""

from __future__ import annotations

import pytest
from omnigraph_engine.schema.constraints import canonical, sort_key
from omnigraph_engine.schema.model import Bound, Check, Constraint, Index, Key, Range, Unique


@pytest.mark.parametrize(
    ("constraint", "key"),
    [
        (Key(("a", "b")), "key:a,b"),
        (Unique(("dst", "src")), "unique:dst,src"),
        (Index(("a",)), "index:a"),
        (Check("code", "^[A-Z]:"), "check:code:^[A-Z]:"),
        (Range("age", 0, None), "range:age:Some(Integer(0)):None"),
        (Range("age", None, -7), "range:age:None:Some(Integer(-7))"),
    ],
)
def test_the_sort_key_is_the_text_of_the_format(constraint: Constraint, key: str) -> None:
    assert sort_key(constraint) == key


@pytest.mark.parametrize(
    ("bound", "spelled"),
    [
        (1.5, "Some(Float(1.5))"),
        (1.0, "Some(Float(1.0))"),
        (-0.0, "Some(Float(-0.0))"),
        (0.0001, "Some(Float(0.0001))"),
        (0.00001, "Some(Float(1e-5))"),
        (-2.5e-10, "Some(Float(-2.5e-10))"),
        (1e15, "Some(Float(1000000000000000.0))"),
        (1e16, "Some(Float(1e16))"),
        (1e21, "Some(Float(1e21))"),
        (1.7976931348623157e308, "Some(Float(1.7976931348623157e308))"),
    ],
)
def test_a_float_bound_is_spelled_as_rust_debug_spells_it(bound: Bound, spelled: str) -> None:
    assert sort_key(Range("x", bound, None)) == f"range:x:{spelled}:None"


def test_constraints_are_ordered_by_their_text_keys() -> None:
    unique, range_, key, index, check = (
        Unique(("a",)),
        Range("a", 1, 2),
        Key(("a",)),
        Index(("a",)),
        Check("a", "x"),
    )
    assert canonical([unique, range_, key, index, check]) == (check, index, key, range_, unique)


def test_ranges_are_ordered_by_text_and_not_by_number() -> None:
    ten, nine, open_ = Range("a", 10, None), Range("a", 9, None), Range("a", None, 1)
    assert canonical([nine, open_, ten]) == (open_, ten, nine)


def test_columns_are_sorted_and_unique_and_equal_constraints_kept_once() -> None:
    assert canonical([Unique(("b", "a", "b")), Unique(("a", "b"))]) == (Unique(("a", "b")),)


def test_an_integer_and_a_float_bound_of_equal_value_stay_two_constraints() -> None:
    assert [sort_key(constraint) for constraint in canonical([Range("a", 0, 1), Range("a", 0.0, 1)])] == [
        "range:a:Some(Float(0.0)):Some(Integer(1))",
        "range:a:Some(Integer(0)):Some(Integer(1))",
    ]
