"""The examples in the README and on the page about Spark are run, not imagined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from omnigraph_engine.graph import Graph
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
SPARK_PAGE = ROOT / "docs" / "spark.md"


@pytest.mark.spark
def test_the_first_example_of_the_readme_works_as_printed(spark: SparkSession, tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {"spark": spark}
    example = re.sub(r'create\("[^"]*"', f'create("{tmp_path / "social.omni"}"', example)
    exec(example, names)  # noqa: S102 - our own README
    from_disk = spark.read.format("omnigraph").option("edge", "Knows").load(str(tmp_path / "social.omni"))
    assert [(row.src, row.dst) for row in from_disk.collect()] == [("ada", "alan")]


@pytest.mark.spark
def test_the_examples_on_the_page_about_spark_work_as_printed(spark: SparkSession, tmp_path: Path, social: str) -> None:
    graph = Graph.create(tmp_path / "social.omni", social)
    names: dict[str, object] = {
        "spark": spark,
        "people": spark.createDataFrame([("Ada", 36), ("Bob", 40)], "name string, age int"),
        "knows": spark.createDataFrame([("Cy", "Ada")], "name string, friend string"),
    }
    read, write, load = (
        example.replace("/data/social.omni", graph.uri)
        for example in re.findall(r"```python\n(.*?)```", SPARK_PAGE.read_text(encoding="utf-8"), re.DOTALL)[1:]
    )
    exec(write, names)  # noqa: S102 - our own page
    assert graph.snapshot().table("Person").count() == 2
    exec(read, names)  # noqa: S102
    names["people"] = spark.createDataFrame([("Cy", 5)], "name string, age int")
    exec(load, names)  # noqa: S102
    assert graph.snapshot().table("Knows").to_arrow(["src", "dst"]).to_pylist() == [{"src": "Cy", "dst": "Ada"}]
