"""Blobs between the logical table shape, where they are plain bytes, and Lance's blob v2 extension.

Scan with ``blob_handling="all_binary"`` to get the bytes back: a plain scan returns descriptors.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance.blob import BlobType

from omnigraph_engine.schema.arrow import BLOB_MARKER

# Lance's Rust `blob_field` makes this two-field shape, pylance's a four-field one that adds ranges of external objects.
# Tables that both engines write to have the former.
_STORAGE = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])
_BLOB: pa.BaseExtensionType = BlobType.__arrow_ext_deserialize__(_STORAGE, b"")


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The logical ``schema`` as Lance stores it; the very same object when it has no blob."""
    for position, field in enumerate(schema):
        metadata = field.metadata or {}
        if BLOB_MARKER in metadata:
            kept = {key: value for key, value in metadata.items() if key != BLOB_MARKER}
            schema = schema.set(position, pa.field(field.name, _BLOB, field.nullable, kept))
    return schema


def logical_schema(schema: pa.Schema) -> pa.Schema:
    """The inverse of ``stored_schema``: what Lance stores, with blobs as plain bytes."""
    for position, field in enumerate(schema):
        if isinstance(field.type, BlobType):
            marked = {**(field.metadata or {}), BLOB_MARKER: b"true"}
            schema = schema.set(position, pa.field(field.name, pa.large_binary(), field.nullable, marked))
    return schema


def to_stored(batch: pa.RecordBatch, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """``batch`` as Lance stores it, null and empty blobs kept apart; the very same object when nothing changes.

    Args:
        batch: Rows with blobs as plain bytes.
        schema: The stored schema of the table. It is needed for rows that were scanned, whose blobs bear no marker;
            by default it follows from the batch.
    """
    target = stored_schema(batch.schema) if schema is None else schema
    if batch.schema.equals(target, check_metadata=True):
        return batch
    columns = [_stored_column(batch.column(field.name), field.type) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _stored_column(values: pa.Array[Any], target: pa.DataType) -> pa.Array[Any]:
    if not isinstance(target, BlobType):
        return values
    # A null blob is a null struct; any other sets exactly one of data and uri.
    shape: Any = target.storage_type
    fields: list[pa.Field[Any]] = list(shape)
    children = [values, *(pa.nulls(len(values)).cast(field.type) for field in fields[1:])]
    storage = pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
    return pa.ExtensionArray.from_storage(target, storage)
