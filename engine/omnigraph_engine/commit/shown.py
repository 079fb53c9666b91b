"""Which lines of tables somebody shows, or is about to show: all others may be dropped."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_engine.commit.sidecar import RECOVERY, Sidecar
from omnigraph_engine.commit.sidecar_reader import read_sidecar
from omnigraph_engine.compute import pc
from omnigraph_engine.errors import ObjectNotFound
from omnigraph_engine.manifest.dataset import living_manifests
from omnigraph_engine.storage import Storage


def sidecars(storage: Storage) -> Iterator[Sidecar]:
    """Every operation that is under way or was left behind. Raises when one of them cannot be read."""
    for path in storage.list(RECOVERY):
        try:
            data = storage.get(path)
        except ObjectNotFound:  # it has just ended
            continue
        yield read_sidecar(path, data)


def shown_lines(storage: Storage, *, but: str | None = None) -> set[str | None]:
    """The lines that any commit of a living branch shows, and those of operations under way, ``but`` one of them.

    Sidecars are looked at first: when one is gone by then, its commit stands in a manifest.
    """
    named = {intent.branch for sidecar in sidecars(storage) if sidecar.operation_id != but for intent in sidecar.tables}
    for manifest in living_manifests(storage):
        named.update(pc.unique(manifest.rows["table_branch"]).to_pylist())
    return named
