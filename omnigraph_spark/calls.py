"""Where a graph's storage is reached from: in this process, or, when only Spark's server can reach it, over there.

A verb is a plain function whose first argument is the opened graph. ``Here`` calls it; ``OnServer`` sends it through the data
source, which calls it beside the data, and hands back what it returned or raised, exactly.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from omnigraph_engine.errors import OmnigraphError
from omnigraph_engine.graph import Graph
from pyspark.sql import SparkSession
from pyspark.sql import types as st

from omnigraph_spark.options import CALL

Result = TypeVar("Result")
Opener = Callable[[], Graph]

ANSWER = st.StructType([st.StructField("answer", st.StringType(), nullable=False)])


class Host(Protocol):
    """Somebody who can reach the graph."""

    def call(self, verb: Callable[..., Result], *args: Any) -> Result:
        """What ``verb(graph, *args)`` returns, or the typed error that it raises."""


class Here:
    """This process reaches the storage itself."""

    def __init__(self, opener: Opener) -> None:
        self._graph = opener()

    def call(self, verb: Callable[..., Result], *args: Any) -> Result:
        return verb(self._graph, *args)


class OnServer:
    """Spark's server reaches the storage; this process need not."""

    def __init__(self, spark: SparkSession, uri: str, first: Opener, later: Opener) -> None:
        self._spark = spark
        self._uri = uri
        self._opener = first
        self.call(_nothing)
        self._opener = later

    def call(self, verb: Callable[..., Result], *args: Any) -> Result:
        reader = self._spark.read.format("omnigraph")
        answer = reader.option(CALL.name, encode((self._opener, verb, args))).load(self._uri).collect()
        return decoded(answer[0][0])  # type: ignore[no-any-return]


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def host(spark: SparkSession, uri: str, first: Opener, later: Opener) -> Host:
    """A client of Spark Connect may be anywhere; a classic session's driver is where its jobs are."""
    if is_connect(spark):
        return OnServer(spark, uri, first, later)
    return Here(first)


def answer_call(payload: str) -> pa.RecordBatch:
    """The server's side of a call. A typed error is an answer too: raised, Spark would repeat the call."""
    opener, verb, args = decode(payload)
    try:
        text = encode(verb(opener(), *args))
    except OmnigraphError as error:
        text = encode(error)
    return pa.RecordBatch.from_arrays([pa.array([text])], schema=pa.schema([pa.field("answer", pa.string(), False)]))


def decoded(text: str) -> Any:
    """What the other side returned; raises what it raised."""
    value = decode(text)
    if isinstance(value, OmnigraphError):
        raise value
    return value


def encode(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def decode(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - between two ends of one Spark session, which runs our code


def _nothing(_graph: Graph) -> None:
    """Opening the graph was all."""
