"""Reading sidecars: our own, those of other engines and releases (versions 1 to 9), and those that nobody can read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ulid import ULID

from omnigraph_engine.commit.sidecar import (
    DEFAULT_LEASE,
    SIDECAR_VERSION,
    Authority,
    EffectPhase,
    Sidecar,
    TableIntent,
    operation_of,
)
from omnigraph_engine.errors import SidecarUnreadable
from omnigraph_engine.manifest.publisher import TablePin
from omnigraph_engine.manifest.rows import AppTransaction
from omnigraph_engine.schema.identity import TableIdentity

_LOCATION = re.compile(r"/(?:nodes|edges)/([0-9a-f]{16})-([0-9a-f]{16})$")
# Protocols whose effects go beyond committing tables (forks, schema files, indexes): only their own engine finishes them.
_FOREIGN_PROTOCOLS = ("protocol_v4", "protocol_v7", "protocol_v8", "ensure_indices_rollback_v6")


def read_sidecar(path: str, data: bytes) -> Sidecar:
    """The operation that the document describes.

    Raises:
        SidecarUnreadable: it is damaged, newer than this package, or of a protocol that is not ours to finish; ``details``
            has the branch it concerns when that much can be read, and None for main.
    """
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            raise TypeError("it is not a JSON object")  # noqa: TRY301 - one way out for every kind of damage
        version = int(document["schema_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, f"it is damaged ({error})", _REMOVE_DAMAGED) from error
    branch = document.get("branch")
    if not 1 <= version <= SIDECAR_VERSION:
        raise _unreadable(
            path, f"it has version {version}", "Upgrade the package: pip install -U omnigraph-spark.", branch=branch
        )
    foreign = [name for name in _FOREIGN_PROTOCOLS if document.get(name)]
    if foreign:
        raise _unreadable(
            path,
            f"it describes a {document.get('writer_kind')} of another engine ({foreign[0]})",
            "Open the graph once for writing with the OmniGraph release that wrote it.",
            branch=branch,
        )
    try:
        return _sidecar(path, document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, f"it is damaged ({error!r})", _REMOVE_DAMAGED, branch=branch) from error


_REMOVE_DAMAGED = (
    "Nothing was changed. Compare each table's HEAD with the manifest; when they agree, or no table is named, "
    "the file can be moved away."
)
_ANY_BRANCH = object()


def _unreadable(path: str, why: str, hint: str, *, branch: object = _ANY_BRANCH) -> SidecarUnreadable:
    details: dict[str, Any] = {"path": path, "operation_id": operation_of(path)}
    if branch is not _ANY_BRANCH:
        details["branch"] = branch
    return SidecarUnreadable(f"The sidecar '{path}' cannot be used: {why}.", details=details, hint=hint)


def _sidecar(path: str, document: Mapping[str, Any]) -> Sidecar:
    operation_id = str(document["operation_id"])
    if operation_id != operation_of(path):
        raise ValueError(f"it is named for {operation_of(path)} and describes {operation_id}")
    protocol: Mapping[str, Any] = document.get("protocol_v3") or {}
    lineage: Mapping[str, Any] = protocol.get("lineage") or {}
    ours: Mapping[str, Any] = document.get("spark") or {}
    transaction = ours.get("txn")
    commit_id = lineage.get("graph_commit_id") or operation_id
    return Sidecar(
        operation_id=operation_id,
        branch=document.get("branch"),
        actor=document.get("actor_id"),
        writer_kind=str(document["writer_kind"]),
        tables=tuple(_intent(table, protocol, ours) for table in document["tables"]),
        authority=_authority(protocol.get("authority")),
        commit_id=commit_id,
        rollback_commit_id=protocol.get("rollback_graph_commit_id") or _derived_ulid(operation_id),
        created_at=int(lineage.get("created_at") or document["started_at"]),
        read_set={key: _pin(pin) for key, pin in (ours.get("read_set") or {}).items()},
        extra=ours.get("commit") or {},
        app_transaction=None
        if transaction is None
        else AppTransaction(transaction["app_id"], int(transaction["version"]), commit_id),
        merged_commit_id=lineage.get("merged_parent_commit_id"),
        phase=EffectPhase(protocol.get("effect_phase", EffectPhase.ARMED.value)),
        lease=float(ours.get("lease_seconds", DEFAULT_LEASE)),
        beat=int(ours.get("beat", 0)),
    )


def _intent(table: Mapping[str, Any], protocol: Mapping[str, Any], ours: Mapping[str, Any]) -> TableIntent:
    key, expected = str(table["table_key"]), int(table["expected_version"])
    planned = [
        effect["planned_transaction"]["uuid"] for effect in protocol.get("effects", ()) if effect["table_key"] == key
    ]
    chain = (ours.get("transactions") or {}).get(key)
    if chain is None:
        chain = planned or [None] * (int(table["post_commit_pin"]) - expected)
    replaces = (ours.get("replaces") or {}).get(key)
    if not chain and replaces is None:
        raise ValueError(f"it plans nothing for {key}")
    return TableIntent(
        table_key=key,
        identity=_identity(table),
        branch=table.get("table_branch"),
        expected_version=expected,
        transactions=tuple(chain),
        rows_after=(ours.get("rows_after") or {}).get(key),
        replaces=None if replaces is None else _pin(replaces),
    )


def _pin(pin: Mapping[str, Any]) -> TablePin:
    return TablePin(int(pin["version"]), pin["branch"])


def _identity(table: Mapping[str, Any]) -> TableIdentity:
    identity = table.get("identity")
    if identity is not None:
        return TableIdentity(int(identity["stable_table_id"]), int(identity["table_incarnation_id"]))
    match = _LOCATION.search(table["table_path"])  # before version 9 the path alone says which table it is
    if match is None:
        raise ValueError(f"'{table['table_path']}' is not the path of a table")
    return TableIdentity(int(match[1], 16), int(match[2], 16))


def _authority(authority: Mapping[str, Any] | None) -> Authority | None:
    if authority is None:
        return None
    mapping = (authority.get("branch_identifier") or {}).get("version_mapping") or ()
    return Authority(
        branch_identifier=tuple((int(version), str(identifier)) for version, identifier in mapping),
        graph_head=authority.get("graph_head"),
        schema_identity_domain=authority.get("schema_identity_domain"),
        schema_ir_hash=authority.get("schema_ir_hash"),
    )


def _derived_ulid(operation_id: str) -> str:
    """An id for the rollback of an operation that minted none: every recoverer derives the same."""
    moment = ULID.from_str(operation_id).bytes[:6]
    return str(ULID.from_bytes(moment + hashlib.sha256(operation_id.encode()).digest()[:10]))
