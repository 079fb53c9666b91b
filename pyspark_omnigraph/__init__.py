"""Where Spark looks for data sources by itself: ``format("omnigraph")`` works without a call to register it.

Spark imports every top-level module named ``pyspark_*`` once, and one that fails hides all the others. So nothing is imported
here, directly or not, but pyspark's own data source interface.
"""

from __future__ import annotations

from omnigraph_spark.datasource import OmnigraphDataSource as DefaultSource

__all__ = ["DefaultSource"]
