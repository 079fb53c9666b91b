"""What may import what, read from the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "omnigraph_engine": ROOT / "engine" / "omnigraph_engine",
    "omnigraph_spark": ROOT / "omnigraph_spark",
    "pyspark_omnigraph": ROOT / "pyspark_omnigraph",
}

# The parts of the engine, lowest first. A part may import itself and what stands below it, nothing beside or above it.
LAYERS = [
    {"errors", "compute"},
    {"arguments", "schema", "storage", "failpoints"},
    {"tables"},
    {"manifest"},
    {"commit", "history", "snapshot"},
    {"branches", "write", "maintenance", "lifecycle"},
    {"graph"},
    {"cli_documents"},
    {"cli", "__init__"},
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

# The packages that only some places may know, and those places.
DOORS = {
    "lance": ("omnigraph_engine.tables", "omnigraph_engine.manifest"),
    "lance_namespace": ("omnigraph_engine.tables",),
    "obstore": ("omnigraph_engine.storage",),
    "pyspark": ("omnigraph_spark", "pyspark_omnigraph"),
    "omnigraph_spark": ("omnigraph_spark", "pyspark_omnigraph"),
    "pyspark_omnigraph": ("pyspark_omnigraph",),
}

MODULES = {
    ".".join([package, *path.relative_to(folder).with_suffix("").parts]): path
    for package, folder in FOLDERS.items()
    for path in sorted(folder.rglob("*.py"))
}


def imports(module: str, source: str) -> Iterator[str]:
    """Every module that a source names in an import, wherever in it that stands."""
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def wrong_imports(module: str, source: str) -> list[str]:
    """The imports of a source that point the wrong way, in the words of the rule they break."""
    package, part = module.split(".")[:2]
    found = []
    for name in imports(module, source):
        other, *rest = name.split(".")
        if other in DOORS and not any(f"{module}.".startswith(f"{door}.") for door in DOORS[other]):
            found.append(f"{module} imports {name}: only {', '.join(DOORS[other])} may")
        if package == other == "omnigraph_engine" and rest and rest[0] != part:
            if rest[0] not in LEVEL:
                found.append(f"{module} imports {name}: {rest[0]} has no place in LAYERS")
            elif LEVEL[rest[0]] >= LEVEL[part]:
                found.append(f"{module} imports {name}: {rest[0]} does not stand below {part}")
    return found


def test_the_walk_sees_the_source() -> None:
    assert {
        "omnigraph_engine.graph",
        "omnigraph_engine.manifest.publisher",
        "omnigraph_engine.tables.exact",
        "omnigraph_engine.schema.catalog",
    } <= MODULES.keys()
    seen = set(
        imports("omnigraph_engine.manifest.publisher", MODULES["omnigraph_engine.manifest.publisher"].read_text())
    )
    assert {"lance.LanceDataset", "omnigraph_engine.storage.Storage"} <= seen


def test_every_part_of_the_engine_has_its_place() -> None:
    parts = {module.split(".")[1] for module in MODULES if module.startswith("omnigraph_engine.")}
    assert parts - LEVEL.keys() == set()


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    assert wrong_imports(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("omnigraph_engine.graph", "import lance"),
        ("omnigraph_engine.write.load", "from lance.fragment import write_fragments"),
        ("omnigraph_engine.write.load", "def late():\n    import lance.optimize"),
        ("omnigraph_engine.tables_like.this", "import lance"),
        ("omnigraph_engine.manifest.publisher", "import obstore"),
        ("omnigraph_spark.read", "import lance"),
        ("omnigraph_engine.graph", "from pyspark.sql import SparkSession"),
        ("omnigraph_engine.cli", "import omnigraph_spark"),
        ("omnigraph_spark.read", "import pyspark_omnigraph"),
        ("omnigraph_engine.schema.catalog", "from omnigraph_engine.storage import Storage"),
        ("omnigraph_engine.storage", "from omnigraph_engine.schema import model"),
        ("omnigraph_engine.tables.table", "from omnigraph_engine.manifest.rows import MAIN"),
        ("omnigraph_engine.tables.table", "from omnigraph_engine import manifest"),
        ("omnigraph_engine.tables.table", "from ..manifest import rows"),
        ("omnigraph_engine.tables.table", "from .. import manifest"),
        ("omnigraph_engine.manifest.publisher", "import omnigraph_engine.commit.coordinator"),
        ("omnigraph_engine.commit.recovery", "from omnigraph_engine.write.load import Load"),
        ("omnigraph_engine.branches.merge", "from omnigraph_engine.write.load import Load"),
        ("omnigraph_engine.maintenance.cleanup", "from omnigraph_engine.graph import Graph"),
        ("omnigraph_engine.errors", "from omnigraph_engine.compute import pc"),
        ("omnigraph_engine.graph", "from omnigraph_engine.utils import anything"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_found(module: str, source: str) -> None:
    assert len(wrong_imports(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("omnigraph_engine.tables.exact", "import lance"),
        ("omnigraph_engine.manifest.dataset", "from lance import LanceDataset"),
        ("omnigraph_engine.storage", "import obstore"),
        ("omnigraph_engine.graph", "from omnigraph_engine.maintenance import cleanup"),
        ("omnigraph_engine.commit.coordinator", "from omnigraph_engine.manifest import publisher"),
        ("omnigraph_engine.branches.merge", "from omnigraph_engine.commit import coordinator"),
        ("omnigraph_engine.tables.table", "from .exact import one_line"),
        ("omnigraph_engine.schema.plan", "from omnigraph_engine.errors import SchemaError"),
        ("omnigraph_spark.read", "import pyspark\nfrom omnigraph_engine.graph import Graph"),
        ("pyspark_omnigraph.__init__", "from omnigraph_spark.datasource import DefaultSource"),
        ("omnigraph_engine.graph", "import lanceolate"),
    ],
)
def test_an_import_that_points_the_right_way_is_not(module: str, source: str) -> None:
    assert wrong_imports(module, source) == []
