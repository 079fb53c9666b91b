"""Places in a schema text, and errors that show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from omnigraph_engine.errors import OmnigraphError

Located = TypeVar("Located", bound=OmnigraphError)


@dataclass(frozen=True)
class Span:
    """A stretch of source text: where it starts for people (from 1) and its offsets for slicing."""

    line: int
    column: int
    start: int
    end: int


class Fault(Exception):
    """Something wrong at a place, raised where only the place is known and the source text is not."""

    def __init__(self, span: Span, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.span = span
        self.message = message
        self.hint = hint

    def located(self, error: type[Located], source: str) -> Located:
        """The error for the user: position, message, the source line and a caret line beneath it."""
        span = self.span
        text = source[span.start : span.end]
        line = source.split("\n")[span.line - 1].rstrip("\r")
        before = "".join("\t" if character == "\t" else " " for character in line[: span.column - 1])
        carets = "^" * max(1, len(text.split("\n")[0].rstrip("\r")))
        return error(
            f"line {span.line}, column {span.column}: {self.message}\n{line}\n{before}{carets}",
            details={"line": span.line, "column": span.column, "text": text},
            hint=self.hint,
        )
