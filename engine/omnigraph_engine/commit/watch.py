"""Watching sidecars: which ones there are, and for how long each has stood unchanged before our own eyes.

No clocks are compared between machines. A sidecar counts as abandoned once this process has itself seen it unchanged for
the lease that its writer promised to renew within.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from omnigraph_engine.commit.sidecar import DEFAULT_LEASE, RECOVERY, Sidecar, operation_of
from omnigraph_engine.commit.sidecar_reader import read_sidecar
from omnigraph_engine.errors import ObjectNotFound, SidecarUnreadable
from omnigraph_engine.storage import Storage


@dataclass(frozen=True)
class Sighting:
    """A sidecar as it stands now."""

    path: str
    sidecar: Sidecar | None  # None when nobody can read it; ``unreadable`` says why
    unreadable: SidecarUnreadable | None
    changed: bool  # its writer has spoken since this process first saw it
    abandoned: bool

    @property
    def operation_id(self) -> str:
        return operation_of(self.path)

    def concerns(self, branch: str | None, table_keys: frozenset[str]) -> bool:
        """Whether a write to these tables of this branch must deal with it first."""
        if self.unreadable is not None:
            return "branch" not in self.unreadable.details or self.unreadable.details["branch"] == branch
        sidecar = self.sidecar
        return sidecar is not None and sidecar.branch == branch and not sidecar.table_keys.isdisjoint(table_keys)


@dataclass
class _Seen:
    data: bytes
    since: float
    changed: bool = False


class Watch:
    """Remembers, for the life of a graph handle, when it first saw each sidecar as it is."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seen: dict[str, _Seen] = {}

    def look(self) -> list[Sighting]:
        """Every sidecar that is there now, oldest operation first. With none there it costs one listing."""
        sightings = []
        for path in self._storage.list(RECOVERY):
            try:
                data = self._storage.get(path)
            except ObjectNotFound:  # its writer has just finished
                continue
            sightings.append(self._sighting(path, data))
        there = {sighting.path for sighting in sightings}
        self._seen = {path: seen for path, seen in self._seen.items() if path in there}
        return sightings

    def _sighting(self, path: str, data: bytes) -> Sighting:
        now = time.monotonic()
        seen = self._seen.setdefault(path, _Seen(data, now))
        if seen.data != data:
            seen = self._seen[path] = _Seen(data, now, changed=True)
        sidecar, unreadable = None, None
        try:
            sidecar = read_sidecar(path, data)
        except SidecarUnreadable as error:
            unreadable = error
        lease = DEFAULT_LEASE if sidecar is None else sidecar.lease
        return Sighting(path, sidecar, unreadable, seen.changed, abandoned=now - seen.since >= lease)
