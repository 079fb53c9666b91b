"""Types at Spark's border: every stored type has one Spark type, and batches match it to the last flag."""

from __future__ import annotations

import decimal
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from omnigraph_engine.errors import TypeMismatch
from omnigraph_engine.schema.arrow import arrow_type
from omnigraph_engine.schema.model import PropType, Scalar, Vector
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from omnigraph_spark.types import arrow_schema, conform_to_spark, spark_schema

SPARK_NAMES = {
    Scalar.STRING: "string",
    Scalar.BOOL: "boolean",
    Scalar.I32: "int",
    Scalar.I64: "bigint",
    Scalar.U32: "bigint",
    Scalar.U64: "decimal(20,0)",
    Scalar.F32: "float",
    Scalar.F64: "double",
    Scalar.DATE: "date",
    Scalar.DATETIME: "timestamp",
    Scalar.BLOB: "binary",
}


def stored(*types: PropType) -> pa.Schema:
    return pa.schema([pa.field(f"c{place}", arrow_type(kind), kind.nullable) for place, kind in enumerate(types)])


@pytest.mark.parametrize("scalar", Scalar)
@pytest.mark.parametrize("nullable", [True, False])
def test_every_scalar_has_one_spark_type(scalar: Scalar, nullable: bool) -> None:  # noqa: FBT001
    (field,) = spark_schema(stored(PropType(scalar, nullable=nullable)))
    assert (field.dataType.simpleString(), field.nullable) == (SPARK_NAMES[scalar], nullable)


def test_lists_and_vectors_are_arrays() -> None:
    schema = spark_schema(stored(PropType(Scalar.U64, list=True), PropType(Vector(3))))
    assert schema.simpleString() == "struct<c0:array<decimal(20,0)>,c1:array<float>>"


@pytest.mark.parametrize("nullable", [True, False])
def test_batches_have_exactly_the_schema_that_spark_checks_for(nullable: bool) -> None:  # noqa: FBT001
    kinds = [PropType(scalar, nullable=nullable) for scalar in Scalar]
    kinds += [PropType(scalar, nullable=nullable, list=True) for scalar in Scalar if scalar is not Scalar.BLOB]
    kinds += [PropType(Vector(2), nullable=nullable)]
    schema = spark_schema(stored(*kinds))
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))
    empty = pa.RecordBatch.from_pylist([], stored(*kinds))
    assert conform_to_spark(empty, arrow_schema(schema)).schema.equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (PropType(Scalar.U32), [2**32 - 1, None], [2**32 - 1, None]),
        (PropType(Scalar.U64), [2**64 - 1, None], [decimal.Decimal(2**64 - 1), None]),
        (PropType(Scalar.U64, list=True), [[2**64 - 1, None], None], [[decimal.Decimal(2**64 - 1), None], None]),
        (PropType(Vector(2)), [[1.0, 2.0], None, [3.0, 4.0]], [[1.0, 2.0], None, [3.0, 4.0]]),
        (PropType(Scalar.BLOB), [b"", None, b"x"], [b"", None, b"x"]),
    ],
)
@pytest.mark.parametrize("skipped", [0, 1])
def test_values_stay_what_they_are(kind: PropType, given: list[Any], expected: list[Any], skipped: int) -> None:
    """Also in a slice, where offsets and buffers do not begin at nought."""
    batch = pa.RecordBatch.from_arrays([pa.array(given, arrow_type(kind))], ["c0"]).slice(skipped)
    target = arrow_schema(spark_schema(batch.schema))
    assert conform_to_spark(batch, target).column(0).to_pylist() == expected[skipped:]


@pytest.mark.parametrize("milliseconds", [0, -1, 1_700_000_000_123])
def test_a_datetime_is_an_instant_with_its_milliseconds(milliseconds: int) -> None:
    column = pa.array([milliseconds, None], pa.int64()).view(pa.date64())
    batch = pa.RecordBatch.from_arrays([column, pa.ListArray.from_arrays([0, 1, 2], column)], ["one", "many"])
    conformed = conform_to_spark(batch, arrow_schema(spark_schema(batch.schema)))
    instant = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    assert conformed.to_pylist() == [{"one": instant, "many": [instant]}, {"one": None, "many": [None]}]


def test_a_datetime_beyond_sparks_range_is_refused_and_not_wrapped() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([2**62], pa.int64()).view(pa.date64())], ["when"])
    with pytest.raises(TypeMismatch, match="Column 'when' has a value that Spark"):
        conform_to_spark(batch, arrow_schema(spark_schema(batch.schema)))


def test_a_spark_type_without_an_equivalent_is_named() -> None:
    schema = st.StructType([st.StructField("place", st.StructType([st.StructField("x", st.LongType())]))])
    with pytest.raises(TypeMismatch, match="Column 'place' is struct<x:bigint>"):
        arrow_schema(schema)
