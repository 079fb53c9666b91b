"""How a graph comes to be, and how it is recognised again.

A graph exists from the moment its manifest does, and not before: the claim, the schema files and the empty tables that a
creation writes first are residue if it dies, and neither a later creation nor an open takes them for a graph.
"""

from __future__ import annotations

import json
import logging
import os
import time

from ulid import ULID

from omnigraph_engine.errors import (
    GraphCreationPending,
    GraphDamaged,
    GraphExists,
    GraphNotFound,
    NotAGraph,
    ObjectExists,
    ObjectNotFound,
    SchemaContractBroken,
    StorageError,
)
from omnigraph_engine.manifest.dataset import Manifest, create_manifest, open_manifest
from omnigraph_engine.manifest.refs import MANIFEST
from omnigraph_engine.manifest.rows import GraphCommit, GraphHead, Row, TableRegistration, TableVersion
from omnigraph_engine.manifest.state import ManifestState
from omnigraph_engine.schema.arrow import table_schema
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.contract import IR_FILE, SOURCE_FILE, STATE_FILE, SchemaContract, read_contract
from omnigraph_engine.schema.identity import AcceptedSchema, accept_initial
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.heads import create_table

_log = logging.getLogger(__name__)

CLAIM = "__init_claim.json"


def create_graph(storage: Storage, source: str) -> SchemaContract:
    """An empty graph with this schema exists afterwards. Of several creators at one address exactly one succeeds.

    Raises:
        SchemaSyntaxError, SchemaError: the schema is wrong; nothing was touched.
        GraphExists: a graph, or something else, is there.
        GraphCreationPending: another creation is under way, or died; what it left is never taken over.
    """
    contract = SchemaContract(source, accept_initial(parse_catalog(source)))
    _claim(storage)
    for name, text in contract.files().items():
        storage.put_if_absent(name, text.encode())
    create_manifest(storage, _genesis(storage, contract.accepted))
    _release(storage)
    return contract


def _claim(storage: Storage) -> None:
    """Takes the address, which is empty, for this creation, or says what is there."""
    if storage.is_local and storage.root_exists() and not os.path.isdir(storage.root):
        raise GraphExists(f"'{storage.root}' is a file.", hint="A graph needs a folder of its own.")
    storage.make_root()
    _refuse_occupied(storage)
    claim = {"version": 1, "attempt_id": str(ULID())}
    try:
        storage.put_if_absent(CLAIM, json.dumps(claim, separators=(",", ":")).encode())
    except ObjectExists as error:
        raise _pending(storage) from error
    try:
        # Another creation may have come and gone between the look above and our claim. From here on none can.
        _refuse_occupied(storage, claimed=True)
    except GraphExists:
        _release(storage)
        raise


def _refuse_occupied(storage: Storage, *, claimed: bool = False) -> None:
    found = storage.list(limit=100)
    if _has_manifest(storage):  # before the claim: one that outlived its creation must not pass for an empty address
        raise GraphExists(
            f"There is a graph at '{storage.root}' already.", hint="Open it with Graph.open, or choose another address."
        )
    if not claimed and _has_claim(storage):
        raise _pending(storage)
    foreign = [path for path in found if path != CLAIM]
    if foreign:
        raise GraphExists(
            f"'{storage.root}' is not empty: it holds '{foreign[0]}'"
            + (f" and {len(foreign) - 1} more." if len(foreign) > 1 else "."),
            hint="A graph needs a folder of its own; choose another address, or empty this one.",
        )


def _release(storage: Storage) -> None:
    try:
        storage.delete(CLAIM)
    except StorageError as error:  # beside a manifest a claim means nothing, so this is no reason to fail
        _log.warning("'%s' could not be removed and may be deleted by hand: %s", storage.uri(CLAIM), error)


def _has_claim(storage: Storage) -> bool:
    try:
        storage.size(CLAIM)
    except ObjectNotFound:
        return False
    return True


def _has_manifest(storage: Storage) -> bool:
    """Whether a version of it was ever published; staged files of a commit that died do not make a graph."""
    return any(path.endswith(".manifest") for path in storage.list(f"{MANIFEST}/_versions"))


def _pending(storage: Storage) -> GraphCreationPending:
    return GraphCreationPending(
        f"A creation of '{storage.root}' is under way, or one died and left '{CLAIM}'.",
        details={"claim": storage.uri(CLAIM)},
        hint="If nobody is creating it, remove everything at this address and create it again; it holds no data yet.",
    )


def _genesis(storage: Storage, accepted: AcceptedSchema) -> list[Row]:
    """Creates the empty tables; returns the rows that publish them, with the first commit of the graph."""
    rows: list[Row] = []
    for table in accepted.catalog.table_types():
        registration = TableRegistration(table.table_key, accepted.identity(table))
        created = create_table(storage, registration.location, table_schema(accepted, table))
        version = TableVersion(
            table_key=table.table_key,
            identity=registration.identity,
            version=created.version,
            branch=None,
            row_count=0,
            manifest_path=created.manifest_path,
            manifest_size=created.manifest_size,
        )
        rows += [registration.to_row(), version.to_row()]
    first = GraphCommit(str(ULID()), manifest_version=1, branch=None, created_at=time.time_ns() // 1000)
    return [*rows, first.to_row(), GraphHead(None, first.commit_id, None).to_row()]


def open_graph(storage: Storage) -> tuple[SchemaContract, Manifest]:
    """The schema of the graph, validated once, and main's manifest, which agrees with it.

    Raises:
        GraphNotFound, NotAGraph, GraphCreationPending: there is no graph here, and what is there instead.
        GraphDamaged, GraphTooOld, GraphTooNew, SchemaContractBroken: there is one, but it cannot be trusted or read.
    """
    if storage.is_local and not os.path.isdir(storage.root):
        raise _no_graph(storage)
    try:
        manifest = open_manifest(storage)
    except (ObjectNotFound, GraphDamaged) as error:
        if _has_manifest(storage):
            raise
        raise _no_graph(storage) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what Lance does on some torn files; it is no Exception
            raise
        raise GraphDamaged(
            f"The manifest of '{storage.root}' cannot be opened: {error}", hint="Restore __manifest from a backup."
        ) from error
    contract = read_contract(*(_schema_file(storage, name) for name in (SOURCE_FILE, IR_FILE, STATE_FILE)))
    check_agreement(contract.accepted, manifest.state)
    return contract, manifest


def _no_graph(storage: Storage) -> GraphNotFound | NotAGraph | GraphCreationPending:
    if not storage.root_exists():
        return GraphNotFound(
            f"There is nothing at '{storage.root}'.",
            hint="Check the address, or create a graph there with Graph.create.",
        )
    if storage.is_local and not os.path.isdir(storage.root):
        return NotAGraph(f"'{storage.root}' is a file.", hint="Give the folder that Graph.create was given.")
    if _has_claim(storage):
        return _pending(storage)
    return NotAGraph(
        f"'{storage.root}' is not a graph: it has no '{MANIFEST}'.", hint="Give the folder that Graph.create was given."
    )


def _schema_file(storage: Storage, name: str) -> str:
    try:
        return storage.get(name).decode()
    except ObjectNotFound as error:
        raise SchemaContractBroken(
            f"The schema file '{storage.uri(name)}' is missing.", hint="Restore it from a backup of the graph."
        ) from error


def check_agreement(accepted: AcceptedSchema, state: ManifestState) -> None:
    """Raises ``GraphDamaged`` unless schema and manifest name the same tables with the same identities (FORMAT 3.6)."""
    declared = {table.table_key: accepted.identity(table) for table in accepted.catalog.table_types()}
    published = {table_key: table.identity for table_key, table in state.tables.items()}
    differing = sorted(
        table_key
        for table_key in declared.keys() | published.keys()
        if declared.get(table_key) != published.get(table_key)
    )
    if differing:
        raise GraphDamaged(
            f"Schema and manifest disagree about {', '.join(differing)}.",
            details={"table_keys": differing},
            hint="Nothing was changed. One of them was replaced or edited; restore both from one backup.",
        )
