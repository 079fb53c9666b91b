"""The recovery sidecar: a document that owns whatever an operation does between its first effect and its publish.

It is written before the first table moves and deleted after the publish. Whoever finds one knows every table, version and
transaction of the operation, and the commit it was to become: enough to finish it or to undo it without its writer.
The form is FORMAT 7.1, version 9; what is ours alone (lease, read set, row counts, chains) stands under ``"spark"``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ulid import ULID

from omnigraph_engine.manifest.publisher import TablePin
from omnigraph_engine.manifest.refs import Identifier
from omnigraph_engine.manifest.rows import AppTransaction
from omnigraph_engine.schema.identity import TableIdentity, table_location
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.table import TableRef

RECOVERY = "__recovery"
SIDECAR_VERSION = 9
DEFAULT_LEASE = 30.0  # seconds


class WriterKind(str, Enum):
    LOAD = "Load"
    MUTATION = "Mutation"
    SCHEMA_APPLY = "SchemaApply"
    BRANCH_MERGE = "BranchMerge"
    ENSURE_INDICES = "EnsureIndices"
    OPTIMIZE = "Optimize"


class EffectPhase(str, Enum):
    ARMED = "Armed"
    CONFIRMED = "EffectsConfirmed"


@dataclass(frozen=True)
class TableIntent:
    """What an operation does to one table: its transactions land at the versions right above ``expected_version``.

    Usually that version is the published one. An operation on a branch that has no line of the table yet forks one first:
    the line is the operation's own and the published version is on another. One without transactions adopts a version that
    stands already.
    """

    table_key: str
    identity: TableIdentity
    branch: str | None  # the line of the table; None is its main line
    expected_version: int
    transactions: tuple[str | None, ...]  # Lance transaction uuids; None when the writer recorded none (version 1)
    rows_after: int | None  # None: not recorded, count them
    replaces: TablePin | None = None  # what is published before, where that is not the version it starts from

    @property
    def final_version(self) -> int:
        return self.expected_version + len(self.transactions)

    @property
    def pin(self) -> TablePin:
        """What the manifest publishes before the operation."""
        return self.replaces or TablePin(self.expected_version, self.branch)

    @property
    def adopts(self) -> bool:
        return not self.transactions

    @property
    def forks(self) -> bool:
        return not self.adopts and self.pin.branch != self.branch

    def ref(self, version: int) -> TableRef:
        return TableRef(self.table_key, table_location(self.table_key, self.identity), self.branch, version)


@dataclass(frozen=True)
class Authority:
    """The view that the operation was prepared on."""

    branch_identifier: Identifier  # which life of the branch; empty for main
    graph_head: str | None
    schema_identity_domain: str | None = None
    schema_ir_hash: str | None = None


@dataclass(frozen=True)
class Sidecar:
    """One operation, from its first effect to its publish. Equal documents mean that nobody touched it in between."""

    operation_id: str
    branch: str | None  # the graph branch; None is main
    actor: str | None
    writer_kind: str
    tables: tuple[TableIntent, ...]
    authority: Authority | None  # None: not recorded (version 1)
    commit_id: str
    rollback_commit_id: str
    created_at: int  # microseconds since the epoch
    read_set: Mapping[str, TablePin] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)  # of the commit: message and metrics
    app_transaction: AppTransaction | None = None
    merged_commit_id: str | None = None  # the commit that a merge brings in: the second parent
    phase: EffectPhase = EffectPhase.ARMED
    lease: float = DEFAULT_LEASE
    beat: int = 0  # how often the writer has said that it lives

    @property
    def path(self) -> str:
        return sidecar_path(self.operation_id)

    @property
    def undo_path(self) -> str:
        return undo_path(self.operation_id)

    @property
    def table_keys(self) -> frozenset[str]:
        return frozenset(intent.table_key for intent in self.tables)

    def renewed(self) -> Sidecar:
        return replace(self, beat=self.beat + 1)

    def confirmed(self) -> Sidecar:
        return replace(self, phase=EffectPhase.CONFIRMED, beat=self.beat + 1)

    def to_json(self, storage: Storage) -> bytes:
        return (json.dumps(_document(self, storage), indent=2, ensure_ascii=False) + "\n").encode()


def sidecar_path(operation_id: str) -> str:
    return f"{RECOVERY}/{operation_id}.json"


def undo_path(operation_id: str) -> str:
    return f"{RECOVERY}/{operation_id}.undo.json"


def operation_of(path: str) -> str:
    """The operation that a path below ``__recovery`` belongs to."""
    return path.rsplit("/", 1)[-1].removesuffix(".json").removesuffix(".undo")


def new_operation_id() -> str:
    return str(ULID())


def now_micros() -> int:
    return time.time_ns() // 1000


def _document(sidecar: Sidecar, storage: Storage) -> dict[str, Any]:
    authority = sidecar.authority
    return {
        "schema_version": SIDECAR_VERSION,
        "operation_id": sidecar.operation_id,
        "started_at": str(sidecar.created_at),
        "branch": sidecar.branch,
        "actor_id": sidecar.actor,
        "writer_kind": sidecar.writer_kind,
        "tables": [_table(intent, storage, sidecar.phase) for intent in sidecar.tables],
        **({} if sidecar.merged_commit_id is None else {"merge_source_commit_id": sidecar.merged_commit_id}),
        "schema_apply_manifest_published": False,
        "protocol_v3": {
            "authority": None
            if authority is None
            else {
                "branch_identifier": {"version_mapping": [list(pair) for pair in authority.branch_identifier]},
                "graph_head": authority.graph_head,
                "schema_identity_domain": authority.schema_identity_domain,
                "schema_ir_hash": authority.schema_ir_hash,
                "schema_identity_version": 2,
            },
            "lineage": {
                "graph_commit_id": sidecar.commit_id,
                "branch": sidecar.branch,
                "actor_id": sidecar.actor,
                "merged_parent_commit_id": sidecar.merged_commit_id,
                "created_at": sidecar.created_at,
            },
            "rollback_graph_commit_id": sidecar.rollback_commit_id,
            "effect_phase": sidecar.phase.value,
            "effects": [
                {
                    "identity": _identity(intent.identity),
                    "table_key": intent.table_key,
                    "planned_transaction": {"read_version": intent.expected_version, "uuid": intent.transactions[0]},
                }
                for intent in sidecar.tables
                if not intent.adopts
            ],
            "intended_delta": {
                "table_updates": [
                    {
                        "identity": _identity(intent.identity),
                        "table_key": intent.table_key,
                        "expected_version": intent.expected_version,
                        "table_branch": intent.branch,
                    }
                    for intent in sidecar.tables
                ]
            },
        },
        "spark": {
            "lease_seconds": sidecar.lease,
            "beat": sidecar.beat,
            "transactions": {intent.table_key: list(intent.transactions) for intent in sidecar.tables},
            "rows_after": {intent.table_key: intent.rows_after for intent in sidecar.tables},
            "replaces": {
                intent.table_key: _pin(intent.replaces) for intent in sidecar.tables if intent.replaces is not None
            },
            "read_set": {key: _pin(pin) for key, pin in sorted(sidecar.read_set.items())},
            "commit": dict(sidecar.extra),
            "txn": None
            if sidecar.app_transaction is None
            else {"app_id": sidecar.app_transaction.app_id, "version": sidecar.app_transaction.version},
        },
    }


def _table(intent: TableIntent, storage: Storage, phase: EffectPhase) -> dict[str, Any]:
    table: dict[str, Any] = {
        "identity": _identity(intent.identity),
        "table_key": intent.table_key,
        "table_path": storage.uri(table_location(intent.table_key, intent.identity)),
        "expected_version": intent.expected_version,
        "post_commit_pin": intent.expected_version + 1,
    }
    if phase is EffectPhase.CONFIRMED:
        table["confirmed_version"] = intent.final_version
    if intent.branch is not None:
        table["table_branch"] = intent.branch
    return table


def _pin(pin: TablePin) -> dict[str, Any]:
    return {"version": pin.version, "branch": pin.branch}


def _identity(identity: TableIdentity) -> dict[str, int]:
    return {"stable_table_id": identity.stable_id, "table_incarnation_id": identity.incarnation_id}
