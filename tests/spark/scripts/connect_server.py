"""A Spark Connect server on loopback, until its standard input ends. Says its port when it is ready.

Its master is the first argument, local[2] by default.
"""

from __future__ import annotations

import socket
import sys
import warnings

from pyspark.sql import SparkSession

warnings.filterwarnings("ignore", message="lance is not fork-safe")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    port = free_port()
    spark = (
        SparkSession.builder.master(sys.argv[1] if len(sys.argv) > 1 else "local[2]")
        .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.connect.grpc.binding.port", str(port))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.connect.serverStacktrace.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    print(port, flush=True)  # noqa: T201 - for whoever started this
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main()
