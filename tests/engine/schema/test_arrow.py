from __future__ import annotations

import pyarrow as pa
import pytest
from omnigraph_engine.schema.arrow import arrow_type, table_schema
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import accept_initial
from omnigraph_engine.schema.model import PropType, Scalar, Vector

SCHEMA = """
interface Named { title: String? }
node Person implements Named { zeta: I32?  name: String @key  photo: Blob?  alpha: Vector(3) }
edge Knows: Person -> Person { until: DateTime?  since: Date }
"""
ACCEPTED = accept_initial(parse_catalog(SCHEMA))
PERSON = ACCEPTED.catalog.nodes["Person"]
KNOWS = ACCEPTED.catalog.edges["Knows"]


@pytest.mark.parametrize(
    ("prop_type", "expected"),
    [
        (PropType(Scalar.STRING), pa.string()),
        (PropType(Scalar.STRING, enum_values=("a", "b")), pa.string()),
        (PropType(Scalar.BOOL), pa.bool_()),
        (PropType(Scalar.I32), pa.int32()),
        (PropType(Scalar.I64), pa.int64()),
        (PropType(Scalar.U32), pa.uint32()),
        (PropType(Scalar.U64), pa.uint64()),
        (PropType(Scalar.F32), pa.float32()),
        (PropType(Scalar.F64), pa.float64()),
        (PropType(Scalar.DATE), pa.date32()),
        (PropType(Scalar.DATETIME), pa.date64()),
        (PropType(Scalar.BLOB), pa.large_binary()),
        (PropType(Vector(3)), pa.list_(pa.field("item", pa.float32(), nullable=True), 3)),
        (PropType(Scalar.DATETIME, list=True), pa.list_(pa.field("item", pa.date64(), nullable=True))),
    ],
    ids=str,
)
def test_each_type_of_the_language_has_exactly_one_arrow_type(prop_type: PropType, expected: pa.DataType) -> None:
    assert arrow_type(prop_type).equals(expected, check_metadata=True)


def test_every_scalar_of_the_language_has_an_arrow_type() -> None:
    assert all(isinstance(arrow_type(PropType(scalar)), pa.DataType) for scalar in Scalar)


def test_a_node_table_has_id_then_all_properties_by_name_including_inherited_ones() -> None:
    assert table_schema(ACCEPTED, PERSON).names == ["id", "alpha", "name", "photo", "title", "zeta"]


def test_an_edge_table_has_id_src_and_dst_before_the_properties() -> None:
    assert table_schema(ACCEPTED, KNOWS).names == ["id", "src", "dst", "since", "until"]


def test_only_optional_properties_are_nullable() -> None:
    fields = [*table_schema(ACCEPTED, PERSON), *table_schema(ACCEPTED, KNOWS)]

    assert {field.name for field in fields if field.nullable} == {"photo", "title", "zeta", "until"}


def test_id_alone_is_marked_as_primary_key_and_each_property_carries_its_stable_id() -> None:
    schema = table_schema(ACCEPTED, KNOWS)

    assert schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert schema.field("src").metadata is None
    assert schema.field("dst").metadata is None
    stable_id = str(ACCEPTED.property_ids["Knows", "since"]).encode()
    assert schema.field("since").metadata == {b"omnigraph.stable_property_id": stable_id}
    assert schema.metadata is None


def test_a_blob_is_marked_so_that_storage_can_tell_it_from_other_binary() -> None:
    schema = table_schema(ACCEPTED, PERSON)

    assert [field.name for field in schema if b"omnigraph.blob" in (field.metadata or {})] == ["photo"]
