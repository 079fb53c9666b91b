"""From a batch as a caller has it to a batch as its table stores it, or a typed error that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import ConstraintViolation, InvalidInput, UnknownProperty, did_you_mean
from omnigraph_engine.schema.arrow import table_schema
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.keys import key_ids
from omnigraph_engine.schema.model import TableType
from omnigraph_engine.schema.row_rules import Demand
from omnigraph_engine.write.casts import Column, cast_values
from omnigraph_engine.write.checks import violation
from omnigraph_engine.write.ulids import new_ulids


def conform(batch: pa.RecordBatch, accepted: AcceptedSchema, table: TableType) -> pa.RecordBatch:
    """The rows of ``batch``, in order and unchanged in value, in exactly the logical schema of ``table``.

    Columns are matched by name; a nullable one may be absent. ``id`` is derived from ``@key`` where the type has one;
    otherwise it is the given id, or a new ULID where none is given. Nulls in required columns are left for
    ``check_rows`` to find, except in key members, without which there is no id.

    Raises:
        UnknownProperty: A column is not a property of the type.
        TypeMismatch: A column's Arrow type cannot hold the property's values.
        ConstraintViolation: A required column is missing, a value does not fit its property's type, or a given id is
            not the one that the key defines.
        InvalidInput: Two columns have the same name.
    """
    schema = table_schema(accepted, table)
    _refuse_unknown(batch.schema, schema, table)
    declared = {prop.name: str(prop.type) for prop in table.properties}
    columns: dict[str, pa.Array[Any]] = {}
    for field in schema:
        if field.name in batch.schema.names:
            place = Column(table, field.name, declared.get(field.name, "String"))
            columns[field.name] = cast_values(batch.column(field.name), field.type, place)
        elif field.name != "id":
            columns[field.name] = _absent(field, batch.num_rows, table)
    given_ids = columns.get("id", pa.nulls(batch.num_rows, pa.string()))
    members = accepted.key_in_identity_order(table)
    if members:
        columns["id"] = _key_ids({name: columns[name] for name in members}, given_ids, table)
    else:
        columns["id"] = _with_new_ids(given_ids)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _refuse_unknown(found: pa.Schema, schema: pa.Schema, table: TableType) -> None:
    for name in found.names:
        if name not in schema.names:
            raise UnknownProperty(
                f"{table.name} has no property '{name}'.",
                details={"type": table.name, "property": name},
                hint=did_you_mean(name, schema.names),
            )
        if found.names.count(name) > 1:
            raise InvalidInput(
                f"Column '{name}' of {table.name} is given more than once.",
                details={"type": table.name, "property": name},
            )


def _absent(field: pa.Field[Any], rows: int, table: TableType) -> pa.Array[Any]:
    if not field.nullable:
        raise ConstraintViolation(
            f"{table.name}.{field.name} is required, and the data has no such column.",
            details={"type": table.name, "property": field.name, "rule": "required", "count": rows, "values": []},
        )
    return pa.nulls(rows).cast(field.type)


def _key_ids(members: Mapping[str, pa.Array[Any]], given: pa.Array[Any], table: TableType) -> pa.Array[Any]:
    for name, values in members.items():
        if values.null_count:
            raise violation(table, name, Demand("required", "must not be null"), values.filter(values.is_null()))
    try:
        derived = key_ids(list(members.values()))
    except ConstraintViolation as error:
        raise ConstraintViolation(
            f"{table.name}: {error.message}",
            details={"type": table.name, "property": ", ".join(members), **error.details},
        ) from error
    other = pc.fill_null(pc.not_equal(given, derived), False)
    if pc.any(other).as_py():
        demand = Demand("key", f"must be what the key ({', '.join(members)}) says")
        raise violation(table, "id", demand, given.filter(other), derived.filter(other))
    return derived


def _with_new_ids(given: pa.Array[Any]) -> pa.Array[Any]:
    if not given.null_count:
        return given
    ids: pa.Array[Any] = pc.replace_with_mask(given, given.is_null(), new_ulids(given.null_count))
    return ids
