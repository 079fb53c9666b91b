"""Staged index segments, and their journey as text."""

from __future__ import annotations

import base64
import json
from dataclasses import fields
from datetime import datetime
from enum import Enum
from typing import Any

from lance import IndexFile
from lance.bitmap import Bitmap
from lance.dataset import Index

from omnigraph_engine.tables.exact import lance_errors
from omnigraph_engine.tables.staged import StagedWrite, StageKind, new_transaction_uuid
from omnigraph_engine.tables.table import Table


class IndexKind(str, Enum):
    BTREE = "BTREE"
    INVERTED = "INVERTED"
    IVF_FLAT = "IVF_FLAT"


# One partition and L2 are what the format prescribes for vectors.
_PARAMETERS: dict[IndexKind, dict[str, Any]] = {IndexKind.IVF_FLAT: {"num_partitions": 1, "metric": "L2"}}


def stage_index(table: Table, column: str, kind: IndexKind) -> StagedWrite | None:
    """An index over every row of this version, under Lance's default name; None when the table has no rows."""
    fragment_ids = [fragment.fragment_id for fragment in table.fragments() if fragment.rows]
    if not fragment_ids:
        return None
    with lance_errors(f"Indexing {table.ref.table_key}.{column}"):
        segment = table.dataset.create_index_uncommitted(
            column, kind.value, name=f"{column}_idx", fragment_ids=fragment_ids, **_PARAMETERS.get(kind, {})
        )
        if kind is IndexKind.INVERTED:
            # Its files sit in a staging folder until merged; committed as they are, every search would fail.
            segment = table.dataset.merge_existing_index_segments([segment])
    return StagedWrite(
        table_key=table.ref.table_key,
        kind=StageKind.INDEX,
        base_version=table.ref.version,
        transaction_uuid=new_transaction_uuid(),
        line=table.ref.branch,
        new_indices=(encode_index(segment),),
    )


def encode_index(index: Index) -> str:
    """A segment's description as JSON text; ``decode_index`` gives it back equal."""
    document = {field.name: getattr(index, field.name) for field in fields(index)}
    document["fragment_ids"] = sorted(index.fragment_ids)
    document["created_at"] = index.created_at.isoformat() if index.created_at else None
    document["files"] = None if index.files is None else [[file.path, file.size_bytes] for file in index.files]
    if index.index_details is not None:
        name, details = index.index_details
        document["index_details"] = [name, base64.b64encode(details).decode()]
    return json.dumps(document, separators=(",", ":"))


def decode_index(text: str) -> Index:
    document: dict[str, Any] = json.loads(text)
    document["fragment_ids"] = Bitmap(document["fragment_ids"])
    if document["created_at"]:
        document["created_at"] = datetime.fromisoformat(document["created_at"])
    if document["files"] is not None:
        document["files"] = [IndexFile(path=path, size_bytes=size) for path, size in document["files"]]
    if document["index_details"] is not None:
        name, details = document["index_details"]
        document["index_details"] = (name, base64.b64decode(details))
    return Index(**document)
