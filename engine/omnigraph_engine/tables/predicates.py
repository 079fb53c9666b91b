"""Predicates as Lance reads them: SQL text."""

from __future__ import annotations

from collections.abc import Sequence


def among(column: str, values: Sequence[str]) -> str | None:
    """Rows that hold one of the values; without values None, which is all rows."""
    if not values:
        return None
    return f"{column} IN ({', '.join(_quoted(value) for value in values)})"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
