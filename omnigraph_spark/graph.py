"""The graph over a Spark session: reads are DataFrames, loads are DataFrames, commits are the engine's."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

import pyarrow as pa
from omnigraph_engine.branches.merge import MergeOptions, MergeOutcome, MergeResult, OnConflict
from omnigraph_engine.branches.plan import TableMerge
from omnigraph_engine.errors import UnknownType, did_you_mean
from omnigraph_engine.graph import Graph as EngineGraph
from omnigraph_engine.graph import GraphSchema
from omnigraph_engine.maintenance.cleanup import GRACE, CleanupReport
from omnigraph_engine.manifest.audit import RecoveryRecord
from omnigraph_engine.manifest.refs import BranchInfo
from omnigraph_engine.manifest.rows import MAIN, GraphCommit
from omnigraph_engine.snapshot import Snapshot as EngineSnapshot
from omnigraph_engine.write.graph_transaction import load_mode
from omnigraph_engine.write.load import CommitReceipt, LoadMode, WriteOptions
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark import verbs
from omnigraph_spark.calls import Host, host
from omnigraph_spark.diff import TableChanges, diff_frame
from omnigraph_spark.frames import default_partition_rows, scan_frame
from omnigraph_spark.merge import merge
from omnigraph_spark.options import MAX_ROWS_PER_FILE, SESSION_BRANCH, SPARK_PREFIX
from omnigraph_spark.transaction import Transaction
from omnigraph_spark.types import spark_schema


class Snapshot:
    """The whole graph at one commit: every DataFrame it gives shows that commit, whatever others commit later."""

    def __init__(self, spark: SparkSession, host: Host, snapshot: EngineSnapshot) -> None:
        self._spark = spark
        self._host = host
        self._snapshot = snapshot

    def __repr__(self) -> str:
        return f"Snapshot({self._snapshot.id})"

    @property
    def id(self) -> str:
        return self._snapshot.id

    @property
    def branch(self) -> str:
        return self._snapshot.branch

    @property
    def version(self) -> int:
        """The version of the branch's manifest."""
        return self._snapshot.version

    @property
    def commit(self) -> GraphCommit:
        """The newest commit that the snapshot contains."""
        return self._snapshot.commit

    @property
    def tables(self) -> list[str]:
        """The keys of all tables (``node:Person``, ``edge:Knows``), sorted."""
        return list(self._snapshot.tables)

    def read(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word that pyarrow, Lance and Spark users know
        limit: int | None = None,
        partition_rows: int | None = None,
    ) -> DataFrame:
        """Rows of a type, by its name or table key. Columns and filter are applied at the source."""
        table = self._snapshot.table(name)
        rows = default_partition_rows(self._spark, table.count()) if partition_rows is None else partition_rows
        return scan_frame(self._spark, self._host.call(verbs.scan, table.ref, columns, filter, limit, rows))

    def count(self, name: str, filter: str | None = None) -> int:  # noqa: A002
        """How many rows a type has; without a filter the manifest knows, and no job runs."""
        if filter is None:
            return self._snapshot.table(name).count()
        return self.read(name, columns=["id"], filter=filter).count()

    def create_views(self, prefix: str = "") -> list[str]:
        """Every type is a temporary view afterwards, named as the type, with the prefix before it; returns the names."""
        names = []
        for key in self.tables:
            name = prefix + key.split(":", 1)[1]
            self.read(key).createOrReplaceTempView(name)
            names.append(name)
        return names


class Commits:
    """The commits of a graph."""

    def __init__(self, host: Host, branch: str) -> None:
        self._host = host
        self._branch = branch

    def list(
        self, branch: str | None = None, *, actor: str | None = None, limit: int | None = None
    ) -> list[GraphCommit]:
        """The commits visible on a branch (the graph's own by default), newest first: its own, then those it inherited."""
        return self._host.call(verbs.list_commits, branch or self._branch, actor, limit)

    def show(self, commit_id: str) -> GraphCommit:
        """One commit, whichever branch it was made on."""
        return self._host.call(verbs.show_commit, commit_id)


class Branches:
    """The branches of a graph."""

    def __init__(self, host: Host, branch: str) -> None:
        self._host = host
        self._branch = branch

    def list(self) -> list[BranchInfo]:
        """Every branch, main first, then by name."""
        return self._host.call(verbs.list_branches)

    def get(self, name: str) -> BranchInfo:
        """One branch. Raises ``BranchNotFound`` when there is none of that name."""
        return self._host.call(verbs.get_branch, name)

    def create(self, name: str, from_: str | None = None) -> BranchInfo:
        """A branch of that name exists afterwards and shows what ``from_``, a branch (the graph's by default) or a commit,
        shows now.
        """
        return self._host.call(verbs.create_branch, name, from_ or self._branch, uuid.uuid4().hex)

    def delete(self, name: str) -> None:
        """There is no such branch afterwards, and the name may be used again at once."""
        self._host.call(verbs.delete_branch, name, self.get(name).life)


class Diff:
    """What is different between two branches or commits, a DataFrame for each type."""

    def __init__(self, spark: SparkSession, changes: Mapping[str, TableChanges]) -> None:
        self._spark = spark
        self._changes = changes

    @property
    def tables(self) -> list[str]:
        """The keys of the tables whose rows may differ; the others are the same without a look at them."""
        return [key for key, changes in self._changes.items() if changes.rows.before.ref != changes.rows.after.ref]

    def table(self, name: str) -> DataFrame:
        """The entities of a type that differ: ``change``, ``id``, ``before`` and ``after``."""
        for key in (name, f"node:{name}", f"edge:{name}"):
            if key in self._changes:
                return diff_frame(self._spark, self._changes[key])
        raise UnknownType(
            f"The graph has no type '{name}'.",
            details={"type": name},
            hint=did_you_mean(name, [*(key.split(":", 1)[1] for key in self._changes), *self._changes]),
        )


class Merged:
    """What a merge did, or would do: the engine's ``MergeResult``, with the conflicts as DataFrames."""

    def __init__(self, spark: SparkSession, result: MergeResult) -> None:
        self._spark = spark
        self.result = result

    def __repr__(self) -> str:
        return f"Merged({self.outcome.value!r}, commit={None if self.commit is None else self.commit.id!r})"

    @property
    def outcome(self) -> MergeOutcome:
        return self.result.outcome

    @property
    def commit(self) -> GraphCommit | None:
        return self.result.commit

    @property
    def tables(self) -> Mapping[str, TableMerge]:
        """What it does to each table of the target."""
        return self.result.tables

    @property
    def conflicts(self) -> DataFrame:
        """Every unresolved conflict: kind, type, id, and the entity as JSON in the base, the source and the target."""
        return _frame(self._spark, self.result.conflicts)

    @property
    def resolved(self) -> DataFrame:
        """Every conflict that was resolved, and how."""
        return _frame(self._spark, self.result.resolved)

    def report(self) -> str:
        """The unresolved conflicts, for people."""
        return self.result.report()


class Maintenance:
    """Looking after a graph."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def recoveries(self) -> list[RecoveryRecord]:
        """Every operation that a recovery finished or undid, newest first."""
        return self._host.call(verbs.recoveries)

    def recover(self) -> None:
        """Settles every operation whose writer is gone, as every read-write open does. It may wait for a lease."""
        self._host.call(verbs.recover)

    def cleanup(self, *, older_than: timedelta = GRACE, confirm: bool = False) -> CleanupReport:
        """Everything that operations left behind is gone, as far as that works; without ``confirm``, what would go is told.

        What a commit of a branch shows stays, and so does everything younger than ``older_than``: what a job has staged that
        is still running looks like what a dead one left. Give longer than your longest job takes.
        """
        return self._host.call(verbs.cleanup, older_than, confirm)


class Graph:
    """A typed property graph, read and written by a Spark session.

    Errors are the engine's typed ones. In Spark Connect the storage is reached by the server alone.
    """

    def __init__(self, spark: SparkSession, uri: str, host: Host, branch: str) -> None:
        self._spark = spark
        self._host = host
        self.uri = uri
        self.branch = branch
        self.schema: GraphSchema = host.call(verbs.schema)
        self.commits = Commits(host, branch)
        self.branches = Branches(host, branch)
        self.maintenance = Maintenance(host)

    def __repr__(self) -> str:
        return f"Graph({self.uri!r})"

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        schema: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        options: WriteOptions | None = None,
    ) -> Graph:
        """An empty graph with this schema exists afterwards. Of several creators at one address exactly one succeeds."""
        address, stores = _absolute(uri), dict(storage_options or {})
        create = partial(EngineGraph.create, address, schema, storage_options=stores, options=options)
        later = partial(EngineGraph.open, address, storage_options=stores, options=options)
        return cls(spark, address, host(spark, address, create, later), MAIN)

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        mode: Literal["rw", "ro"] = "rw",
        *,
        storage_options: Mapping[str, str] | None = None,
        options: WriteOptions | None = None,
        branch: str | None = None,
    ) -> Graph:
        """The graph at this address, its format and schema checked.

        Args:
            spark: The session whose jobs read and write; classic or Connect.
            uri: The folder or URL that the graph was created at.
            mode: ``"ro"`` refuses every write. ``"rw"`` first settles what dead writers left behind.
            storage_options: Credentials and settings of the store, as Lance takes them.
            options: How writes behave when they meet others.
            branch: What every call means that names no branch; ``merge`` alone says where it goes. By default it is what the
                session's ``omnigraph.branch`` says (``spark.omnigraph.branch`` for ``spark-submit --conf``), else main.

        Raises:
            BranchNotFound: there is no such branch.
        """
        address, stores = _absolute(uri), dict(storage_options or {})
        first = partial(EngineGraph.open, address, mode, storage_options=stores, options=options)
        graph = cls(spark, address, host(spark, address, first, first), branch or _session_branch(spark))
        if graph.branch != MAIN:
            graph.branches.get(graph.branch)
        return graph

    def snapshot(
        self,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Snapshot:
        """The graph as a branch shows it now, or as it was at a commit, manifest version or time; for many reads at once."""
        if branch is None and commit is None:
            branch = self.branch
        pinned = self._host.call(verbs.snapshot, branch, commit, version, timestamp)
        return Snapshot(self._spark, self._host, pinned)

    def read(
        self,
        name: str,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the word that pyarrow, Lance and Spark users know
        limit: int | None = None,
        partition_rows: int | None = None,
    ) -> DataFrame:
        """Rows of a type as they are now. The fast door: columns and filter are applied at the source."""
        snapshot = self.snapshot(branch=branch, commit=commit, version=version, timestamp=timestamp)
        return snapshot.read(name, columns=columns, filter=filter, limit=limit, partition_rows=partition_rows)

    def count(self, name: str, filter: str | None = None, *, branch: str | None = None) -> int:  # noqa: A002
        """How many rows a type has now; without a filter the manifest knows, and no job runs."""
        return self.snapshot(branch=branch).count(name, filter)

    def create_views(
        self, spark: SparkSession | None = None, *, branch: str | None = None, prefix: str = ""
    ) -> list[str]:
        """Every type is a temporary view of one snapshot afterwards; in this graph's session, or in another one."""
        pinned = self.snapshot(branch=branch)
        if spark is not None:
            pinned = Snapshot(spark, self._host, pinned._snapshot)  # noqa: SLF001 - of this module
        return pinned.create_views(prefix)

    def transaction(
        self,
        branch: str | None = None,
        *,
        actor: str | None = None,
        message: str | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        max_rows_per_file: int | None = None,
        skip_dangling: bool = False,
    ) -> Transaction:
        """DataFrames of several types that become visible as one commit when the ``with`` block ends, or not at all.

        Args:
            branch: The branch to commit to.
            actor: Who makes the commit.
            message: What it is for.
            txn_app_id: An application that numbers its writes; with ``txn_version``.
            txn_version: The number of this write; one that was committed before does nothing.
            max_rows_per_file: A task starts a new file after this many rows.
            skip_dangling: Edges of which a node does not exist are left out and counted, instead of an error.
        """
        options = {
            "actor": actor,
            "message": message,
            "txn_app_id": txn_app_id,
            "txn_version": txn_version,
            "max_rows_per_file": int(str(MAX_ROWS_PER_FILE.default))
            if max_rows_per_file is None
            else max_rows_per_file,
            "skip_dangling": skip_dangling,
        }
        load = self._host.call(verbs.begin_load, branch or self.branch, options)
        return Transaction(self._spark, self._host, self.schema, load)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        on_conflict: OnConflict = "fail",
        granularity: str = "row",
    ) -> Merged:
        """What ``source`` did since the two branches parted is in ``into`` too, as one commit with two parents.

        Entities are compared by Spark's tasks where there are many, else in the process that commits.

        Args:
            source: The branch to merge, as it is now.
            into: The branch that gets the commit.
            actor: Who makes the commit.
            message: What it is for.
            dry_run: Say what would happen, conflicts and all, and change nothing. What it would commit is staged, so this too
                needs a graph that is open for writing.
            delete_branch: Delete ``source`` once it is merged.
            on_conflict: ``"fail"``, or which side wins where both changed an entity: ``"ours"`` (``into``) or ``"theirs"``
                (``source``); or one of these per type, by name.
            granularity: ``"property"`` lets both sides change different properties of one entity.

        Raises:
            MergeConflict: the sides contradict each other; nothing was changed. Its ``conflicts`` are an Arrow table.
        """
        options = MergeOptions(actor, message, dry_run, delete_branch, on_conflict, granularity)
        return Merged(self._spark, merge(self._spark, self._host, source, into, options))

    def diff(self, from_: str, to: str | None = None) -> Diff:
        """What is different in ``to`` (this graph's branch by default) against ``from_``; each is a branch or a commit."""
        return Diff(self._spark, self._host.call(verbs.diff, from_, to or self.branch))

    def load_json(
        self,
        lines: DataFrame | str | os.PathLike[str],
        mode: LoadMode | str = LoadMode.APPEND,
        *,
        branch: str | None = None,
        actor: str | None = None,
        message: str | None = None,
    ) -> CommitReceipt:
        """JSON lines of many types become visible as one commit, or none does: a DataFrame of one text column, or a path."""
        frame = lines if isinstance(lines, DataFrame) else self._spark.read.text(os.fspath(lines))
        chosen = load_mode(mode)
        with self.transaction(branch, actor=actor, message=message) as transaction:
            transaction.load_json(frame, chosen)
        return transaction.receipt


def _session_branch(spark: SparkSession) -> str:
    names = (SESSION_BRANCH.name, SPARK_PREFIX + SESSION_BRANCH.name)
    return next(filter(None, (spark.conf.get(name, None) for name in names)), MAIN)


def _frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The schema is given because Spark Connect infers none from a table without rows."""
    return spark.createDataFrame(rows, spark_schema(rows.schema))


def _absolute(uri: str | os.PathLike[str]) -> str:
    """Spark's workers run in other directories, so a relative path would mean something else to them."""
    text = os.fspath(uri)
    return text if "://" in text else os.path.abspath(text)
