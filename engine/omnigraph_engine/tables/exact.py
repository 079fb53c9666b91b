"""The exact commit: a Lance version lands as ``base + 1`` or not at all.

Lance rebases a commit over whatever landed since its base, also with ``max_retries=0``. What it does offer is a namespace
that publishes versions on its behalf. ``ExactHead`` is such a namespace with one rule: it publishes version ``base + 1``,
by put-if-absent, and refuses every other. Two writers at one base therefore have exactly one winner, on any store, and the
loser changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance
from lance import LanceDataset
from lance.dataset import Transaction

from omnigraph_engine.errors import ObjectExists, ObjectNotFound, OmnigraphError, StorageError, VersionConflict
from omnigraph_engine.storage import Storage

_PLACE_IN_LANCE = re.compile(r",? /\S+\.rs:\d+(:\d+)?")
_TABLE_ID = ["table"]  # a guard serves one dataset; Lance wants some id for it


class ExactHead:
    """Publishes version ``base + 1`` of one dataset, or refuses.

    Lance calls it by its methods' names. It has no base class because importing Lance's own costs every process a second.
    """

    def __init__(self, storage: Storage, path: str, base_version: int) -> None:
        self._storage = storage
        self._path = path
        self._target = base_version + 1
        self.manifest_size: int | None = None
        self.lost = False  # somebody else's version stands, or was met, where ours was to land

    def namespace_id(self) -> str:
        return f"omnigraph-exact:{self._storage.uri(self._path)}"

    def create_table_version(self, request: dict[str, Any]) -> dict[str, Any]:
        version = int(request["version"])
        if version != self._target:
            self.lost = True
            raise RuntimeError(f"HEAD moved: the commit would land at {version}, not {self._target}")
        staged = f"{self._path}/_versions/{request['manifest_path'].rsplit('/', 1)[-1]}"
        manifest = self._storage.get(staged)
        try:
            self._storage.put_if_absent(manifest_path(self._path, version), manifest)
        except ObjectExists as error:
            self.lost = True
            raise RuntimeError(f"version {version} exists already") from error
        self.manifest_size = len(manifest)
        self._discard(staged)
        return self._describe(version, len(manifest))

    def describe_table_version(self, request: dict[str, Any]) -> dict[str, Any]:
        # After a refusal Lance asks whether its commit landed after all, again and again with pauses while nothing stands
        # where it looks. The answer is what stands at our target: ours or, at once a conflict, somebody else's.
        version = self._target if self.lost else int(request["version"])
        return self._describe(version, self._storage.size(manifest_path(self._path, version)))

    def _describe(self, version: int, size: int) -> dict[str, Any]:
        path = self._storage.store_path(manifest_path(self._path, version)).lstrip("/")
        return {"version": {"version": version, "manifest_path": path, "manifest_size": size, "naming_scheme": "V2"}}

    def _discard(self, staged: str) -> None:
        try:
            self._storage.delete(staged)
        except StorageError:  # the version is published; the staged copy of its manifest is garbage like any other
            return


@dataclass(frozen=True)
class ExactCommit:
    """A version that landed, and where its manifest is."""

    version: int
    manifest_path: str
    manifest_size: int


def manifest_path(dataset_path: str, version: int) -> str:
    """Path of a version's manifest file, by Lance's V2 naming (newest first in a listing)."""
    return f"{dataset_path}/_versions/{2**64 - 1 - version:020d}.manifest"


def open_guarded(storage: Storage, path: str, version: int) -> tuple[LanceDataset, ExactHead]:
    """A dataset whose next commit lands exactly at ``version + 1``, for operations that commit by themselves."""
    guard = ExactHead(storage, path, version)
    dataset = LanceDataset(
        storage.uri(path),
        version=version,
        storage_options=storage.options or None,
        namespace_client=guard,
        table_id=_TABLE_ID,
        namespace_client_managed_versioning=True,
    )
    return dataset, guard


def commit_exact(storage: Storage, path: str, dataset: LanceDataset, transaction: Transaction) -> ExactCommit:
    """The transaction is version ``read_version + 1`` afterwards, or nothing changed and ``VersionConflict`` is raised.

    A failing store leaves a third case: the answer is lost. It is resolved by looking for the transaction's own uuid at
    the target version; ``StorageError`` means that it was not there when we looked.
    """
    base = transaction.read_version
    guard: Any = ExactHead(storage, path, base)
    try:
        # The guard would refuse as well, but its refusal makes Lance import its namespace client, for a second or more.
        if dataset.latest_version != base:
            raise RuntimeError("HEAD moved")  # noqa: TRY301 - there is one way to find out what that means
        LanceDataset.commit(
            dataset,
            transaction,
            max_retries=0,
            storage_options=storage.options or None,
            namespace_client=guard,
            table_id=_TABLE_ID,
            namespace_client_managed_versioning=True,
        )
    except Exception as error:
        # HEAD first: a request that lands after its client saw the error may come between the two looks, and must then be
        # found as ours by the second one, not be taken for somebody else's by the first.
        head = latest_version(storage, path)
        if transaction_uuid(storage, path, base + 1) != transaction.uuid:
            raise commit_failure(storage, path, base, head, guard, error) from error
    target = manifest_path(path, base + 1)
    size = guard.manifest_size if guard.manifest_size is not None else storage.size(target)
    return ExactCommit(base + 1, storage.store_path(target), size)


def commit_failure(
    storage: Storage, path: str, base: int, head: int, guard: ExactHead, error: Exception
) -> VersionConflict | StorageError:
    """The typed error for a commit that did not land: a conflict when somebody was faster, else a storage failure."""
    # Lance refuses some operations over what landed since (a delete over an overwrite) before it asks the guard.
    if guard.lost or head != base:
        return VersionConflict(
            f"'{storage.uri(path)}' moved: expected version {base}, found {head}.",
            details={"expected": base, "actual": head},
            hint="Nothing was committed; read again and retry.",
        )
    return StorageError(
        f"Committing '{storage.uri(path)}' at version {base} failed: {one_line(error)}", details={"path": path}
    )


def latest_version(storage: Storage, path: str) -> int:
    """The dataset's HEAD as the store has it now."""
    with lance_errors(f"Opening '{storage.uri(path)}'"):
        return int(lance.dataset(storage.uri(path), storage_options=storage.options or None).version)


def transaction_uuid(storage: Storage, path: str, version: int) -> str | None:
    """Who made a version: the uuid of its transaction, or None when there is no such version.

    A store that fails to answer raises: silence must never be taken for absence.
    """
    try:
        storage.size(manifest_path(path, version))
    except ObjectNotFound:
        return None
    with lance_errors(f"Reading version {version} of '{storage.uri(path)}'"):
        dataset = lance.dataset(storage.uri(path), version=version, storage_options=storage.options or None)
        try:
            transaction: Any = dataset.read_transaction(version)
            return str(transaction.uuid)
        except TypeError:  # pylance cannot decode a compaction that rewrote an index; none of ours does
            return ""


@contextmanager
def lance_errors(doing: str) -> Iterator[None]:
    """Turns whatever Lance raises inside the block into one ``StorageError`` that says what was being done."""
    try:
        yield
    except OmnigraphError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise StorageError(f"{doing} failed: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """What Lance says, without the place in its source that it ends with."""
    return _PLACE_IN_LANCE.sub("", str(error)).split("\n", 1)[0]
