"""The Arrow shape of a table: columns, types, nullability and field metadata (FORMAT 6.1 and 6.2).

This is the logical shape, in which every layer above storage sees rows: a Blob is ``large_binary``, marked in its
field's metadata. How Lance stores a blob is known to ``tables/blobs.py`` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph_engine.schema.model import EdgeType, Property, PropType, Scalar, TableType, Vector

if TYPE_CHECKING:
    from omnigraph_engine.schema.identity import AcceptedSchema

PRIMARY_KEY_METADATA = {b"lance-schema:unenforced-primary-key": b"true"}
STABLE_PROPERTY_ID = b"omnigraph.stable_property_id"
BLOB_MARKER = b"omnigraph.blob"

_SCALARS: dict[Scalar, pa.DataType] = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
    Scalar.BLOB: pa.large_binary(),
}


def arrow_type(prop_type: PropType) -> pa.DataType:
    """The one Arrow type in which values of ``prop_type`` are handled."""
    if isinstance(prop_type.scalar, Vector):
        return pa.list_(pa.field("item", pa.float32()), prop_type.scalar.size)
    scalar = _SCALARS[prop_type.scalar]
    return pa.list_(pa.field("item", scalar)) if prop_type.list else scalar


def table_schema(accepted: AcceptedSchema, table: TableType) -> pa.Schema:
    """The columns of ``table`` in stored order: ``id``, for edges ``src`` and ``dst``, then the properties by name."""
    fields: list[pa.Field[Any]] = [pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA)]
    if isinstance(table, EdgeType):
        fields += [pa.field(name, pa.string(), nullable=False) for name in ("src", "dst")]
    by_name = sorted(table.properties, key=lambda prop: prop.name)
    fields += [_property_field(prop, accepted.property_ids[table.name, prop.name]) for prop in by_name]
    return pa.schema(fields)


def _property_field(prop: Property, property_id: int) -> pa.Field[Any]:
    metadata = {STABLE_PROPERTY_ID: str(property_id).encode()}
    if prop.type.scalar is Scalar.BLOB:
        metadata[BLOB_MARKER] = b"true"
    return pa.field(prop.name, arrow_type(prop.type), nullable=prop.type.nullable, metadata=metadata)
