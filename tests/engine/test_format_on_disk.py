"""The bytes of a small graph, compared with FORMAT line by line: what OmniGraph itself must be able to open."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from omnigraph_engine.graph import Graph
from ulid import ULID

TABLES = {  # the worked example of FORMAT 5.5
    "node:Company": ("nodes/0000000000000001-0000000000000009", 1, 9),
    "node:Person": ("nodes/0000000000000002-000000000000000a", 2, 10),
    "edge:Knows": ("edges/0000000000000003-000000000000000b", 3, 11),
    "edge:WorksAt": ("edges/0000000000000004-000000000000000c", 4, 12),
}
LANCE_INTERNALS = ("_versions", "_transactions", "data", "_deletions")
KEY = {b"lance-schema:unenforced-primary-key": b"true"}
ID = pa.field("id", pa.string(), nullable=False, metadata=KEY)
ENDS = [pa.field("src", pa.string(), nullable=False), pa.field("dst", pa.string(), nullable=False)]


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    return Graph.create(tmp_path / "social.omni", social)


def _rows(graph: Graph) -> dict[str, dict[str, Any]]:
    table = lance.dataset(f"{graph.uri}/__manifest").to_table()
    rows = {row["object_id"]: row for row in table.to_pylist()}
    assert len(rows) == table.num_rows
    return rows


def _row(object_id: str, object_type: str, **columns: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(lance_columns())
    return {**nothing, "object_id": object_id, "object_type": object_type, "table_key": "", **columns}


def lance_columns() -> list[str]:
    return [
        "object_id",
        "object_type",
        "location",
        "metadata",
        "base_objects",
        "table_key",
        "stable_table_id",
        "table_incarnation_id",
        "table_version",
        "table_branch",
        "row_count",
    ]


def _version_row(graph: Graph, table_key: str, version: int, row_count: int) -> dict[str, Any]:
    location, stable, incarnation = TABLES[table_key]
    manifest = Path(graph.uri, location, "_versions", f"{2**64 - 1 - version:020d}.manifest")
    metadata = (
        f'{{"manifest_path":"{manifest}","manifest_size":{manifest.stat().st_size},"e_tag":null,"naming_scheme":"V2"}}'
    )
    return _row(
        f"table_version:{stable:016x}:{incarnation:016x}:{version:020d}",
        "table_version",
        metadata=metadata,
        table_key=table_key,
        stable_table_id=stable,
        table_incarnation_id=incarnation,
        table_version=version,
        row_count=row_count,
    )


def _table_row(table_key: str) -> dict[str, Any]:
    location, stable, incarnation = TABLES[table_key]
    return _row(
        f"table:{stable:016x}:{incarnation:016x}",
        "table",
        location=location,
        table_key=table_key,
        stable_table_id=stable,
        table_incarnation_id=incarnation,
    )


def test_the_folder_holds_the_schema_files_and_one_dataset_per_type_and_nothing_else(graph: Graph) -> None:
    files = {path.relative_to(graph.uri).as_posix() for path in Path(graph.uri).rglob("*") if path.is_file()}
    datasets = {"__manifest", *(location for location, _, _ in TABLES.values())}
    internals = {file for file in files if any(f"/{part}/" in file for part in LANCE_INTERNALS)}
    assert files - internals == {"_schema.pg", "_schema.ir.json", "__schema_state.json"}
    assert {file.rsplit("/", 2)[0] for file in internals} == datasets
    for dataset in datasets:
        versions = {path.name for path in Path(graph.uri, dataset, "_versions").iterdir()}
        assert versions - {"latest_version_hint.json"} == {f"{2**64 - 2:020d}.manifest"}


def _property(name: str, scalar: str, *, nullable: bool = True, key: bool = False, **identity: int) -> dict[str, Any]:
    return {
        "name": name,
        **identity,
        "prop_type": {"scalar": scalar, "nullable": nullable, "list": False, "enum_values": None},
        "annotations": [],
        "property_constraints": ["key"] if key else [],
        "embed_source": None,
        "declared_directly": True,
        "satisfies_interface_properties": [],
    }


def _key_name(**identity: int) -> dict[str, Any]:
    return _property("name", "String", nullable=False, key=True, **identity)


SHAPE = {
    "interfaces": [],
    "nodes": [
        {
            "name": "Company",
            "annotations": [],
            "implements": [],
            "properties": [_key_name()],
            "constraints": [{"Key": ["name"]}],
        },
        {
            "name": "Person",
            "annotations": [],
            "implements": [],
            "properties": [_property("age", "I32"), _key_name()],
            "constraints": [{"Key": ["name"]}],
        },
    ],
    "edges": [
        {
            "name": "Knows",
            "from_type": "Person",
            "to_type": "Person",
            "cardinality": {"min": 0, "max": None},
            "annotations": [],
            "properties": [_property("since", "Date")],
            "constraints": [],
        },
        {
            "name": "WorksAt",
            "from_type": "Person",
            "to_type": "Company",
            "cardinality": {"min": 0, "max": None},
            "annotations": [],
            "properties": [],
            "constraints": [],
        },
    ],
}


def _key_constraint(type_id: int, type_name: str, property_id: int) -> dict[str, Any]:
    field = {
        "kind": "property",
        "owner_type_id": type_id,
        "owner_type_name": type_name,
        "property_id": property_id,
        "property_name": "name",
    }
    return {"kind": "key", "fields": [field]}


def _ir(domain: str) -> dict[str, Any]:
    company, person = ({"type_id": number, "type_name": name} for number, name in ((1, "Company"), (2, "Person")))
    return {
        "ir_version": 2,
        "schema_identity_domain": domain,
        "next_identity_id": 13,
        "interfaces": [],
        "nodes": [
            {
                "name": "Company",
                "type_id": 1,
                "table_incarnation_id": 9,
                "annotations": [],
                "implements": [],
                "properties": [_key_name(property_id=5)],
                "constraints": [_key_constraint(1, "Company", 5)],
            },
            {
                "name": "Person",
                "type_id": 2,
                "table_incarnation_id": 10,
                "annotations": [],
                "implements": [],
                "properties": [_property("age", "I32", property_id=6), _key_name(property_id=7)],
                "constraints": [_key_constraint(2, "Person", 7)],
            },
        ],
        "edges": [
            {
                "name": "Knows",
                "type_id": 3,
                "table_incarnation_id": 11,
                "from_type": person,
                "to_type": person,
                "cardinality": {"min": 0, "max": None},
                "annotations": [],
                "properties": [_property("since", "Date", property_id=8)],
                "constraints": [],
            },
            {
                "name": "WorksAt",
                "type_id": 4,
                "table_incarnation_id": 12,
                "from_type": person,
                "to_type": company,
                "cardinality": {"min": 0, "max": None},
                "annotations": [],
                "properties": [],
                "constraints": [],
            },
        ],
    }


def _hash(document: dict[str, Any]) -> str:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_the_schema_files_are_the_text_itself_the_schema_with_its_identities_and_their_hashes(
    graph: Graph, social: str
) -> None:
    root = Path(graph.uri)
    domain = json.loads((root / "_schema.ir.json").read_text())["schema_identity_domain"]
    assert domain == str(ULID.from_str(domain))
    state = {
        "format_version": 2,
        "schema_shape_hash": _hash(SHAPE),
        "schema_ir_hash": _hash(_ir(domain)),
        "schema_identity_version": 2,
        "schema_identity_domain": domain,
    }
    assert (root / "_schema.pg").read_bytes() == social.encode()
    assert (root / "_schema.ir.json").read_text() == json.dumps(_ir(domain), indent=2)
    assert (root / "__schema_state.json").read_text() == json.dumps(state, indent=2)


def test_each_graph_has_an_identity_domain_of_its_own(graph: Graph, tmp_path: Path, social: str) -> None:
    other = Graph.create(tmp_path / "other.omni", social)
    assert graph.schema.accepted.domain != other.schema.accepted.domain


def test_the_manifest_has_the_columns_keys_and_stamp_of_version_6(graph: Graph) -> None:
    expected = pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=KEY),
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
        metadata={"omnigraph:internal_schema_version": "6"},
    )
    graph.load({"Company": pa.table({"name": ["Acme"]})})  # a publish keeps it all
    for version in (1, 2):
        found = lance.dataset(f"{graph.uri}/__manifest", version=version).schema
        assert found.equals(expected, check_metadata=True)


@pytest.mark.parametrize("path", ["__manifest", *(location for location, _, _ in TABLES.values())])
def test_every_dataset_is_of_file_format_2_2_with_stable_row_ids_and_no_config(graph: Graph, path: str) -> None:
    dataset = lance.dataset(f"{graph.uri}/{path}")
    assert dataset.version == 1
    assert dataset.data_storage_version == "2.2"
    assert dataset.has_stable_row_ids
    assert dataset.config() == {}
    assert dataset.metadata == {}
    assert dataset.describe_indices() == []


@pytest.mark.parametrize(
    ("table_key", "fields"),
    [
        ("node:Company", [ID, ("name", pa.string(), False, 5)]),
        ("node:Person", [ID, ("age", pa.int32(), True, 6), ("name", pa.string(), False, 7)]),
        ("edge:Knows", [ID, *ENDS, ("since", pa.date32(), True, 8)]),
        ("edge:WorksAt", [ID, *ENDS]),
    ],
)
def test_a_table_has_its_id_then_its_ends_then_its_properties_by_name(
    graph: Graph, table_key: str, fields: list[Any]
) -> None:
    expected = pa.schema(
        field
        if isinstance(field, pa.Field)
        else pa.field(*field[:3], metadata={"omnigraph.stable_property_id": str(field[3])})
        for field in fields
    )
    dataset = lance.dataset(f"{graph.uri}/{TABLES[table_key][0]}")
    assert dataset.schema.equals(expected, check_metadata=True)
    assert dataset.count_rows() == 0


def test_the_first_version_of_the_manifest_holds_every_table_the_first_commit_and_the_head(graph: Graph) -> None:
    rows = _rows(graph)
    (commit,) = (row for row in rows.values() if row["object_type"] == "graph_commit")
    created_at = json.loads(commit["metadata"])["created_at"]
    expected = [
        *(_table_row(key) for key in TABLES),
        *(_version_row(graph, key, 1, 0) for key in TABLES),
        _row(commit["object_id"], "graph_commit", metadata=f'{{"created_at":{created_at}}}', table_version=1),
        _row("graph_head:main", "graph_head", metadata=f'{{"head_commit_id":"{commit["object_id"]}"}}'),
    ]
    assert rows == {row["object_id"]: row for row in expected}
    ulid = ULID.from_str(commit["object_id"])
    assert str(ulid) == commit["object_id"]
    assert abs(ulid.timestamp - created_at / 1e6) < 5


def test_a_load_adds_one_version_row_per_table_and_one_commit_and_moves_the_head(graph: Graph) -> None:
    before = _rows(graph)
    (genesis,) = (row["object_id"] for row in before.values() if row["object_type"] == "graph_commit")
    receipt = graph.load(
        {
            "Person": pa.table({"name": ["Ada", "Bob"]}),
            "Knows": pa.table({"src": ["Ada"], "dst": ["Bob"]}),
        },
        actor="ada",
        message="first",
    )
    assert receipt.commit is not None
    commit_id, created_at = receipt.commit.commit_id, receipt.commit.created_at
    expected = [
        _version_row(graph, "node:Person", 2, 2),
        _version_row(graph, "edge:Knows", 2, 1),
        _row(
            commit_id,
            "graph_commit",
            metadata=f'{{"parent_commit_id":"{genesis}","actor_id":"ada","created_at":{created_at},'
            f'"spark":{{"message":"first","request":"{receipt.commit.extra["request"]}","metrics":{{'
            '"node:Person":{"inserted":2,"updated":0,"deleted":0,"skipped":0},'
            '"edge:Knows":{"inserted":1,"updated":0,"deleted":0,"skipped":0}}}}',
            table_version=2,
        ),
        _row(
            "graph_head:main",
            "graph_head",
            metadata=f'{{"head_commit_id":"{commit_id}","parent_commit_id":"{genesis}"}}',
        ),
    ]
    assert _rows(graph) == {**before, **{row["object_id"]: row for row in expected}}
    manifest = lance.dataset(f"{graph.uri}/__manifest")
    assert (manifest.version, manifest.config()) == (2, {})


def test_a_commit_without_actor_or_message_omits_their_keys(graph: Graph) -> None:
    receipt = graph.load({"Company": pa.table({"name": ["Acme"]})})
    assert receipt.commit is not None
    metadata = json.loads(_rows(graph)[receipt.commit.commit_id]["metadata"])
    assert list(metadata) == ["parent_commit_id", "created_at", "spark"]
    assert list(metadata["spark"]) == ["request", "metrics"]


def test_rows_are_stored_in_the_order_of_the_columns_of_the_table(graph: Graph) -> None:
    graph.load({"Person": pa.table({"name": ["Ada"], "age": pa.array([36], pa.int32())})})
    stored = lance.dataset(f"{graph.uri}/{TABLES['node:Person'][0]}")
    assert stored.to_table().to_pylist() == [{"id": "Ada", "age": 36, "name": "Ada"}]
    assert stored.data_storage_version == "2.2"
    assert stored.has_stable_row_ids
    assert stored.config() == {}
