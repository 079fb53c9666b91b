"""The README's example is run, not imagined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.spark
def test_the_first_example_of_the_readme_works_as_printed(spark: SparkSession, tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {"spark": spark}
    example = re.sub(r'create\("[^"]*"', f'create("{tmp_path / "social.omni"}"', example)
    exec(example, names)  # noqa: S102 - our own README
    from_disk = spark.read.format("omnigraph").option("edge", "Knows").load(str(tmp_path / "social.omni"))
    assert [(row.src, row.dst) for row in from_disk.collect()] == [("ada", "alan")]
