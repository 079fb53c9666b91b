"""The scenes of the commit protocol are the scenes of branches too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from omnigraph_engine.graph import Graph
from omnigraph_engine.storage import Storage

sys.path.append(str(Path(__file__).parents[1] / "commit"))

from crash_scene import edges, new_local_graph, people


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    """Two people who know each other."""
    graph = new_local_graph(tmp_path, social)
    graph.load({"Person": people("Ada", "Bob"), "Knows": edges(("Ada", "Bob"))})
    return graph


@pytest.fixture
def anywhere(storage: Storage, social: str) -> Graph:
    """The same, on each kind of store in turn."""
    graph = Graph.create(storage.root, social, storage_options=storage.options)
    graph.load({"Person": people("Ada", "Bob"), "Knows": edges(("Ada", "Bob"))})
    return graph
