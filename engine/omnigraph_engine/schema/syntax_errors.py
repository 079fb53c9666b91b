"""What a syntax error says: what was found, what could stand there, and the word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import cast

from lark import Token, UnexpectedCharacters, UnexpectedToken

from omnigraph_engine.errors import did_you_mean
from omnigraph_engine.schema.model import Scalar
from omnigraph_engine.schema.source import Fault, Span

TYPE_WORDS = (*(scalar.value for scalar in Scalar), "Vector", "enum")

# What each terminal of the grammar is called in a message, in the order a message lists them.
_CALLED = {
    "INTERFACE": "'interface'",
    "NODE": "'node'",
    "EDGE": "'edge'",
    "IMPLEMENTS": "'implements'",
    "TYPE_NAME": "a type name",
    "_ENUM": "a type",
    "NAME": "a name",
    "ENUM_VALUE": "an enum value",
    "STRING": "a string",
    "NUMBER": "a number",
    "INTEGER": "a whole number",
    "BOOL": "true or false",
    "_CARD": "'@card'",
    "ANNOTATION": "an annotation",
    "COLUMNS": "a constraint",
    "COLON": "':'",
    "COMMA": "','",
    "EQUAL": "'='",
    "ARROW": "'->'",
    "RANGE_DOTS": "'..'",
    "NULLABLE": "'?'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
}

_KEYWORDS = {"INTERFACE": "interface", "NODE": "node", "EDGE": "edge", "IMPLEMENTS": "implements"}

_UNCLOSED = {'"': "this string is not closed", "/*": "this comment is not closed"}


def span_of(token: Token) -> Span:
    # Lark leaves positions out only of tokens made by hand.
    return Span(token.line or 1, token.column or 1, token.start_pos or 0, token.end_pos or 0)


def unexpected_token(error: UnexpectedToken) -> Fault:
    token, accepted = error.token, _worth_telling(error.accepts)
    expected = _listed([called for terminal, called in _CALLED.items() if terminal in accepted])
    if token.type == "$END":
        # Lark gives it the place of the last token; the fault is behind that.
        end = Span(token.end_line or 1, token.end_column or 1, token.end_pos or 0, token.end_pos or 0)
        return Fault(end, f"expected {expected}, found the end of the file")
    return Fault(span_of(token), f"expected {expected}, found '{token}'", _hint(token, accepted))


def unexpected_character(error: UnexpectedCharacters, source: str) -> Fault:
    start = cast("int", error.pos_in_stream)
    for opening, message in _UNCLOSED.items():
        if source.startswith(opening, start):
            return Fault(Span(error.line, error.column, start, start + len(opening)), message)
    return Fault(Span(error.line, error.column, start, start + 1), f"unexpected character '{source[start]}'")


def _worth_telling(accepted: AbstractSet[str]) -> AbstractSet[str]:
    """The terminals without those that a wider one beside them covers: a keyword is a name, a type name is a type."""
    if "NAME" in accepted:
        return accepted - _KEYWORDS.keys()
    return accepted - {"TYPE_NAME"} if "_ENUM" in accepted else accepted


def _listed(alternatives: list[str]) -> str:
    *others, last = alternatives
    return f"{', '.join(others)} or {last}" if others else last


def _hint(token: Token, accepted: AbstractSet[str]) -> str | None:
    if token.type == "_CARD":
        return "@card stands right after the edge's types, before its annotations."
    if token.type in {"COLUMNS", "_RANGE", "_CHECK"}:
        return "A constraint with names stands between the braces of a node or an edge."
    if not token.isidentifier():
        return None
    if "STRING" in accepted:
        return f'Put it in quotes: "{token}".'
    return did_you_mean(token, _words(token, accepted))


def _words(found: str, accepted: AbstractSet[str]) -> Iterator[str]:
    """The words that could stand here, and what was found with the first letter in the right case."""
    yield from (word for terminal, word in _KEYWORDS.items() if terminal in accepted)
    if "_ENUM" in accepted:
        yield from TYPE_WORDS
    elif "TYPE_NAME" in accepted:
        yield found[0].upper() + found[1:]
    elif "NAME" in accepted:
        yield found[0].lower() + found[1:]
