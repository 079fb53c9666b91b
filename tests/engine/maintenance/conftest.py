"""The scenes of commits and of branches are those of cleaning up after them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from omnigraph_engine.graph import Graph

sys.path += [str(Path(__file__).parents[1] / "commit"), str(Path(__file__).parents[1] / "branches")]

from crash_scene import edges, new_local_graph, people


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    """Two people who know each other."""
    graph = new_local_graph(tmp_path, social)
    graph.load({"Person": people("Ada", "Bob"), "Knows": edges(("Ada", "Bob"))})
    return graph


@pytest.fixture
def anywhere(storage: object, social: str) -> Graph:
    """The same, on each kind of store in turn."""
    graph = Graph.create(storage.root, social, storage_options=storage.options)  # type: ignore[attr-defined]
    graph.load({"Person": people("Ada", "Bob"), "Knows": edges(("Ada", "Bob"))})
    return graph
