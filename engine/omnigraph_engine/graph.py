"""The graph, as users hold it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from omnigraph_engine.arguments import whole_number
from omnigraph_engine.branches.branches import Branches, origin
from omnigraph_engine.branches.diff import GraphDiff, diff
from omnigraph_engine.branches.merge import Merge, MergeOptions, MergeResult, OnConflict
from omnigraph_engine.commit.recovery import Recovery
from omnigraph_engine.errors import InvalidArgument, ReadOnlyGraph, UnknownType, did_you_mean
from omnigraph_engine.history import Commits, manifest_at
from omnigraph_engine.lifecycle import create_graph, open_graph
from omnigraph_engine.maintenance.operator import Maintenance
from omnigraph_engine.manifest.refs import stored_branch
from omnigraph_engine.manifest.rows import MAIN
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.contract import SchemaContract
from omnigraph_engine.schema.diagram import diagram
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.model import Catalog, TableType
from omnigraph_engine.schema.plan import MigrationPlan, plan
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.stage import MAX_ROWS_PER_FILE
from omnigraph_engine.write.graph_transaction import ArrowData, GraphTransaction, JsonLines
from omnigraph_engine.write.load import CommitReceipt, Load, LoadMode, WriteOptions

OpenMode = Literal["rw", "ro"]


class GraphSchema:
    """The schema that the graph accepted."""

    def __init__(self, contract: SchemaContract) -> None:
        self._contract = contract

    @property
    def source(self) -> str:
        """The schema text, exactly as it was given."""
        return self._contract.source

    @property
    def accepted(self) -> AcceptedSchema:
        """The catalog with the identities that the graph gave it."""
        return self._contract.accepted

    @property
    def catalog(self) -> Catalog:
        return self._contract.accepted.catalog

    def diagram(self) -> str:
        """The schema as a drawing in text."""
        return diagram(self.catalog)

    def plan(self, source: str) -> MigrationPlan:
        """What a change to this schema text would do; nothing is applied."""
        return plan(self.accepted, parse_catalog(source))

    def table_type(self, name: str) -> TableType:
        """A node or edge type by its name or its table key."""
        types = {table.name: table for table in self.catalog.table_types()}
        keys = {table.table_key: table for table in self.catalog.table_types()}
        if name in types or name in keys:
            return types.get(name) or keys[name]
        raise UnknownType(
            f"The schema has no node or edge type '{name}'.", details={"type": name}, hint=did_you_mean(name, types)
        )


class Graph:
    """A typed property graph on a disk or an object store.

    Holding one costs nothing and locks nothing: every read and every write looks at the store anew.
    """

    def __init__(
        self, storage: Storage, contract: SchemaContract, mode: OpenMode, options: WriteOptions, recovery: Recovery
    ) -> None:
        self._storage = storage
        self._contract = contract
        self._options = options
        self._recovery = recovery
        self.mode = mode
        self.schema = GraphSchema(contract)
        self.commits = Commits(storage)
        self.branches = Branches(storage, self._require_writable)
        self.maintenance = Maintenance(storage, recovery, self._require_writable)

    def __repr__(self) -> str:
        return f"Graph({self.uri!r}, mode={self.mode!r})"

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        options: WriteOptions | None = None,
    ) -> Graph:
        """An empty graph with this schema exists afterwards. Of several creators at one address exactly one succeeds.

        Args:
            uri: A folder that is absent or empty, or a store's URL such as ``s3://bucket/social.omni``.
            schema: The schema's text, in the .pg language.
            storage_options: Credentials and settings of the store, as Lance takes them.
            options: How writes through this handle behave when they meet others.
        """
        storage = Storage(uri, storage_options)
        contract = create_graph(storage, schema)
        options = options or WriteOptions()
        return cls(storage, contract, "rw", options, Recovery(storage, wait_limit=options.patience))

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        mode: OpenMode = "rw",
        *,
        storage_options: Mapping[str, str] | None = None,
        options: WriteOptions | None = None,
    ) -> Graph:
        """The graph at this address, its format and schema checked.

        Args:
            uri: The folder or URL that the graph was created at.
            mode: ``"ro"`` refuses every write. ``"rw"`` first settles what dead writers left behind; with one just dead
                that takes until its lease has run out.
            storage_options: Credentials and settings of the store, as Lance takes them.
            options: How writes through this handle behave when they meet others.
        """
        if mode not in ("rw", "ro"):
            raise InvalidArgument(f"mode is {mode!r}.", hint='Use "rw" to read and write, "ro" to read only.')
        storage = Storage(uri, storage_options)
        contract, _ = open_graph(storage)
        options = options or WriteOptions()
        recovery = Recovery(storage, wait_limit=options.patience)
        if mode == "rw":
            recovery.sweep()
        return cls(storage, contract, mode, options, recovery)

    def _require_writable(self) -> None:
        if self.mode == "ro":
            raise ReadOnlyGraph(f"'{self.uri}' is open for reading only.", hint='Open it with mode="rw" to write.')

    @property
    def uri(self) -> str:
        return self._storage.root

    @property
    def storage(self) -> Storage:
        """Where the graph is; what workers on other machines need to find it."""
        return self._storage

    def snapshot(
        self,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Snapshot:
        """The graph as a branch shows it now (main by default), or as it was at a commit, manifest version or time."""
        manifest = manifest_at(self._storage, branch=branch, commit=commit, version=version, timestamp=timestamp)
        return Snapshot(self._storage, manifest.state)

    def transaction(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> GraphTransaction:
        """Loads into several types that become visible as one commit when the ``with`` block ends, or not at all.

        Args:
            branch: The branch to commit to.
            actor: Who makes the commit.
            message: What it is for.
            txn_app_id: An application that numbers its writes; with ``txn_version``.
            txn_version: The number of this write. One that is not greater than the application's last committed number
                does nothing, so a write may be repeated safely when its outcome is in doubt.
        """
        load = self.begin_load(branch, actor=actor, message=message, txn_app_id=txn_app_id, txn_version=txn_version)
        return GraphTransaction(load, self.schema.accepted)

    def begin_load(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        max_rows_per_file: int = MAX_ROWS_PER_FILE,
        skip_dangling: bool = False,
    ) -> Load:
        """The two halves of a transaction, for workers that stage and a coordinator that commits; see ``Load``."""
        self._require_writable()
        whole_number("max_rows_per_file", max_rows_per_file, least=1)
        if (txn_app_id is None) != (txn_version is None):
            raise InvalidArgument("txn_app_id and txn_version belong together.", hint="Give both, or neither.")
        return Load(
            self._storage,
            self._contract,
            stored_branch(branch),
            actor=actor,
            message=message,
            app_transaction=None if txn_app_id is None or txn_version is None else (txn_app_id, txn_version),
            options=self._options,
            recovery=self._recovery,
            max_rows_per_file=max_rows_per_file,
            skip_dangling=skip_dangling,
        )

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
    ) -> MergeResult:
        """What ``source`` did since the two branches parted is in ``into`` too, as one commit with two parents.

        Args:
            source: The branch to merge, as it is now; what it commits meanwhile is not merged.
            into: The branch that gets the commit.
            actor: Who makes the commit.
            message: What it is for.
            dry_run: Say what would happen, conflicts and all, and change nothing. What it would commit is staged, so this too
                needs a graph that is open for writing.
            delete_branch: Delete ``source`` once it is merged. Where that does not work, or it has got commits meanwhile, it
                is kept, and a warning says so: the merge is done, and merging again does the rest.
            on_conflict: ``"fail"``, or which side wins where both changed an entity: ``"ours"`` (``into``) or ``"theirs"``
                (``source``); or one of these per type, by name.
            granularity: ``"property"`` lets both sides change different properties of one entity.

        Raises:
            MergeConflict: the sides contradict each other; nothing was changed. Its ``conflicts`` are data.
        """
        options = MergeOptions(actor, message, dry_run, delete_branch, on_conflict, granularity)
        return self.begin_merge(source, into, options).run()

    def begin_merge(self, source: str, into: str, options: MergeOptions) -> Merge:
        """A merge in steps, for workers that merge entities and a coordinator that commits; see ``Merge``."""
        self._require_writable()
        if not isinstance(options.on_conflict, str | Mapping):
            raise InvalidArgument(
                f"on_conflict is {options.on_conflict!r}.",
                hint="Use fail, ours or theirs; or one of them for each type, by name.",
            )
        return Merge(
            self._storage, self._contract, source, into, options, lease=self._options.lease, recovery=self._recovery
        )

    def diff(self, from_: str, to: str = MAIN) -> GraphDiff:
        """What is different in ``to`` against ``from_``; each is a branch or a commit."""
        return diff(
            Snapshot(self._storage, origin(self._storage, from_).state),
            Snapshot(self._storage, origin(self._storage, to).state),
        )

    def load(
        self,
        data: Mapping[str, ArrowData],
        *,
        mode: LoadMode | str = LoadMode.APPEND,
        branch: str = MAIN,
        actor: str | None = None,
        message: str | None = None,
    ) -> CommitReceipt:
        """Rows of several types, by type name, become visible as one commit, or none of them does."""
        with self.transaction(branch, actor=actor, message=message) as transaction:
            for name, rows in data.items():
                transaction.load(name, rows, mode)
        return _receipt(transaction)

    def load_jsonl(
        self,
        lines: JsonLines,
        *,
        mode: LoadMode | str = LoadMode.APPEND,
        branch: str = MAIN,
        actor: str | None = None,
        message: str | None = None,
    ) -> CommitReceipt:
        """A file of JSON lines, by its path, or the lines themselves; one file is one commit."""
        with self.transaction(branch, actor=actor, message=message) as transaction:
            transaction.load_jsonl(lines, mode)
        return _receipt(transaction)


def _receipt(transaction: GraphTransaction) -> CommitReceipt:
    assert transaction.receipt is not None  # noqa: S101 - its block has ended without an exception
    return transaction.receipt
