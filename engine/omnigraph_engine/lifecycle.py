"""How a graph comes to be, and how it is recognised again.

A graph exists from the moment its manifest does, and not before: the claim, the schema files and the empty tables that a
creation writes first are residue if it dies, and neither a later creation nor an open takes them for a graph.
"""

from __future__ import annotations

import json
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
)
from omnigraph_engine.manifest.dataset import MANIFEST, Manifest, create_manifest, open_manifest
from omnigraph_engine.manifest.rows import GraphCommit, GraphHead, Row, TableRegistration, TableVersion
from omnigraph_engine.manifest.state import ManifestState
from omnigraph_engine.schema.arrow import table_schema
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.contract import IR_FILE, SOURCE_FILE, STATE_FILE, SchemaContract, read_contract
from omnigraph_engine.schema.identity import AcceptedSchema, accept_initial
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.heads import create_table

CLAIM = "__init_claim.json"


def create_graph(storage: Storage, source: str) -> SchemaContract:
    """An empty graph with this schema exists afterwards. Of several creators at one address exactly one succeeds.

    Raises:
        SchemaSyntaxError, SchemaError: the schema is wrong; nothing was touched.
        GraphExists: a graph, or something else, is there.
        GraphCreationPending: another creation is under way, or died; what it left is never taken over.
    """
    contract = SchemaContract(source, accept_initial(parse_catalog(source)))
    storage.make_root()
    _claim(storage)
    for name, text in contract.files().items():
        storage.put_if_absent(name, text.encode())
    create_manifest(storage, _genesis(storage, contract.accepted))
    storage.delete(CLAIM)
    return contract


def _claim(storage: Storage) -> None:
    """Takes the address for this creation, or says what is there."""
    before = storage.list(limit=100)
    if CLAIM in before:
        raise _pending(storage)
    if any(path.startswith(f"{MANIFEST}/") for path in before):
        raise GraphExists(
            f"There is a graph at '{storage.root}' already.", hint="Open it with Graph.open, or choose another address."
        )
    if before:
        raise GraphExists(
            f"'{storage.root}' is not empty: it holds '{before[0]}'"
            + (f" and {len(before) - 1} more." if len(before) > 1 else "."),
            hint="A graph needs a folder of its own; choose another address, or empty this one.",
        )
    claim = {"version": 1, "attempt_id": str(ULID())}
    try:
        storage.put_if_absent(CLAIM, json.dumps(claim, separators=(",", ":")).encode())
    except ObjectExists as error:
        raise _pending(storage) from error


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
    try:
        manifest = open_manifest(storage)
    except ObjectNotFound as error:
        raise _no_graph(storage) from error
    contract = read_contract(*(_schema_file(storage, name) for name in (SOURCE_FILE, IR_FILE, STATE_FILE)))
    check_agreement(contract.accepted, manifest.state)
    return contract, manifest


def _no_graph(storage: Storage) -> GraphNotFound | NotAGraph | GraphCreationPending:
    if not storage.root_exists():
        return GraphNotFound(
            f"There is nothing at '{storage.root}'.",
            hint="Check the address, or create a graph there with Graph.create.",
        )
    if CLAIM in storage.list(limit=100):
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
