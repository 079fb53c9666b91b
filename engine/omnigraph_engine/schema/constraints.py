"""The one order of constraints that the schema's hash is taken over (FORMAT 5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from omnigraph_engine.schema.model import Bound, Check, Constraint, Index, Key, Range, Unique


def canonical(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """The same constraints in canonical form: columns sorted and unique, sorted by text key, no duplicates."""
    # By key and not by equality: bounds 0 and 0.0 are equal in Python but two different constraints on disk.
    by_key = {sort_key(constraint): constraint for constraint in map(_with_sorted_columns, constraints)}
    return tuple(by_key[key] for key in sorted(by_key))


def sort_key(constraint: Constraint) -> str:
    """The text that orders constraints, spelled as OmniGraph's Rust code spells it."""
    if isinstance(constraint, Range):
        return f"range:{constraint.property}:{_rust_debug(constraint.min)}:{_rust_debug(constraint.max)}"
    if isinstance(constraint, Check):
        return f"check:{constraint.property}:{constraint.pattern}"
    return f"{type(constraint).__name__.lower()}:{','.join(constraint.columns)}"


def _with_sorted_columns(constraint: Constraint) -> Constraint:
    if isinstance(constraint, (Key, Unique, Index)):
        return type(constraint)(tuple(sorted(set(constraint.columns))))
    return constraint


def _rust_debug(bound: Bound) -> str:
    if bound is None:
        return "None"
    if isinstance(bound, int):
        return f"Some(Integer({bound}))"
    # Both languages print the shortest digits and switch to an exponent at the same magnitudes; Rust writes the
    # exponent without plus sign and leading zero.
    return f"Some(Float({re.sub(r'e([+-]?)0*', _rust_exponent, repr(bound))}))"


def _rust_exponent(exponent: re.Match[str]) -> str:
    return "e-" if exponent[1] == "-" else "e"
