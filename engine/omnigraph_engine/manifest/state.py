"""What a version of ``__manifest`` says: its tables and its commits, rebuilt from its rows (FORMAT 3.6). Pure.

History stays in the manifest for ever, so selection is done on Arrow columns; only the few rows that matter become objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.errors import GraphDamaged
from omnigraph_engine.manifest.rows import (
    MAIN,
    Abort,
    AbortState,
    AppTransaction,
    GraphCommit,
    TableRegistration,
    TableVersion,
    Tombstone,
)
from omnigraph_engine.schema.identity import TableIdentity


@dataclass(frozen=True)
class PublishedTable:
    """A table as a snapshot shows it."""

    table_key: str
    identity: TableIdentity
    location: str  # relative to the graph root
    version: int
    branch: str | None  # which line of the table's own dataset; None is its main line
    row_count: int


@dataclass(frozen=True)
class ManifestState:
    """One version of the manifest on one branch. Immutable."""

    branch: str | None  # None is main
    version: int
    tables: Mapping[str, PublishedTable]  # by table_key, sorted
    head: GraphCommit  # the newest commit visible here: the parent of the next one
    app_transactions: Mapping[str, AppTransaction]  # by application id
    aborts: Mapping[str, AbortState]  # by operation id

    @property
    def branch_name(self) -> str:
        return self.branch or MAIN


def rebuild(rows: pa.Table, *, branch: str | None, version: int, lineage: Iterable[str | None] = ()) -> ManifestState:
    """The state that these rows describe. Refuses rows that contradict each other with ``GraphDamaged``."""
    head = next(commits(rows, lineage), None)
    if head is None:
        raise GraphDamaged("The manifest holds no commit, not even the first one.")
    transactions = map(AppTransaction.from_row, _of_type(rows, "spark_txn"))
    aborts = map(Abort.from_row, _of_type(rows, "spark_abort"))
    return ManifestState(
        branch=branch,
        version=version,
        tables=_live_tables(rows),
        head=head,
        app_transactions={transaction.app_id: transaction for transaction in transactions},
        aborts={abort.operation_id: abort.state for abort in aborts},
    )


def commits(rows: pa.Table, lineage: Iterable[str | None] = ()) -> Iterator[GraphCommit]:
    """The commits among the rows, newest first. Only those that are asked for are decoded.

    A branch's own commits are newer than those it inherited from its parent, and so on along the ``lineage``: a branch whose
    name had an earlier life counts its manifest versions from there, and they may be smaller than its parent's.
    """
    left = rows.filter(pc.equal(rows["object_type"], "graph_commit"))
    for branch in lineage:
        if not left.num_rows:
            return
        own = left["table_branch"].is_null() if branch is None else pc.equal(left["table_branch"], branch)
        own = pc.fill_null(own, False)
        yield from _newest_first(left.filter(own))
        left = left.filter(pc.invert(own))
    yield from _newest_first(left)


def _newest_first(found: pa.Table) -> Iterator[GraphCommit]:
    batches = found.sort_by([("table_version", "descending")]).to_batches(max_chunksize=16)
    decoded = (GraphCommit.from_row(row) for batch in batches for row in batch.to_pylist())
    for _, same_version in groupby(decoded, key=lambda commit: commit.manifest_version):
        yield from sorted(same_version, key=lambda commit: commit.order, reverse=True)


def find_commit(rows: pa.Table, commit_id: str) -> GraphCommit | None:
    """The commit of that id among the rows, or None."""
    return next(commits(rows.filter(pc.equal(rows["object_id"], commit_id))), None)


def find_request(rows: pa.Table, request: str) -> GraphCommit | None:
    """The commit among the rows that was made for this request, or None. Only those that mention it are decoded."""
    mentions = rows.filter(pc.match_substring(rows["metadata"], request))
    return next((commit for commit in commits(mentions) if commit.extra.get("request") == request), None)


def _live_tables(rows: pa.Table) -> dict[str, PublishedTable]:
    registrations = {row.identity: row for row in map(TableRegistration.from_row, _of_type(rows, "table"))}
    tombstones = {row.identity: row.version for row in map(Tombstone.from_row, _newest(rows, "table_tombstone"))}
    live: dict[str, PublishedTable] = {}
    for newest in map(TableVersion.from_row, _newest(rows, "table_version")):
        if tombstones.get(newest.identity, -1) >= newest.version:
            continue
        registration = registrations.get(newest.identity)
        if registration is None:
            raise GraphDamaged(f"The manifest publishes {newest.table_key} but does not register it.")
        if registration.table_key in live:
            raise GraphDamaged(f"The manifest registers two live tables as {registration.table_key}.")
        live[registration.table_key] = PublishedTable(
            table_key=registration.table_key,
            identity=newest.identity,
            location=registration.location,
            version=newest.version,
            branch=newest.branch,
            row_count=newest.row_count,
        )
    return dict(sorted(live.items()))


def _of_type(rows: pa.Table, object_type: str) -> Iterator[dict[str, object]]:
    yield from rows.filter(pc.equal(rows["object_type"], object_type)).to_pylist()


def _newest(rows: pa.Table, object_type: str) -> Iterator[dict[str, object]]:
    """Per table identity the row with the greatest version."""
    found = rows.filter(pc.equal(rows["object_type"], object_type)).drop_columns(["base_objects"])
    identity = ["stable_table_id", "table_incarnation_id"]
    greatest = found.group_by(identity).aggregate([("table_version", "max")])
    yield from found.join(
        greatest, keys=[*identity, "table_version"], right_keys=[*identity, "table_version_max"], join_type="inner"
    ).to_pylist()
