"""What may import what, read from the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[1] / "engine" / "omnigraph_engine"
SOURCES = sorted(path.relative_to(ENGINE).as_posix() for path in ENGINE.rglob("*.py"))
STORAGE_SDK = ("lance", "lance_namespace")


def _imports(source: str) -> Iterator[str]:
    """Every module that a file names in an import, wherever in the file it stands."""
    package = ["omnigraph_engine", *Path(source).parts[:-1]]
    for node in ast.walk(ast.parse((ENGINE / source).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _own(source: str) -> set[str]:
    """The parts of the engine that a file imports: ``errors``, ``schema``, ``tables``..."""
    return {name.split(".")[1] for name in _imports(source) if name.startswith("omnigraph_engine.")}


def _under(*parts: str) -> list[str]:
    return [source for source in SOURCES if source.removesuffix(".py").split("/")[0] in parts]


def test_the_walk_sees_the_source() -> None:
    assert {"graph.py", "storage.py", "manifest/publisher.py", "tables/exact.py"} <= set(SOURCES)
    assert {"errors", "manifest", "tables", "storage"} <= _own("manifest/publisher.py")
    assert "lance.LanceDataset" in set(_imports("manifest/publisher.py"))


@pytest.mark.parametrize("source", [source for source in SOURCES if source not in _under("tables", "manifest")])
def test_lance_is_imported_by_tables_and_manifest_only(source: str) -> None:
    assert [name for name in _imports(source) if name.split(".")[0] in STORAGE_SDK] == []


@pytest.mark.parametrize("source", SOURCES)
def test_the_engine_knows_nothing_of_spark(source: str) -> None:
    spark = ("pyspark", "omnigraph_spark", "pyspark_omnigraph")
    assert [name for name in _imports(source) if name.split(".")[0] in spark] == []


@pytest.mark.parametrize("source", _under("schema"))
def test_the_schema_rests_on_errors_and_compute_alone(source: str) -> None:
    assert _own(source) <= {"schema", "errors", "compute"}


def test_storage_rests_on_errors_alone() -> None:
    assert _own("storage.py") == {"errors"}


@pytest.mark.parametrize("source", _under("tables"))
def test_tables_know_nothing_of_the_graph_above_them(source: str) -> None:
    assert not _own(source) & {"manifest", "write", "graph", "history", "lifecycle", "snapshot"}


@pytest.mark.parametrize("source", _under("manifest"))
def test_the_manifest_knows_nothing_of_who_publishes(source: str) -> None:
    assert not _own(source) & {"write", "graph", "history", "lifecycle", "snapshot"}
