"""What an operator asks of a graph."""

from __future__ import annotations

from omnigraph_engine.commit.recovery import Recovery
from omnigraph_engine.manifest.audit import RecoveryRecord, list_recoveries
from omnigraph_engine.storage import Storage


class Maintenance:
    """Looking after a graph: ``graph.maintenance``."""

    def __init__(self, storage: Storage, recovery: Recovery) -> None:
        self._storage = storage
        self._recovery = recovery

    def recoveries(self) -> list[RecoveryRecord]:
        """Every operation that a recovery finished or undid, newest first."""
        return list_recoveries(self._storage)

    def recover(self) -> None:
        """Settles every operation whose writer is gone, as every read-write open does. It may wait for a lease."""
        self._recovery.sweep()
