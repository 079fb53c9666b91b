"""One Spark session for the whole run, and the graphs that tests write to."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from omnigraph_engine.graph import Graph
from pyspark.sql import DataFrame, SparkSession

# Workers are started with this, else with the first python3 on PATH, which does not have the package.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the whole run: starting one costs more than all tests of a module. Nobody stops or registers."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    )
    with warnings.catch_warnings():
        # Starting the JVM forks this process, which Lance warns of; the child becomes another program at once.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    """An empty graph of people and companies, at an address with a space in it."""
    return Graph.create(tmp_path / "social graph.omni", social)


Read = Callable[..., DataFrame]
Write = Callable[..., None]


@pytest.fixture
def read(spark: SparkSession, graph: Graph) -> Read:
    def load(**options: object) -> DataFrame:
        return spark.read.format("omnigraph").options(**options).load(graph.uri)  # type: ignore[arg-type]

    return load


@pytest.fixture
def write(graph: Graph) -> Write:
    def save(rows: DataFrame, mode: str = "append", **options: object) -> None:
        rows.write.format("omnigraph").options(**options).mode(mode).save(graph.uri)  # type: ignore[arg-type]

    return save
