"""Tables about a graph: its commits, branches, tables, schema and recoveries, as small DataFrames.

They are made where the graph is opened, from its manifest alone, and hold one row per commit, branch and so on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

import pyarrow as pa
from omnigraph_engine.errors import InvalidArgument, did_you_mean
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.rows import MAIN
from omnigraph_engine.schema.model import EdgeType
from omnigraph_engine.snapshot import Snapshot
from pyspark.sql import types as st

from omnigraph_spark.types import arrow_schema

Rows = Iterator[dict[str, Any]]

_TYPES = {
    "string": st.StringType(),
    "long": st.LongType(),
    "boolean": st.BooleanType(),
    "timestamp": st.TimestampType(),
}


@dataclass(frozen=True)
class MetadataTable:
    columns: str  # "name type, ..."; Spark's own DDL needs a session, which workers have not
    rows: Callable[[Graph, Snapshot], Rows]

    @property
    def schema(self) -> st.StructType:
        pairs = (column.split() for column in self.columns.split(", "))
        return st.StructType([st.StructField(name, _TYPES[kind]) for name, kind in pairs])

    def to_arrow(self, graph: Graph, snapshot: Snapshot) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows(graph, snapshot)), arrow_schema(self.schema))


def metadata_table(name: str) -> MetadataTable:
    """The table about the graph that has this name."""
    if name in METADATA_TABLES:
        return METADATA_TABLES[name]
    raise InvalidArgument(
        f"There is no table '{name}' about a graph.",
        details={"table": name},
        hint=did_you_mean(name, METADATA_TABLES) or f"Tables: {', '.join(METADATA_TABLES)}; or node:Type, edge:Type.",
    )


def _commits(graph: Graph, snapshot: Snapshot) -> Rows:
    """The commits that the snapshot contains, newest first."""
    newest = snapshot.commit.commit_id
    for commit in dropwhile(lambda commit: commit.commit_id != newest, graph.commits.list(snapshot.branch)):
        yield {
            "id": commit.commit_id,
            "branch": commit.branch or MAIN,
            "parent": commit.parent_id,
            "merged_parent": commit.merged_parent_id,
            "actor": commit.actor,
            "message": commit.extra.get("message"),
            "created_at": commit.created_at,
            "version": commit.manifest_version,
            "metrics": json.dumps(commit.extra["metrics"]) if "metrics" in commit.extra else None,
        }


def _branches(graph: Graph, _snapshot: Snapshot) -> Rows:
    for branch in graph.branches.list():
        yield {
            "name": branch.name,
            "parent": branch.parent,
            "parent_version": branch.parent_version,
            "created_at": None if branch.created_at is None else branch.created_at * 1_000_000,
        }


def _tables(_graph: Graph, snapshot: Snapshot) -> Rows:
    for key, table in snapshot.tables.items():
        published = table.published
        yield {
            "table": key,
            "version": published.version,
            "fork": published.branch,
            "rows": published.row_count,
            "location": published.location,
        }


def _schema(graph: Graph, _snapshot: Snapshot) -> Rows:
    for table in graph.schema.catalog.table_types():
        edge = isinstance(table, EdgeType)
        ends = {"src": table.from_type, "dst": table.to_type} if isinstance(table, EdgeType) else {}
        for prop in table.properties:
            yield {
                "kind": "edge" if edge else "node",
                "type": table.name,
                "property": prop.name,
                "declared": str(prop.type),
                "nullable": prop.type.nullable,
                "key": not isinstance(table, EdgeType) and prop.name in table.key,
                "src": ends.get("src"),
                "dst": ends.get("dst"),
            }
        if not table.properties:
            yield {"kind": "edge" if edge else "node", "type": table.name, **ends}


def _recoveries(graph: Graph, _snapshot: Snapshot) -> Rows:
    for record in graph.maintenance.recoveries():
        tables = [
            {"table": outcome.table_key, "from": outcome.from_version, "to": outcome.to_version}
            for outcome in record.tables
        ]
        yield {
            "operation": record.operation_id,
            "kind": record.kind.value,
            "commit": record.commit_id,
            "actor": record.actor,
            "writer": record.writer_kind,
            "tables": json.dumps(tables),
            "created_at": record.created_at,
        }


METADATA_TABLES = {
    "commits": MetadataTable(
        "id string, branch string, parent string, merged_parent string, actor string, message string, "
        "created_at timestamp, version long, metrics string",
        _commits,
    ),
    "branches": MetadataTable("name string, parent string, parent_version long, created_at timestamp", _branches),
    "snapshot": MetadataTable("table string, version long, fork string, rows long, location string", _tables),
    "schema": MetadataTable(
        "kind string, type string, property string, declared string, nullable boolean, key boolean, src string, dst string",
        _schema,
    ),
    "recoveries": MetadataTable(
        "operation string, kind string, commit string, actor string, writer string, tables string, created_at timestamp",
        _recoveries,
    ),
}
