"""OmniGraph's engine: a typed property graph on Lance datasets, without Spark."""

from __future__ import annotations

import os

# Losing a race is an everyday event here and handled; Lance would print a warning for each. Read when lance is imported.
os.environ.setdefault("LANCE_LOG", "error")

from omnigraph_engine.errors import OmnigraphError
from omnigraph_engine.graph import Graph
from omnigraph_engine.write.load import LoadMode

__all__ = ["Graph", "LoadMode", "OmnigraphError"]
