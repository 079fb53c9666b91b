"""OmniGraph for Spark: ``spark.read.format("omnigraph")`` and ``df.write.format("omnigraph")``.

Importing this loads neither Lance nor the engine: Spark starts its workers by forking, and Lance does not survive that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from omnigraph_spark.datasource import OmnigraphDataSource

if TYPE_CHECKING:
    from omnigraph_spark.graph import Graph

__all__ = ["Graph", "register"]


def register(spark: SparkSession) -> None:
    """The format is known in this session afterwards, also where Spark did not find it by itself.

    It usually does: a broken ``pyspark_*`` package beside this one, or a platform with its own rules, are the exceptions.
    """
    spark.dataSource.register(OmnigraphDataSource)


def __getattr__(name: str) -> Any:
    if name == "Graph":
        from omnigraph_spark.graph import Graph  # noqa: PLC0415 - see the first lines

        return Graph
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
