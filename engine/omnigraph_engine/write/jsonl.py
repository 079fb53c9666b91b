"""JSON lines, one node or edge each, as Arrow batches: every refusal names its line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa

from omnigraph_engine.errors import InvalidInput, TypeMismatch, UnknownProperty, UnknownType, did_you_mean
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.model import Catalog, EdgeType, PropType, Scalar, TableType
from omnigraph_engine.write.json_values import JsonColumn, LineMark, json_array, line_details, line_words

_ENVELOPES = {"type": ("type", "data"), "edge": ("edge", "from", "to", "data")}
_JSON_WHITESPACE = " \t\r\n"
QUOTED = 120  # characters of a line that are shown where it has no number


def by_number(number: int, _line: bytes | str) -> LineMark:
    return number


def by_text(_number: int, line: bytes | str) -> LineMark:
    """For lines that have no number, because they come in any order and from anywhere."""
    text = line if isinstance(line, str) else line.decode(errors="replace")
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


def read_json_lines(
    lines: Iterable[bytes | str],
    accepted: AcceptedSchema,
    *,
    batch_rows: int = 10_000,
    mark: Callable[[int, bytes | str], LineMark] = by_number,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields ``(table_key, batch)`` with every row of the input once, in order within its type, ready for ``conform``.

    At most ``batch_rows`` rows of each type are held at a time. A batch has ``id`` (null where not given), for edges
    ``src`` and ``dst``, and all properties of its type, in logical Arrow types. Values are checked when their batch is
    made, so the refused line need not be the first bad one of the file. What is refused is told by the ``mark`` of its line.

    Raises:
        InvalidInput: A line is not UTF-8, not JSON, or not of the form
            ``{"type": ..., "data": {...}}`` or ``{"edge": ..., "from": ..., "to": ..., "data": {...}}``,
            has a member twice, or has a value that cannot be stored.
        UnknownType: The schema has no such node or edge type.
        UnknownProperty: The type has no such property.
        TypeMismatch: A value is of another JSON type than its property takes.
        ConstraintViolation: A required value is missing, or a vector has the wrong length.
    """
    buffers: dict[str, _Buffer] = {}
    for number, line in enumerate(lines, start=1):
        marked = mark(number, line)
        text = _text(line, marked)
        if not text.strip(_JSON_WHITESPACE):
            continue
        envelope = _parse(text, marked)
        table = _table(envelope, accepted.catalog, marked)
        buffer = buffers.setdefault(table.name, _Buffer(table))
        buffer.add(envelope, marked)
        if len(buffer.lines) >= batch_rows:
            yield table.table_key, buffer.drain()
    for buffer in buffers.values():
        if buffer.lines:
            yield buffer.table.table_key, buffer.drain()


@dataclass
class _Buffer:
    """Rows of one type that wait to become a batch."""

    table: TableType
    envelopes: list[dict[str, Any]] = field(default_factory=list)
    lines: list[LineMark] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known = {"id", *(prop.name for prop in self.table.properties)}

    def add(self, envelope: dict[str, Any], line: LineMark) -> None:
        data = envelope.setdefault("data", {})
        if type(data) is not dict:
            raise _fault(line, "'data' must be an object")
        unknown = data.keys() - self.known
        if unknown:
            name = min(unknown)
            raise UnknownProperty(
                f"{line_words(line)}: {self.table.name} has no property '{name}'.",
                details={**line_details(line), "type": self.table.name, "property": name},
                hint=self._hint(name),
            )
        self.envelopes.append(envelope)
        self.lines.append(line)

    def drain(self) -> pa.RecordBatch:
        columns = {"id": self._column("id", PropType(Scalar.STRING, nullable=True), "data")}
        if isinstance(self.table, EdgeType):
            columns["src"] = self._column("from", PropType(Scalar.STRING))
            columns["dst"] = self._column("to", PropType(Scalar.STRING))
        columns |= {prop.name: self._column(prop.name, prop.type, "data") for prop in self.table.properties}
        self.envelopes, self.lines = [], []
        return pa.RecordBatch.from_pydict(columns)

    def _column(self, name: str, prop_type: PropType, member: str | None = None) -> pa.Array[Any]:
        objects = self.envelopes if member is None else [envelope[member] for envelope in self.envelopes]
        values = [source.get(name) for source in objects]
        return json_array(JsonColumn(self.table.name, name, prop_type, values, self.lines.__getitem__))

    def _hint(self, name: str) -> str | None:
        if isinstance(self.table, EdgeType) and name in {"src", "dst", "from", "to"}:
            return "The endpoints of an edge stand beside 'data', as 'from' and 'to'."
        return did_you_mean(name, self.known)


def _text(line: bytes | str, number: LineMark) -> str:
    try:
        # A str can hold what UTF-8 cannot: halves of surrogate pairs.
        return line.decode() if isinstance(line, bytes) else line.encode().decode()
    except UnicodeError as error:
        raise _fault(number, f"not UTF-8 ({error})") from error


def _parse(text: str, number: LineMark) -> dict[str, Any]:
    try:
        envelope = _DECODER.decode(text)
        if "\\u" in text:
            json.dumps(envelope, ensure_ascii=False).encode()  # fails on half a surrogate pair
    except json.JSONDecodeError as error:
        raise _fault(number, f"not JSON: {error.msg} at column {error.colno}") from error
    except UnicodeEncodeError as error:
        raise _fault(number, "not JSON: half a surrogate pair is not a character") from error
    except (ValueError, RecursionError) as error:
        raise _fault(number, f"not JSON: {error}") from error
    if type(envelope) is not dict:
        raise _fault(number, "a line must be a JSON object")
    return envelope


def _table(envelope: dict[str, Any], catalog: Catalog, number: LineMark) -> TableType:
    kinds = envelope.keys() & _ENVELOPES.keys()
    if len(kinds) != 1:
        raise _fault(number, "a line must have either 'type' (a node) or 'edge'")
    (kind,) = kinds
    unknown = envelope.keys() - set(_ENVELOPES[kind])
    if unknown:
        raise _fault(number, f"unknown member '{min(unknown)}'", did_you_mean(min(unknown), _ENVELOPES[kind]))
    name = envelope[kind]
    if type(name) is not str:
        raise TypeMismatch(f"{line_words(number)}: '{kind}' must be a string.", details=line_details(number))
    here, other = (catalog.nodes, catalog.edges) if kind == "type" else (catalog.edges, catalog.nodes)
    table: TableType | None = here.get(name)
    if table is None:
        what, instead = ("node", '"edge"') if kind == "type" else ("edge", '"type"')
        raise UnknownType(
            f"{line_words(number)}: the schema has no {what} type '{name}'.",
            details={**line_details(number), "type": name},
            hint=f"There is one to be named with {instead}." if name in other else did_you_mean(name, here),
        )
    return table


def _fault(line: LineMark, reason: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(f"{line_words(line)}: {reason}.", details=line_details(line), hint=hint)


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"member '{next(name for name in names if names.count(name) > 1)}' is given twice")
    return members


def _refuse_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a number that can be stored")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
