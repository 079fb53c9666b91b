"""The functions that change what a table's HEAD is: create, commit_staged, restore, fork and drop_line.

Everything else in this package reads or stages. All of them are exact: they act on the version they name, or not at all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata

from omnigraph_engine.errors import GraphDamaged, StorageError, VersionConflict
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.blobs import stored_schema
from omnigraph_engine.tables.exact import ExactCommit, commit_exact, lance_errors, latest_version, manifest_path
from omnigraph_engine.tables.indexes import decode_index
from omnigraph_engine.tables.rehome import rehomed
from omnigraph_engine.tables.staged import StagedWrite, StageKind
from omnigraph_engine.tables.table import Table, TableRef

_log = logging.getLogger(__name__)


def create_table(storage: Storage, location: str, schema: pa.Schema) -> ExactCommit:
    """Version 1 of a new, empty table. Fails when anything is there already."""
    with lance_errors(f"Creating the table '{storage.uri(location)}'"):
        dataset = lance.write_dataset(
            stored_schema(schema).empty_table(),
            storage.uri(location),
            mode="create",
            data_storage_version="2.2",
            enable_stable_row_ids=True,
            allow_external_blob_outside_bases=True,
            storage_options=storage.options or None,
        )
    manifest = manifest_path(location, dataset.version)
    return ExactCommit(dataset.version, storage.store_path(manifest), storage.size(manifest))


def commit_staged(table: Table, staged: StagedWrite) -> ExactCommit:
    """What was staged is the table's next version, exactly one above the version it was staged on, or nothing changed.

    Raises:
        VersionConflict: HEAD is not the base version any more; details have table_key, expected and actual.
        SnapshotGone: the version it was staged on is not in storage any more.
        StorageError: the store failed, and the write was not there when we looked.
    """
    if staged.line != table.ref.branch:
        staged = rehomed(table, staged)
    operation = _operation(table.dataset, staged)
    transaction = Transaction(staged.base_version, operation, uuid=staged.transaction_uuid)
    return _commit(table, transaction)


def restore(table: Table, version: int, transaction_uuid: str) -> ExactCommit:
    """The content of ``version`` becomes the table's next version, exactly one above ``table``'s own."""
    return _commit(table, Transaction(table.ref.version, LanceOperation.Restore(version), uuid=transaction_uuid))


def head_version(storage: Storage, ref: TableRef) -> int:
    """The newest version on this line of the table, published or not."""
    return latest_version(storage, ref.path)


def line_exists(storage: Storage, ref: TableRef) -> bool:
    """Whether this line of the table was ever forked, at least half-way."""
    return bool(storage.list(f"{ref.path}/_versions", limit=1))


def drop_line(storage: Storage, ref: TableRef) -> None:
    """The line is gone, if the store lets go of it. For lines that no manifest names and none ever will.

    A line that others were forked from stays, as Lance wants it. Whatever stays is garbage and harms nobody.
    """
    assert ref.branch is not None  # noqa: S101 - the main line of a table is nobody's to drop
    try:
        with lance_errors(f"Dropping the line '{ref.branch}' of {ref.table_key}"):
            root = lance.dataset(storage.uri(ref.location), storage_options=storage.options or None)
            if ref.branch in root.branches.list():
                root.branches.delete(ref.branch)
            _drop_half_made(storage, ref)
    except StorageError as error:
        _log.warning("%s", error.message)


def forks_of(storage: Storage, location: str) -> list[str]:
    """The names of all lines that were forked from a table, in whatever generation."""
    with lance_errors(f"Listing the lines of '{storage.uri(location)}'"):
        return sorted(lance.dataset(storage.uri(location), storage_options=storage.options or None).branches.list())


def fork(table: Table, name: str) -> Table:
    """A new line of the table that starts at this version. It copies no data; names are flat and unique to an operation.

    Calling it again for the same version gives the same fork, also after a call that died half-way: Lance writes the
    fork's first manifest, then its ref, and what stands without a ref under a name only this operation can have is ours.
    """
    forked = TableRef(table.ref.table_key, table.ref.location, name, table.ref.version)
    with lance_errors(f"Forking {table.ref.table_key} as '{name}'"):
        root = lance.dataset(table.storage.uri(table.ref.location), storage_options=table.storage.options or None)
        existing = root.branches.list().get(name)
        if existing is None:
            _drop_half_made(table.storage, forked)
            root.create_branch(name, (table.ref.branch, table.ref.version))
        elif _origin(existing) != (table.ref.branch, table.ref.version):
            raise GraphDamaged(
                f"{table.ref.table_key} has a fork '{name}' of another version ({existing['parent_version']}).",
                details={"table_key": table.ref.table_key, "fork": name},
            )
    return Table(table.storage, forked)


def _origin(branch: Any) -> tuple[str | None, int]:
    return branch["parent_branch"], int(branch["parent_version"])


def _drop_half_made(storage: Storage, forked: TableRef) -> None:
    if line_exists(storage, forked):
        LanceDataset.drop(storage.uri(forked.path), storage_options=storage.options or None)
    for path in storage.list(
        forked.path
    ):  # of a drop that died: Lance takes no folder for a dataset that has no version
        storage.delete(path)


def _commit(table: Table, transaction: Transaction) -> ExactCommit:
    try:
        return commit_exact(table.storage, table.ref.path, table.dataset, transaction)
    except VersionConflict as conflict:
        expected, actual = conflict.details["expected"], conflict.details["actual"]
        raise VersionConflict(
            f"version conflict on {table.ref.table_key}: expected {expected}, found {actual}.",
            details={"table_key": table.ref.table_key, **conflict.details},
            hint=conflict.hint,
        ) from conflict
    except StorageError as failure:
        gone = table.gone(failure)
        if gone is None:
            raise
        raise gone from failure


def _operation(dataset: LanceDataset, staged: StagedWrite) -> Any:
    new = _fragments(staged.new_fragments)
    if staged.kind is StageKind.OVERWRITE:
        return LanceOperation.Overwrite(dataset.schema, new)
    if staged.kind is StageKind.INDEX:
        return LanceOperation.CreateIndex([decode_index(text) for text in staged.new_indices], [])
    if staged.kind is StageKind.REWRITE:
        groups = [json.loads(text) for text in staged.rewrites]
        return LanceOperation.Rewrite(
            [LanceOperation.RewriteGroup(_fragments(group["old"]), _fragments(group["new"])) for group in groups], []
        )
    updated = _fragments(staged.updated_fragments)
    removed = list(staged.removed_fragment_ids)
    if staged.kind is StageKind.DELETE:
        return LanceOperation.Delete(updated, removed, "")
    # Rows that are only added are an Update too: the format has no raw Append on a graph table.
    return LanceOperation.Update(
        removed_fragment_ids=removed,
        updated_fragments=updated,
        new_fragments=new,
        update_mode="rewrite_rows",
        fields_for_preserving_frag_bitmap=_field_ids(dataset.lance_schema.fields()),
    )


def _fragments(texts: Sequence[str]) -> list[FragmentMetadata]:
    return [FragmentMetadata.from_json(text) for text in texts]


def _field_ids(fields: Sequence[Any]) -> list[int]:
    """All field ids, parents before children."""
    return [number for field in fields for number in (field.id(), *_field_ids(field.children()))]
