"""Predicates as Lance reads them: SQL text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lance import LanceDataset

from omnigraph_engine.errors import InvalidArgument
from omnigraph_engine.tables.exact import lance_errors, one_line

_PARSER = "sql parser error"
_FOUND = re.compile(r"found: (\S+?)( at Line.*)?\)$")


class Whole(str):
    """A predicate that the engine has made itself: there is nothing to check about it."""

    __slots__ = ()


def among(column: str, values: Sequence[str]) -> str | None:
    """Rows that hold one of the values; without values None, which is all rows."""
    if not values:
        return None
    return Whole(f"{column} IN ({', '.join(_quoted(value) for value in values)})")


def check_filter(dataset: LanceDataset, text: str | None, table_key: str) -> None:
    """Raises ``InvalidArgument`` unless the text is one whole condition over the columns of the dataset.

    Lance reads a filter as far as it understands it and drops the rest: of ``age > 1; AND name = 'Ada'`` and of
    ``age > 1 name = 'Ada'`` alike it keeps ``age > 1``. Put into brackets the rest is an error, because what follows the part
    that was read is not the closing one; into two kinds of them, because the filter may hold one that closes the first.
    """
    if text is None or isinstance(text, Whole):
        return
    if not isinstance(text, str):
        raise InvalidArgument(f"The filter is {text!r}, not text.", hint=_HINT)
    with lance_errors(f"Reading {table_key}"):
        fault = _fault(dataset, text)
        if fault is not None:
            raise InvalidArgument(f"The filter {text!r} does not work on {table_key}: {fault}", hint=_HINT)
        dropped = _fault(dataset, f"(\n{text}\n)")
        if dropped is None:
            listed = _fault(dataset, f"[\n{text}\n]") or ""
            dropped = listed if _PARSER in listed else None  # lists are parsed, and then refused for what they hold
    if dropped is not None:
        found = _FOUND.search(dropped)
        place = f" from '{found[1]}' on" if found else ""
        raise InvalidArgument(f"The filter {text!r} is not one condition: it could not be read{place}.", hint=_HINT)


_HINT = "Filters are one SQL condition over the table's columns, e.g. \"age > 30 AND name = 'Ada'\"."


def _fault(dataset: LanceDataset, text: str) -> str | None:
    """What Lance has against a filter, or None. Nothing is read."""
    try:
        dataset.scanner(filter=text).explain_plan()
    except ValueError as error:
        return one_line(ValueError(str(error).replace("\n", " ")))
    except RuntimeError:  # its planner knows that there is such a thing, and gives up
        return "Lance cannot evaluate it."
    return None


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
