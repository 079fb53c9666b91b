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
from omnigraph_engine.write.endpoints import Endpoint, Endpoints
from omnigraph_engine.write.load import LoadMode

Kind = Literal["node", "edge"]
Side = Literal["read", "write", "session"]


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
NODE = Option("node", str, None, _BOTH, "The node type to read or write. Give one of node, edge and table.")
EDGE = Option("edge", str, None, _BOTH, "The edge type to read or write. Give one of node, edge and table.")
TABLE = Option(
    "table",
    str,
    None,
    ("read",),
    "A table about the graph: commits, branches, snapshot, schema or recoveries; or a type by its key, such as node:Person.",
)
BRANCH = Option("branch", str, MAIN, _BOTH, "The branch to read or write.")
COMMIT = Option("commit", str, None, ("read",), "Read the graph as it was at this commit, whatever its branch.")
VERSION = Option("version", int, None, ("read",), "Read the branch as it was at this version of its manifest.")
TIMESTAMP = Option(
    "timestamp", str, None, ("read",), "Read the branch as it was at this time (ISO 8601; UTC by default)."
)
COLUMNS = Option("columns", str, None, ("read",), "The columns to read, separated by commas; all by default.")
FILTER = Option(
    "filter", str, None, ("read",), "One SQL condition over the type's columns; only rows that match leave the store."
)
LIMIT = Option("limit", int, None, ("read",), "At most this many rows, read by one task.")
PARTITION_ROWS = Option(
    "partition.rows", int, "262144", ("read",), "Fragments are put together until a partition has this many rows."
)
LOAD = Option(
    "load",
    str,
    "append",
    ("write",),
    "append: an id that exists is an error. merge: a row whose id exists replaces that row. For mode append.",
)
EDGE_SRC = Option("edge.src", str, "src", ("write",), "The column with the ids of the nodes that the edges come from.")
EDGE_DST = Option("edge.dst", str, "dst", ("write",), "The column with the ids of the nodes that the edges go to.")
EDGE_SRC_KEY = Option(
    "edge.src.key",
    str,
    None,
    ("write",),
    "Instead of edge.src: the columns with the key of the source node, in the order of its declaration.",
)
EDGE_DST_KEY = Option(
    "edge.dst.key",
    str,
    None,
    ("write",),
    "Instead of edge.dst: the columns with the key of the target node, in the order of its declaration.",
)
EDGE_ENDPOINTS = Option(
    "edge.endpoints",
    str,
    "error",
    ("write",),
    "What an edge does whose nodes do not exist: error fails the write, skip leaves the edge out and counts it.",
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

CALL = Option("call", str, None, ("read",), "What Graph asks of the server under Spark Connect; not for use by hand.")

OPTIONS = (
    PATH,
    NODE,
    EDGE,
    TABLE,
    BRANCH,
    COMMIT,
    VERSION,
    TIMESTAMP,
    COLUMNS,
    FILTER,
    LIMIT,
    PARTITION_ROWS,
    LOAD,
    EDGE_SRC,
    EDGE_DST,
    EDGE_SRC_KEY,
    EDGE_DST_KEY,
    EDGE_ENDPOINTS,
    ACTOR,
    MESSAGE,
    TXN_APP_ID,
    TXN_VERSION,
    MAX_ROWS_PER_FILE,
    CALL,
)

SESSION_BRANCH = Option(
    "omnigraph.branch",
    str,
    MAIN,
    ("session",),
    "The branch of every Graph.open that names none, so that a job can be pointed at a branch without touching its code.",
)
"""A setting of the session, as in ``spark.conf.set("omnigraph.branch", "dev")``."""

SPARK_PREFIX = "spark."
"""``spark-submit --conf`` drops settings whose names do not begin with this, so settings are understood with it, too."""

STORAGE_PREFIX = "storage."
"""What follows it is passed to the store: ``storage.aws_region`` and the like."""


@dataclass(frozen=True)
class Address:
    """Where the graph is."""

    uri: str
    storage_options: Mapping[str, str]


@dataclass(frozen=True)
class TypeName:
    """Which type of the graph."""

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
    target: TypeName | str  # a type, or the name of a table about the graph
    call: str | None
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
    target: TypeName
    branch: str
    load: LoadMode
    endpoints: Endpoints
    skip_dangling: bool
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
        target=_read_target(given),
        call=given.get(CALL.name),
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
    target = _type_name(given, (NODE, EDGE))
    return WriteOptions(
        address=_address(given),
        target=target,
        branch=given.get(BRANCH.name, MAIN),
        load=LoadMode(_choice(given, LOAD, ("append", "merge"))),
        endpoints=_endpoints(given, target),
        skip_dangling=_choice(given, EDGE_ENDPOINTS, ("error", "skip")) == "skip",
        actor=given.get(ACTOR.name),
        message=given.get(MESSAGE.name),
        txn_app_id=given.get(TXN_APP_ID.name),
        txn_version=_number(given, TXN_VERSION),
        max_rows_per_file=_number_or_default(given, MAX_ROWS_PER_FILE),
    )


def _refuse_unknown(given: Mapping[str, str], side: Side) -> None:
    if "paths" in given:  # what Spark makes of a list
        raise InvalidArgument(
            "One load reads one graph, and several addresses were given.",
            details={"option": "paths"},
            hint="Call load(...) once for each graph, and union what they return.",
        )
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
    storage_options = {
        name.removeprefix(STORAGE_PREFIX): value for name, value in given.items() if name.startswith(STORAGE_PREFIX)
    }
    return Address(uri, storage_options)


def _read_target(given: Mapping[str, str]) -> TypeName | str:
    table = given.get(TABLE.name) or ("call" if given.get(CALL.name) else None)
    if table is None or given.get(NODE.name) or given.get(EDGE.name):
        return _type_name(given, (NODE, EDGE, TABLE))
    kind, colon, name = table.partition(":")
    if colon and kind in (NODE.name, EDGE.name):
        return TypeName(kind, name)  # type: ignore[arg-type]
    return table


def _type_name(given: Mapping[str, str], choices: tuple[Option, ...]) -> TypeName:
    named = [option.name for option in choices if given.get(option.name)]
    if len(named) != 1:
        *most, last = (option.name for option in choices)
        found = f"{' and '.join(named)} were given" if named else "none was given"
        raise InvalidArgument(
            f"Exactly one of the options {', '.join(most)} and {last} says what is meant; {found}.",
            hint='For example option("node", "Person").',
        )
    return TypeName(named[0], given[named[0]])  # type: ignore[arg-type]


def _endpoints(given: Mapping[str, str], target: TypeName) -> Endpoints:
    edge_options = (EDGE_SRC, EDGE_DST, EDGE_SRC_KEY, EDGE_DST_KEY, EDGE_ENDPOINTS)
    if target.kind != "edge" and (misplaced := [option.name for option in edge_options if option.name in given]):
        raise InvalidArgument(
            f"The option {misplaced[0]} is for edges, and {target.type_name} is written as a node type.",
            details={"option": misplaced[0]},
        )
    return Endpoints(_endpoint(given, EDGE_SRC, EDGE_SRC_KEY), _endpoint(given, EDGE_DST, EDGE_DST_KEY))


def _endpoint(given: Mapping[str, str], by_id: Option, by_key: Option) -> Endpoint:
    key = _names(given, by_key)
    if key is None:
        return Endpoint((given.get(by_id.name) or str(by_id.default),))
    if by_id.name in given:
        raise InvalidArgument(
            f"{by_id.name} and {by_key.name} exclude each other.", hint="Name the node by its id or by its key."
        )
    return Endpoint(key, by_key=True)


def _choice(given: Mapping[str, str], option: Option, choices: tuple[str, ...]) -> str:
    chosen = given.get(option.name, str(option.default)).lower()
    if chosen not in choices:
        raise InvalidArgument(
            f"The option {option.name} is '{given[option.name]}'.",
            details={"option": option.name},
            hint=f"Use {' or '.join(choices)}.",
        )
    return chosen


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
