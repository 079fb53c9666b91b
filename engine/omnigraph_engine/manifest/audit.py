"""``_graph_commit_recoveries.lance``: one row for each operation that a recovery finished or undid (FORMAT 7.3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import StorageError, VersionConflict
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import commit_exact, lance_errors
from omnigraph_engine.tables.staged import new_transaction_uuid

AUDIT = "_graph_commit_recoveries.lance"
_ATTEMPTS = 20

_FIELDS: list[pa.Field[Any]] = [
    pa.field("graph_commit_id", pa.string(), nullable=False),
    pa.field("recovery_kind", pa.string(), nullable=False),
    pa.field("recovery_for_actor", pa.string()),
    pa.field("operation_id", pa.string(), nullable=False),
    pa.field("sidecar_writer_kind", pa.string(), nullable=False),
    pa.field("per_table_outcomes_json", pa.string(), nullable=False),
    pa.field("created_at", pa.timestamp("us"), nullable=False),
]
_SCHEMA = pa.schema(_FIELDS)


class RecoveryKind(str, Enum):
    ROLLED_FORWARD = "RolledForward"
    ROLLED_BACK = "RolledBack"
    ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"


@dataclass(frozen=True)
class TableOutcome:
    table_key: str
    from_version: int
    to_version: int


@dataclass(frozen=True)
class RecoveryRecord:
    """What a recovery did with one operation."""

    operation_id: str
    kind: RecoveryKind
    commit_id: str  # the commit it published: the operation's own, or the one that undid it
    actor: str | None  # whose operation it was
    writer_kind: str
    tables: tuple[TableOutcome, ...]
    created_at: datetime


def record_recovery(storage: Storage, record: RecoveryRecord) -> None:
    """The record is in the audit trail exactly once afterwards, however many recoverers of one operation write it."""
    for _ in range(_ATTEMPTS):
        dataset = _open_or_create(storage)
        operations = dataset.to_table(columns=["operation_id"])["operation_id"]
        if pc.any(pc.equal(operations, record.operation_id)).as_py():
            return
        with lance_errors(f"Writing the audit row of {record.operation_id}"):
            fragments = write_fragments(
                pa.Table.from_pylist([_row(record)], schema=_SCHEMA),
                dataset,
                mode="append",
                data_storage_version="2.2",
                enable_stable_row_ids=True,
                storage_options=storage.options or None,
            )
        append = Transaction(dataset.version, LanceOperation.Append(fragments), uuid=new_transaction_uuid())
        try:
            commit_exact(storage, AUDIT, dataset, append)
        except VersionConflict:
            continue
        return
    raise StorageError(f"Other recoveries kept writing '{storage.uri(AUDIT)}'.")


def list_recoveries(storage: Storage) -> list[RecoveryRecord]:
    """Every recovery of the graph, newest first; none when there never was one."""
    if not storage.list(f"{AUDIT}/_versions", limit=1):
        return []
    with lance_errors("Reading the audit trail"):
        rows = _open(storage).to_table().sort_by([("created_at", "descending")]).to_pylist()
    return [_record(row) for row in rows]


def _open(storage: Storage) -> LanceDataset:
    return lance.dataset(storage.uri(AUDIT), storage_options=storage.options or None)


def _open_or_create(storage: Storage) -> LanceDataset:
    with lance_errors("Opening the audit trail"):
        if not storage.list(f"{AUDIT}/_versions", limit=1):
            try:
                return lance.write_dataset(
                    _SCHEMA.empty_table(),
                    storage.uri(AUDIT),
                    mode="create",
                    data_storage_version="2.2",
                    enable_stable_row_ids=True,
                    storage_options=storage.options or None,
                )
            except OSError as error:
                if "already exists" not in str(error):
                    raise
        return _open(storage)


def _row(record: RecoveryRecord) -> dict[str, Any]:
    outcomes: Sequence[dict[str, Any]] = [
        {"table_key": table.table_key, "from_version": table.from_version, "to_version": table.to_version}
        for table in record.tables
    ]
    return {
        "graph_commit_id": record.commit_id,
        "recovery_kind": record.kind.value,
        "recovery_for_actor": record.actor,
        "operation_id": record.operation_id,
        "sidecar_writer_kind": record.writer_kind,
        "per_table_outcomes_json": json.dumps(outcomes, separators=(",", ":")),
        "created_at": record.created_at.replace(tzinfo=None),
    }


def _record(row: dict[str, Any]) -> RecoveryRecord:
    return RecoveryRecord(
        operation_id=row["operation_id"],
        kind=RecoveryKind(row["recovery_kind"]),
        commit_id=row["graph_commit_id"],
        actor=row["recovery_for_actor"],
        writer_kind=row["sidecar_writer_kind"],
        tables=tuple(TableOutcome(**outcome) for outcome in json.loads(row["per_table_outcomes_json"])),
        created_at=row["created_at"].replace(tzinfo=timezone.utc),
    )
