"""What an operator asks of a graph."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from omnigraph_engine.commit.recovery import Recovery
from omnigraph_engine.maintenance.cleanup import GRACE, Cleanup, CleanupReport
from omnigraph_engine.manifest.audit import RecoveryRecord, list_recoveries
from omnigraph_engine.storage import Storage


class Maintenance:
    """Looking after a graph: ``graph.maintenance``."""

    def __init__(self, storage: Storage, recovery: Recovery, require_writable: Callable[[], None]) -> None:
        self._storage = storage
        self._recovery = recovery
        self._require_writable = require_writable

    def recoveries(self) -> list[RecoveryRecord]:
        """Every operation that a recovery finished or undid, newest first."""
        return list_recoveries(self._storage)

    def recover(self) -> None:
        """Settles every operation whose writer is gone, as every read-write open does. It may wait for a lease."""
        self._recovery.sweep()

    def cleanup(self, *, older_than: timedelta = GRACE, confirm: bool = False) -> CleanupReport:
        """Everything that operations left behind is gone, as far as that works; without ``confirm``, what would go is told.

        What a commit of a branch shows stays, and so does everything younger than ``older_than``: what a write has staged that
        is still under way looks like what a dead one left. Give longer than your longest load takes.
        """
        self._require_writable()
        return Cleanup(self._storage, older_than=older_than, confirm=confirm).run()
