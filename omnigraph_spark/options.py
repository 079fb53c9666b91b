"""Every option of the data source: its name, type, default and meaning, in one place.

Spark lower-cases option names and turns values into text before they arrive here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from omnigraph_engine.errors import InvalidArgument, UnknownType, did_you_mean
from omnigraph_engine.manifest.rows import MAIN

Kind = Literal["node", "edge"]
Side = Literal["read", "write"]


@dataclass(frozen=True)
class Option:
    """An option as the reference lists it."""

    name: str
    type: type[str | int]
    default: str | None
    sides: tuple[Side, ...]
    doc: str


_BOTH: tuple[Side, ...] = ("read", "write")

PATH = Option("path", str, None, _BOTH, "The graph: an absolute path or a URL; usually the argument of load and save.")
NODE = Option("node", str, None, _BOTH, "The node type to read or write. Give either this or edge.")
EDGE = Option("edge", str, None, _BOTH, "The edge type to read or write. Give either this or node.")
BRANCH = Option("branch", str, MAIN, _BOTH, "The branch to read or write.")
COMMIT = Option("commit", str, None, ("read",), "Read the graph as it was at this commit, whatever its branch.")
VERSION = Option("version", int, None, ("read",), "Read the branch as it was at this version of its manifest.")
TIMESTAMP = Option(
    "timestamp", str, None, ("read",), "Read the branch as it was at this time (ISO 8601; UTC by default)."
)
COLUMNS = Option("columns", str, None, ("read",), "The columns to read, separated by commas; all by default.")
FILTER = Option("filter", str, None, ("read",), "SQL over the type's columns; only rows that match leave the store.")
LIMIT = Option("limit", int, None, ("read",), "At most this many rows, read by one task.")
PARTITION_ROWS = Option(
    "partition.rows", int, "262144", ("read",), "Fragments are put together until a partition has this many rows."
)
ACTOR = Option("actor", str, None, ("write",), "Who makes the commit.")
MESSAGE = Option("message", str, None, ("write",), "What the commit is for.")
TXN_APP_ID = Option(
    "txn.app_id", str, None, ("write",), "An application that numbers its writes, so that a repeated one does nothing."
)
TXN_VERSION = Option("txn.version", int, None, ("write",), "The number of this write; belongs to txn.app_id.")
MAX_ROWS_PER_FILE = Option(
    "write.max_rows_per_file", int, "1048576", ("write",), "A task starts a new file after this many rows."
)

OPTIONS = (
    PATH,
    NODE,
    EDGE,
    BRANCH,
    COMMIT,
    VERSION,
    TIMESTAMP,
    COLUMNS,
    FILTER,
    LIMIT,
    PARTITION_ROWS,
    ACTOR,
    MESSAGE,
    TXN_APP_ID,
    TXN_VERSION,
    MAX_ROWS_PER_FILE,
)

STORAGE_PREFIX = "storage."
"""What follows it is passed to the store: ``storage.aws_region`` and the like."""


@dataclass(frozen=True)
class Address:
    """Which type of which graph."""

    uri: str
    storage_options: Mapping[str, str]
    kind: Kind
    type_name: str

    def table_key(self, known: Mapping[str, object]) -> str:
        """The key of the table among those that are ``known`` by key, or an error that says what was meant."""
        key = f"{self.kind}:{self.type_name}"
        if key in known:
            return key
        other: Kind = "edge" if self.kind == "node" else "node"
        if f"{other}:{self.type_name}" in known:
            hint: str | None = (
                f'\'{self.type_name}\' is of the {other} types: use option("{other}", "{self.type_name}").'
            )
        else:
            names = [name for name in known if name.startswith(f"{self.kind}:")]
            hint = did_you_mean(self.type_name, [name.split(":", 1)[1] for name in names])
        raise UnknownType(
            f"The graph has no {self.kind} type '{self.type_name}'.", details={self.kind: self.type_name}, hint=hint
        )


@dataclass(frozen=True)
class ReadOptions:
    address: Address
    branch: str | None
    commit: str | None
    version: int | None
    timestamp: str | None
    columns: tuple[str, ...] | None
    filter: str | None
    limit: int | None
    partition_rows: int


@dataclass(frozen=True)
class WriteOptions:
    address: Address
    branch: str
    actor: str | None
    message: str | None
    txn_app_id: str | None
    txn_version: int | None
    max_rows_per_file: int


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of one ``load``, checked for form; whether they name something that exists is seen later."""
    _refuse_unknown(given, "read")
    return ReadOptions(
        address=_address(given),
        branch=given.get(BRANCH.name),
        commit=given.get(COMMIT.name),
        version=_number(given, VERSION),
        timestamp=given.get(TIMESTAMP.name),
        columns=_names(given, COLUMNS),
        filter=given.get(FILTER.name),
        limit=_number(given, LIMIT, least=0),
        partition_rows=_number_or_default(given, PARTITION_ROWS),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of one ``save``, checked for form."""
    _refuse_unknown(given, "write")
    return WriteOptions(
        address=_address(given),
        branch=given.get(BRANCH.name, MAIN),
        actor=given.get(ACTOR.name),
        message=given.get(MESSAGE.name),
        txn_app_id=given.get(TXN_APP_ID.name),
        txn_version=_number(given, TXN_VERSION),
        max_rows_per_file=_number_or_default(given, MAX_ROWS_PER_FILE),
    )


def _refuse_unknown(given: Mapping[str, str], side: Side) -> None:
    known = [option.name for option in OPTIONS if side in option.sides]
    for name in given:
        if name not in known and not name.startswith(STORAGE_PREFIX):
            raise InvalidArgument(
                f"There is no option '{name}' to {side} a graph.",
                details={"option": name},
                hint=did_you_mean(name, known) or f"Options: {', '.join(known)}, {STORAGE_PREFIX}*.",
            )


def _address(given: Mapping[str, str]) -> Address:
    uri = given.get(PATH.name)
    if not uri:
        raise InvalidArgument(
            "The address of the graph is missing.",
            hint="Give it to load(...) or save(...). Spark's tables drop options: "
            "use save instead of saveAsTable, and a temporary view for SQL.",
        )
    if not uri.startswith("/") and "://" not in uri:
        raise InvalidArgument(
            f"The address '{uri}' is relative, and Spark's workers run in other directories.",
            details={"path": uri},
            hint=f"Give an absolute path, e.g. os.path.abspath('{os.path.basename(uri)}'), or a URL.",
        )
    named: list[tuple[Kind, str]] = [(kind, given[kind]) for kind in (NODE.name, EDGE.name) if given.get(kind)]  # type: ignore[misc]
    if len(named) != 1:
        found = "both were given" if named else "neither was given"
        raise InvalidArgument(
            f"Exactly one of the options node and edge says which type to read or write; {found}.",
            hint='For example option("node", "Person").',
        )
    storage_options = {
        name.removeprefix(STORAGE_PREFIX): value for name, value in given.items() if name.startswith(STORAGE_PREFIX)
    }
    return Address(uri, storage_options, *named[0])


def _number(given: Mapping[str, str], option: Option, *, least: int | None = None) -> int | None:
    text = given.get(option.name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise InvalidArgument(f"The option {option.name} is '{text}', not a whole number.") from error
    if least is not None and number < least:
        raise InvalidArgument(f"The option {option.name} is {number}; it must be at least {least}.")
    return number


def _number_or_default(given: Mapping[str, str], option: Option) -> int:
    number = _number(given, option, least=1)
    return int(option.default or 0) if number is None else number


def _names(given: Mapping[str, str], option: Option) -> tuple[str, ...] | None:
    text = given.get(option.name)
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise InvalidArgument(
            f"The option {option.name} is '{text}'.", hint="Give distinct column names, separated by commas."
        )
    return names
