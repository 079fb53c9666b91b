"""The view that one attempt at a write is prepared on: captured once, never re-read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph_engine.commit.sidecar import Authority
from omnigraph_engine.errors import BranchNotFound, SchemaChanged, SnapshotGone, StorageError
from omnigraph_engine.manifest.dataset import Manifest, give_first_version, open_manifest
from omnigraph_engine.manifest.publisher import TablePin
from omnigraph_engine.manifest.refs import BranchInfo, read_ref
from omnigraph_engine.manifest.state import ManifestState, PublishedTable
from omnigraph_engine.schema.contract import STATE_FILE, SchemaContract, recorded_ir_hash
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.table import Table, TableRef


class WriteTransaction:
    """One coherent view of a branch: its head, its schema and the version of every table.

    Each table is opened at most once, and which tables were read to decide something is remembered: the publish makes sure
    that none of them has moved.
    """

    def __init__(self, storage: Storage, manifest: Manifest, contract: SchemaContract) -> None:
        self.storage = storage
        self.manifest = manifest
        self.contract = contract
        self.read_set: dict[str, TablePin] = {}
        self._tables: dict[str, Table] = {}

    @property
    def state(self) -> ManifestState:
        return self.manifest.state

    @property
    def accepted(self) -> AcceptedSchema:
        return self.contract.accepted

    @property
    def authority(self) -> Authority:
        return Authority(
            branch_identifier=self.manifest.branch_identifier,
            graph_head=self.state.head.commit_id,
            schema_identity_domain=self.accepted.domain,
            schema_ir_hash=recorded_ir_hash(self.contract.state_text),
        )

    def published(self, table_key: str) -> PublishedTable:
        return self.state.tables[table_key]

    def pin(self, table_key: str) -> TablePin:
        published = self.published(table_key)
        return TablePin(published.version, published.branch)

    def table(self, table_key: str) -> Table:
        """The pinned version of a table, to stage on."""
        if table_key not in self._tables:
            published = self.published(table_key)
            ref = TableRef(table_key, published.location, published.branch, published.version)
            self._tables[table_key] = Table(self.storage, ref)
        return self._tables[table_key]

    def read(self, table_key: str) -> Table:
        """The pinned version of a table, for a decision that must still be right at the publish."""
        self.read_set[table_key] = self.pin(table_key)
        return self.table(table_key)


def capture(
    storage: Storage, contract: SchemaContract, branch: str | None, *, life: BranchInfo | None = None
) -> WriteTransaction:
    """The view for one attempt to write to a branch.

    Args:
        storage: Where the graph is.
        contract: The schema as it was when the graph was opened.
        branch: The branch; None is main.
        life: Which life of the name it must be, for an attempt that follows another one.

    Raises:
        BranchNotFound: there is no such branch, or it is not the one of the attempt before.
        SchemaChanged: the graph has another schema than ``contract``.
    """
    if storage.get(STATE_FILE).decode() != contract.state_text:
        raise SchemaChanged(
            f"The schema of '{storage.root}' was changed after it was opened.", hint="Open the graph again."
        )
    manifest = open_manifest(storage, branch)
    if manifest.borrowed:  # its creator died half-way
        give_first_version(storage, manifest.info)
        manifest = open_manifest(storage, branch)
    if life not in (None, manifest.info):
        raise _deleted(manifest.info.name)
    return WriteTransaction(storage, manifest, contract)


@contextmanager
def while_it_lives(storage: Storage, branch: BranchInfo) -> Iterator[None]:
    """What fails in the block for want of a file says so when the branch has been deleted, which takes its files away.

    Nothing of what was to be committed to it in the block is visible then, or ever will be.
    """
    try:
        yield
    except (SnapshotGone, StorageError) as error:
        if read_ref(storage, branch.name) != branch:
            raise _deleted(branch.name) from error
        raise


def _deleted(branch: str) -> BranchNotFound:
    return BranchNotFound(
        f"The branch '{branch}' was deleted while this was under way.",
        details={"branch": branch},
        hint="Nothing of it is visible. A branch of that name that there is now is another one.",
    )
