"""The files under ``conf/`` name settings that Spark has, and files and arguments that are there."""

from __future__ import annotations

import re
import runpy
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
BUNDLE = CONF / "databricks"


def settings(path: Path, *, commented: bool = False) -> list[str]:
    """The names in a properties file; also those in its comments, when asked, for a reader to uncomment."""
    pattern = r"^(?:# )?(spark\.\S+)\s{2,}\S" if commented else r"^(\S+)\s+\S"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if commented or not line.startswith("#")]
    names = [found[1] for line in lines if (found := re.match(pattern, line))]
    assert commented or len(names) == len([line for line in lines if line.strip()]), (
        f"{path.name} has a line without a value"
    )
    return names


@cache
def constants_of_spark() -> bytes:
    """The constants of the classes in which Spark declares its settings, as they stand in its JARs: no JVM is needed."""
    found = []
    for pattern, folder in (
        ("spark-core_*", "org/apache/spark/internal/config/"),
        ("spark-core_*", "org/apache/spark/SparkConf"),
        ("spark-catalyst_*", "org/apache/spark/sql/internal/SQLConf"),
        ("spark-connect_*", "org/apache/spark/sql/connect/config/Connect"),
        ("spark-launcher_*", "org/apache/spark/launcher/SparkLauncher"),
    ):
        (jar,) = (Path(pyspark.__file__).parent / "jars").glob(f"{pattern}.jar")
        with zipfile.ZipFile(jar) as classes:
            found += [classes.read(name) for name in classes.namelist() if name.startswith(folder)]
    return b"\0".join(found)


@pytest.mark.parametrize("name", ["spark-defaults.conf", "spark-cluster.conf"])
def test_every_setting_is_one_that_spark_has(name: str) -> None:
    own = settings(CONF / name)
    assert own
    assert len(own) == len(set(own)), "a name is set twice"
    for setting in settings(CONF / name, commented=True):
        if not setting.startswith("spark.executorEnv."):
            assert setting.encode() in constants_of_spark(), f"Spark has no {setting}"


def test_a_setting_that_spark_has_not_is_noticed() -> None:
    assert b"spark.task.maxFailures" in constants_of_spark()
    assert b"spark.task.maxFailure5" not in constants_of_spark()


def documents() -> dict[Path, dict[str, Any]]:
    return {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(BUNDLE.rglob("*.yml"))}


def test_the_bundle_names_files_that_exist() -> None:
    bundle = documents()[BUNDLE / "databricks.yml"]
    (included,) = bundle["include"]
    resources = list(BUNDLE.glob(included))
    assert resources == [BUNDLE / "resources" / "job.yml"]
    assert all((BUNDLE / path).is_dir() for path in bundle["sync"]["paths"])
    assert (BUNDLE / bundle["artifacts"]["omnigraph_spark"]["path"]).resolve() == ROOT
    (task,) = documents()[resources[0]]["resources"]["jobs"]["batch_load"]["tasks"]
    script = (resources[0].parent / task["spark_python_task"]["python_file"]).resolve()
    assert script == ROOT / "examples" / "batch_load.py"
    assert any(script.is_relative_to((BUNDLE / path).resolve()) for path in bundle["sync"]["paths"])
    (library,) = task["libraries"]
    assert (resources[0].parent / library["whl"]).parent.resolve() == ROOT / "dist"


def test_the_bundle_uses_each_of_its_variables_and_no_other() -> None:
    used = {name for path in documents() for name in re.findall(r"\$\{var\.(\w+)\}", path.read_text(encoding="utf-8"))}
    assert used == set(documents()[BUNDLE / "databricks.yml"]["variables"])


def test_the_job_of_the_bundle_calls_its_script_as_the_script_wants() -> None:
    bundle, job = documents()[BUNDLE / "databricks.yml"], documents()[BUNDLE / "resources" / "job.yml"]["resources"]
    (task,) = job["jobs"]["batch_load"]["tasks"]
    assert task["job_cluster_key"] == job["jobs"]["batch_load"]["job_clusters"][0]["job_cluster_key"]
    arguments = [
        re.sub(r"\$\{var\.(\w+)\}", lambda found: str(bundle["variables"][found[1]]["default"]), text)
        for text in task["spark_python_task"]["parameters"]
    ]
    parser = runpy.run_path(str(ROOT / "examples" / "batch_load.py"))["parser"]()
    given = parser.parse_args(arguments)
    assert (given.graph, given.mode) == ("/Volumes/main/default/graphs/social.omni", "merge")
