"""The rows of ``__manifest``: what each kind means and how it is spelled on disk (FORMAT 3.2 to 3.4).

Encoding and decoding are pure. A row whose stored id or path contradicts its other columns is refused: the id is what the
publish compares and swaps on, so a wrong one would let two truths live side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa

from omnigraph_engine.errors import GraphDamaged
from omnigraph_engine.schema.identity import TableIdentity, table_location

INTERNAL_SCHEMA_VERSION = 6
STAMP_KEY = b"omnigraph:internal_schema_version"
MAIN = "main"

MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("item", pa.string()))),
        pa.field("table_key", pa.string(), nullable=False),
        pa.field("stable_table_id", pa.uint64()),
        pa.field("table_incarnation_id", pa.uint64()),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ],
    metadata={STAMP_KEY: str(INTERNAL_SCHEMA_VERSION).encode()},
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TableRegistration:
    """This table exists, under this name, at this place."""

    table_key: str
    identity: TableIdentity

    @property
    def location(self) -> str:
        return table_location(self.table_key, self.identity)

    @property
    def object_id(self) -> str:
        return f"table:{_identity_text(self.identity)}"

    def to_row(self) -> Row:
        return _row(self.object_id, "table", table_key=self.table_key, identity=self.identity, location=self.location)

    @classmethod
    def from_row(cls, row: Row) -> TableRegistration:
        registration = cls(row["table_key"], _identity(row))
        _require(row, registration.object_id)
        if row["location"] != registration.location:
            raise _damaged(row, f"has location '{row['location']}', its identity says '{registration.location}'")
        return registration


@dataclass(frozen=True)
class TableVersion:
    """This version of the table, on this line of it, is what readers see."""

    table_key: str
    identity: TableIdentity
    version: int
    branch: str | None
    row_count: int
    manifest_path: str
    manifest_size: int | None = None

    @property
    def object_id(self) -> str:
        return f"table_version:{_identity_text(self.identity)}:{self.version:020d}"

    def to_row(self) -> Row:
        # No e-tag: readers take it for an identity check, and one that we did not see ourselves would be a guess.
        metadata = {
            "manifest_path": self.manifest_path,
            "manifest_size": self.manifest_size,
            "e_tag": None,
            "naming_scheme": "V2",
        }
        return _row(
            self.object_id,
            "table_version",
            table_key=self.table_key,
            identity=self.identity,
            metadata=metadata,
            table_version=self.version,
            table_branch=self.branch,
            row_count=self.row_count,
        )

    @classmethod
    def from_row(cls, row: Row) -> TableVersion:
        metadata = _metadata(row)
        version = cls(
            row["table_key"],
            _identity(row),
            int(row["table_version"]),
            row["table_branch"],
            int(row["row_count"] or 0),
            metadata.get("manifest_path", ""),
            metadata.get("manifest_size"),
        )
        _require(row, version.object_id)
        return version


@dataclass(frozen=True)
class GraphCommit:
    """One commit of the whole graph. ``extra`` is ours alone; other engines keep it and ignore it."""

    commit_id: str
    manifest_version: int
    branch: str | None
    created_at: int  # microseconds since the epoch
    parent_id: str | None = None
    merged_parent_id: str | None = None
    actor: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.commit_id

    @property
    def order(self) -> tuple[int, int, str]:
        """The order of FORMAT 3.6 among commits of one branch."""
        return self.manifest_version, self.created_at, self.commit_id

    def to_row(self) -> Row:
        metadata: dict[str, Any] = {}
        if self.parent_id is not None:
            metadata["parent_commit_id"] = self.parent_id
        if self.merged_parent_id is not None:
            metadata["merged_parent_commit_id"] = self.merged_parent_id
        if self.actor is not None:
            metadata["actor_id"] = self.actor
        metadata["created_at"] = self.created_at
        if self.extra:
            metadata["spark"] = dict(self.extra)
        return _row(
            self.commit_id,
            "graph_commit",
            metadata=metadata,
            table_version=self.manifest_version,
            table_branch=self.branch,
        )

    @classmethod
    def from_row(cls, row: Row) -> GraphCommit:
        metadata = _metadata(row)
        if not isinstance(metadata.get("created_at"), int):
            raise _damaged(row, "has no created_at")
        return cls(
            commit_id=row["object_id"],
            manifest_version=int(row["table_version"]),
            branch=row["table_branch"],
            created_at=metadata["created_at"],
            parent_id=metadata.get("parent_commit_id"),
            merged_parent_id=metadata.get("merged_parent_commit_id"),
            actor=metadata.get("actor_id"),
            extra=metadata.get("spark", {}),
        )


@dataclass(frozen=True)
class GraphHead:
    """The newest commit of a branch. Every publish rewrites this row, which is what makes a branch single-file."""

    branch: str | None
    commit_id: str
    parent_id: str | None

    @property
    def object_id(self) -> str:
        return f"graph_head:{self.branch or MAIN}"

    def to_row(self) -> Row:
        metadata = {"head_commit_id": self.commit_id}
        if self.parent_id is not None:
            metadata["parent_commit_id"] = self.parent_id
        return _row(self.object_id, "graph_head", metadata=metadata)


@dataclass(frozen=True)
class Tombstone:
    """The table is gone as of this version."""

    table_key: str
    identity: TableIdentity
    version: int

    @property
    def object_id(self) -> str:
        return f"table_tombstone:{_identity_text(self.identity)}:{self.version:020d}"

    @classmethod
    def from_row(cls, row: Row) -> Tombstone:
        tombstone = cls(row["table_key"], _identity(row), int(row["table_version"]))
        _require(row, tombstone.object_id)
        return tombstone


@dataclass(frozen=True)
class AppTransaction:
    """The newest write that an application made under a number of its own; replays of it find it and do nothing."""

    app_id: str
    version: int
    commit_id: str

    @property
    def object_id(self) -> str:
        return f"spark_txn:{self.app_id}"

    def to_row(self) -> Row:
        metadata = {"app_id": self.app_id, "version": self.version, "commit_id": self.commit_id}
        return _row(self.object_id, "spark_txn", metadata=metadata)

    @classmethod
    def from_row(cls, row: Row) -> AppTransaction:
        metadata = _metadata(row)
        transaction = cls(str(metadata.get("app_id")), int(metadata.get("version", 0)), str(metadata.get("commit_id")))
        _require(row, transaction.object_id)
        return transaction


class AbortState(str, Enum):
    UNDOING = "undoing"  # decided; its tables may not all be back yet
    DONE = "done"  # its tables are back, and published as such


@dataclass(frozen=True)
class Abort:
    """This operation never becomes visible. Published before anything of it is undone."""

    operation_id: str
    state: AbortState

    @property
    def object_id(self) -> str:
        return f"spark_abort:{self.operation_id}"

    def to_row(self) -> Row:
        return _row(self.object_id, "spark_abort", metadata={"state": self.state.value})

    @classmethod
    def from_row(cls, row: Row) -> Abort:
        operation_id = row["object_id"].removeprefix("spark_abort:")
        try:
            return cls(operation_id, AbortState(_metadata(row).get("state")))
        except ValueError as error:
            raise _damaged(row, "has an unknown state") from error


@dataclass(frozen=True)
class BranchStart:
    """A branch whose name had an earlier life begins with the version that holds this."""

    life: str

    @property
    def object_id(self) -> str:
        return f"spark_branch:{self.life}"

    def to_row(self) -> Row:
        return _row(self.object_id, "spark_branch")


def to_table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=MANIFEST_SCHEMA)


def _row(
    object_id: str,
    object_type: str,
    *,
    table_key: str = "",
    identity: TableIdentity | None = None,
    location: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    table_version: int | None = None,
    table_branch: str | None = None,
    row_count: int | None = None,
) -> Row:
    return {
        "object_id": object_id,
        "object_type": object_type,
        "location": location,
        "metadata": None if metadata is None else json.dumps(metadata, separators=(",", ":"), ensure_ascii=False),
        "base_objects": None,
        "table_key": table_key,
        "stable_table_id": None if identity is None else identity.stable_id,
        "table_incarnation_id": None if identity is None else identity.incarnation_id,
        "table_version": table_version,
        "table_branch": table_branch,
        "row_count": row_count,
    }


def _identity(row: Row) -> TableIdentity:
    stable_id, incarnation_id = row["stable_table_id"], row["table_incarnation_id"]
    if not stable_id or not incarnation_id:
        raise _damaged(row, "has no table identity")
    return TableIdentity(stable_id, incarnation_id)


def _identity_text(identity: TableIdentity) -> str:
    return f"{identity.stable_id:016x}:{identity.incarnation_id:016x}"


def _metadata(row: Row) -> dict[str, Any]:
    try:
        metadata = json.loads(row["metadata"] or "")
    except ValueError as error:
        raise _damaged(row, "has metadata that is not JSON") from error
    if not isinstance(metadata, dict):
        raise _damaged(row, "has metadata that is not a JSON object")
    return metadata


def _require(row: Row, object_id: str) -> None:
    if row["object_id"] != object_id:
        raise _damaged(row, f"should have the id '{object_id}'")


def _damaged(row: Row, what: str) -> GraphDamaged:
    return GraphDamaged(
        f"The manifest row '{row['object_id']}' ({row['object_type']}) {what}.",
        details={"object_id": row["object_id"], "object_type": row["object_type"]},
        hint="Nothing was changed. Restore __manifest from a backup, or read an earlier version of the graph.",
    )
