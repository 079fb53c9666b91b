"""A driver that loads two types in one transaction, and kills itself where OMNIGRAPH_FAILPOINTS says."""

from __future__ import annotations

import sys
import warnings

from pyspark.sql import SparkSession

warnings.filterwarnings("ignore")


def main(uri: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    from omnigraph_engine.write.load import WriteOptions  # noqa: PLC0415 - Lance is loaded after the JVM was started

    from omnigraph_spark import Graph  # noqa: PLC0415

    graph = Graph.open(spark, uri, options=WriteOptions(lease=0.5))
    with graph.transaction(actor="doomed") as tx:
        tx.load("Person", spark.createDataFrame([("Eve",)], "name string"))
        tx.load("Company", spark.createDataFrame([("Acme",)], "name string"))


if __name__ == "__main__":
    main(sys.argv[1])
