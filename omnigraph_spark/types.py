"""Spark's types for the columns of a table, and batches in exactly the shape that Spark demands.

Spark has no unsigned integers, no fixed-size lists and no milliseconds. Reading widens: U32 is ``long``, U64
``decimal(20,0)``, DateTime ``timestamp``, Vector ``array<float>``, Blob ``binary``. On the way back there is nothing to do
here: the engine's ``conform`` accepts every type from which values arrive unchanged, and these are such.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from omnigraph_engine.errors import TypeMismatch
from pyspark.sql import types as st

_SPARK_TYPES: dict[pa.DataType, st.DataType] = {
    pa.string(): st.StringType(),
    pa.bool_(): st.BooleanType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.uint32(): st.LongType(),
    pa.uint64(): st.DecimalType(20, 0),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.date32(): st.DateType(),
    pa.date64(): st.TimestampType(),
    pa.large_binary(): st.BinaryType(),
}

_ARROW_TYPES: dict[type[st.DataType], pa.DataType] = {
    st.StringType: pa.string(),
    st.CharType: pa.string(),
    st.VarcharType: pa.string(),
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", "UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
    st.BinaryType: pa.binary(),
    st.NullType: pa.null(),
}


def spark_schema(stored: pa.Schema) -> st.StructType:
    """The columns of a table, given in its logical Arrow schema, as Spark shows them."""
    return st.StructType([st.StructField(field.name, _spark_type(field.type), field.nullable) for field in stored])


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """The Arrow schema that batches of ``schema`` have at Spark's border, to the last flag.

    Raises:
        TypeMismatch: A column has a type of which a graph has no equivalent, such as a struct.
    """
    return pa.schema(
        [pa.field(field.name, _arrow_type(field.dataType, field.name), field.nullable) for field in schema]
    )


def conform_to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``batch`` that ``schema`` (of ``arrow_schema``) names, in its order and exactly in its types."""
    columns = [_cast(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _spark_type(stored: pa.DataType) -> st.DataType:
    if isinstance(stored, pa.ListType | pa.FixedSizeListType):
        return st.ArrayType(_spark_type(stored.value_type), stored.value_field.nullable)
    return _SPARK_TYPES[stored]


def _arrow_type(spark: st.DataType, column: str) -> pa.DataType:
    if isinstance(spark, st.ArrayType):
        element = _arrow_type(spark.elementType, column)
        return pa.list_(pa.field("element", element, nullable=spark.containsNull))
    if isinstance(spark, st.DecimalType):
        return pa.decimal128(spark.precision, spark.scale)
    found = _ARROW_TYPES.get(type(spark))
    if found is None:
        raise TypeMismatch(
            f"Column '{column}' is {spark.simpleString()}, and no property type holds that.",
            details={"column": column, "found": spark.simpleString()},
            hint="Drop the column, or turn it into columns of simple types or arrays of them.",
        )
    return found


def _cast(values: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        raise TypeMismatch(
            f"Column '{field.name}' has a value that Spark's {field.type} cannot hold: {error}",
            details={"column": field.name, "found": str(values.type), "expected": str(field.type)},
        ) from error
