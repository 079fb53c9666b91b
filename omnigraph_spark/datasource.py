"""The class that Spark knows. Each hook runs in a worker process of its own and is two lines over a plain function.

The engine is imported inside the hooks: this module is imported by the process that all workers are forked from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from omnigraph_spark.faults import clean_errors

if TYPE_CHECKING:
    from omnigraph_spark.read import Loaded


class OmnigraphDataSource(DataSource):
    """One node or edge type of a graph, as a table. What ``load()`` returned does not change when others commit."""

    _loaded: Loaded | None = None  # set by schema(), travels to reader()

    @classmethod
    def name(cls) -> str:
        return "omnigraph"

    def schema(self) -> StructType:
        from omnigraph_spark.read import pin_load  # noqa: PLC0415 - see the module's first lines

        with clean_errors():
            self._loaded = pin_load(self.options)
            return self._loaded.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        from omnigraph_spark.read import open_reader  # noqa: PLC0415

        with clean_errors():
            return open_reader(self.options, self._loaded, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        from omnigraph_spark.write import open_writer  # noqa: PLC0415

        with clean_errors():
            return open_writer(self.options, schema, overwrite=overwrite)
