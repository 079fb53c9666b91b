"""OmniGraph for Spark: ``spark.read.format("omnigraph")`` and ``df.write.format("omnigraph")``.

Importing this loads neither Lance nor the engine: Spark starts its workers by forking, and Lance does not survive that.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from omnigraph_spark.datasource import OmnigraphDataSource

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """The format is known in this session afterwards, also where Spark did not find it by itself.

    It usually does: a broken ``pyspark_*`` package beside this one, or a platform with its own rules, are the exceptions.
    """
    spark.dataSource.register(OmnigraphDataSource)
