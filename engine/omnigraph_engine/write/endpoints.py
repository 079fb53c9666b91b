"""Where an edge's endpoints come from: columns of the data that name nodes by their id or by their key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph_engine.errors import InvalidArgument, UnknownProperty, did_you_mean
from omnigraph_engine.schema.arrow import table_schema
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.keys import key_ids
from omnigraph_engine.schema.model import EdgeType, NodeType
from omnigraph_engine.schema.row_rules import Demand
from omnigraph_engine.write.casts import Column, cast_values
from omnigraph_engine.write.checks import violation


@dataclass(frozen=True)
class Endpoint:
    """The columns of one endpoint: one with ids, or those with the members of the key, in the order of its declaration."""

    columns: tuple[str, ...]
    by_key: bool = False


@dataclass(frozen=True)
class Endpoints:
    src: Endpoint = Endpoint(("src",))
    dst: Endpoint = Endpoint(("dst",))

    def of(self, role: str) -> Endpoint:
        return self.src if role == "src" else self.dst


def with_endpoints(
    batch: pa.RecordBatch, accepted: AcceptedSchema, edge: EdgeType, endpoints: Endpoints
) -> pa.RecordBatch:
    """The batch with ``src`` and ``dst`` as ids, ready for ``conform``; columns that were used up for them are gone.

    A column that is a property of the edge stays where it is, also when an endpoint is taken from it.

    Raises:
        UnknownProperty: The data has no such column.
        InvalidArgument: The endpoint's type has no key, or one with another number of members.
        ConstraintViolation: A key member is null or does not fit its type.
    """
    if endpoints == Endpoints():
        return batch
    properties = {prop.name for prop in edge.properties} | {"id"}
    columns: dict[str, pa.Array[Any]] = dict(zip(batch.schema.names, batch.columns, strict=True))
    ids = {
        role: _ids(columns, accepted, edge, role, node_type, endpoints.of(role))
        for role, node_type in (("src", edge.from_type), ("dst", edge.to_type))
    }
    for name in (*endpoints.src.columns, *endpoints.dst.columns):
        if name not in properties:
            columns.pop(name, None)
    columns.update(ids)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _ids(
    columns: Mapping[str, pa.Array[Any]],
    accepted: AcceptedSchema,
    edge: EdgeType,
    role: str,
    node_type: str,
    endpoint: Endpoint,
) -> pa.Array[Any]:
    for name in endpoint.columns:
        if name not in columns:
            raise UnknownProperty(
                f"The data has no column '{name}', from which {edge.name}.{role} is to be taken.",
                details={"type": edge.name, "column": name},
                hint=did_you_mean(name, columns) or f"Columns: {', '.join(columns)}.",
            )
    if not endpoint.by_key:
        return columns[endpoint.columns[0]]
    node = accepted.catalog.nodes[node_type]
    key = node.declared_key
    if len(key) != len(endpoint.columns):
        raise InvalidArgument(
            f"{edge.name}.{role} is to be taken from the key of {node_type}, which has "
            f"{len(key)} member(s), and {len(endpoint.columns)} column(s) were given.",
            details={"type": edge.name, "property": role, "key": list(key), "columns": list(endpoint.columns)},
            hint=f"The key is ({', '.join(key)})." if key else "Give the column with the ids instead.",
        )
    given = dict(zip(key, endpoint.columns, strict=True))
    members = [
        _member(columns[given[name]], accepted, node, name, f"{edge.name}.{role}")
        for name in accepted.key_in_identity_order(node)
    ]
    return key_ids(members)


def _member(values: pa.Array[Any], accepted: AcceptedSchema, node: NodeType, name: str, what: str) -> pa.Array[Any]:
    declared = {prop.name: str(prop.type) for prop in node.properties}
    target = table_schema(accepted, node).field(name).type
    if values.null_count:
        demand = Demand("required", f"must not be null where {what} is taken from it")
        raise violation(node, name, demand, values.filter(values.is_null()))
    return cast_values(values, target, Column(node, name, declared[name]))
