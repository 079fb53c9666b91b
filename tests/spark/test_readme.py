"""The examples in the README and on the pages about Spark and branches are run, not imagined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from omnigraph_engine.graph import Graph
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
SPARK_PAGE = ROOT / "docs" / "spark.md"
BRANCHES_PAGE = ROOT / "docs" / "branches.md"


@pytest.mark.spark
def test_the_examples_of_the_readme_work_as_printed(spark: SparkSession, tmp_path: Path) -> None:
    first, branches = (
        example.replace("/tmp/social.omni", str(tmp_path / "social.omni"))  # noqa: S108 - as printed
        for example in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    )
    names: dict[str, object] = {"spark": spark}
    exec(first, names)  # noqa: S102 - our own README
    exec(branches, names)  # noqa: S102
    people = Graph.open(tmp_path / "social.omni").snapshot().table("Person").to_arrow(["name", "age"])
    assert {row["name"]: row["age"] for row in people.to_pylist()} == {"ada": 37, "alan": 41, "grace": 85}
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
    read, write, load, clean = (
        example.replace("/data/social.omni", graph.uri)
        for example in re.findall(r"```python\n(.*?)```", SPARK_PAGE.read_text(encoding="utf-8"), re.DOTALL)[1:]
    )
    exec(write, names)  # noqa: S102 - our own page
    assert graph.snapshot().table("Person").count() == 2
    exec(read, names)  # noqa: S102
    names["people"] = spark.createDataFrame([("Cy", 5)], "name string, age int")
    exec(load, names)  # noqa: S102
    assert graph.snapshot().table("Knows").to_arrow(["src", "dst"]).to_pylist() == [{"src": "Cy", "dst": "Ada"}]
    exec(clean, names)  # noqa: S102


@pytest.mark.spark
def test_the_examples_on_the_page_about_branches_work_as_printed(
    spark: SparkSession, tmp_path: Path, social: str
) -> None:
    graph = Graph.create(tmp_path / "social.omni", social)
    graph.load_jsonl(['{"type": "Person", "data": {"name": "Ada", "age": 36}}'])
    names: dict[str, object] = {
        "spark": spark,
        "people": spark.createDataFrame([("Ada", 37), ("Bob", 40)], "name string, age int"),
    }
    make, write, diff, merge, resolve, delete = (
        example.replace("/data/social.omni", graph.uri)
        for example in re.findall(r"```python\n(.*?)```", BRANCHES_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    )
    for example in (make, write, diff, merge):
        exec(example, names)  # noqa: S102 - our own page
    assert graph.snapshot().table("Person").count() == 2
    for branch, age in (("main", 38), ("dev", 39)):
        graph.load_jsonl(
            [f'{{"type": "Person", "data": {{"name": "Ada", "age": {age}}}}}'], mode="merge", branch=branch
        )
    exec(resolve, names)  # noqa: S102
    assert graph.snapshot().table("Person").to_arrow(["age"], "id = 'Ada'").to_pylist() == [{"age": 39}]
    exec(delete, names)  # noqa: S102
    assert [branch.name for branch in graph.branches.list()] == ["main"]
