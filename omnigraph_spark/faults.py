"""How our errors look on the other side of Spark's process boundary, where only their text arrives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # read by pyspark.util.handle_worker_exception in this very process


@contextmanager
def clean_errors() -> Iterator[None]:
    """A typed error raised inside reaches the user as one line with its code; any other keeps its traceback.

    Only for code in Spark's workers: a worker dies with the error it reports, so the setting outlives nothing.
    """
    try:
        yield
    except Exception as error:
        from omnigraph_engine.errors import OmnigraphError  # noqa: PLC0415 - the engine must not be loaded before a fork

        if isinstance(error, OmnigraphError):
            os.environ[_HIDE_TRACEBACK] = "1"
        raise
