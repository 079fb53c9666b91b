"""Small objects below one graph root, on a local disk or any object store.

Schema files, claims and sidecars are JSON documents that live beside the Lance datasets. This module is their only
door to storage, and the one compare-and-swap that everything rests on (``put_if_absent``) is here. The same root and
options address the datasets, so a ``Storage`` is also what the engine passes around to say where a graph is.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, from_url

from omnigraph_engine.errors import InvalidArgument, ObjectExists, ObjectNotFound, StorageError

# Keys that obstore takes as client options; Lance takes one flat mapping, and so do we.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)


@dataclass(frozen=True)
class StoredObject:
    """Something that is stored, as a listing tells it."""

    path: str
    size: int
    modified: datetime  # by the store's own clock


class Storage:
    """One graph root. Every failure is a ``StorageError``; absent objects are told apart from failing stores.

    Instances are cheap, hold no connection until used and may be pickled.
    """

    def __init__(self, root: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> None:
        self.root = normalise_root(root)
        self.options = dict(options or {})
        self.operations: Counter[str] = Counter()  # what was asked of the store, for the cost gates

    def __repr__(self) -> str:
        return f"Storage({self.root!r})"

    def __getstate__(self) -> tuple[str, dict[str, str]]:
        return self.root, self.options

    def __setstate__(self, state: tuple[str, dict[str, str]]) -> None:
        self.root, self.options = state
        self.operations = Counter()

    @property
    def is_local(self) -> bool:
        return self.root.startswith("/")

    def uri(self, path: str) -> str:
        """The full address of something below the root, as Lance takes it."""
        return f"{self.root}/{path}"

    def store_path(self, path: str) -> str:
        """How the store itself names an object: an absolute path on disk, the key inside the bucket elsewhere."""
        if self.is_local:
            return f"{self.root}/{path}"
        return f"{urlsplit(self.root).path.strip('/')}/{path}".lstrip("/")

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Afterwards the object holds exactly these bytes, or ``ObjectExists`` is raised and it is somebody else's.

        A store may apply a put and lose the answer, and its client then retries and meets its own object. So an
        object that is there with the same bytes counts as ours: every document needs something of its writer's own.
        """
        with self._asked("put_if_absent", path):
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError as error:
                if self.get(path) == data:
                    return
                raise ObjectExists(f"'{self.uri(path)}' exists already.", details={"path": path}) from error

    def put(self, path: str, data: bytes) -> None:
        """Afterwards the object holds exactly these bytes, whatever was there before."""
        with self._asked("put", path):
            obstore.put(self._store, path, data, use_multipart=False)

    def get(self, path: str) -> bytes:
        """The whole object. Raises ``ObjectNotFound`` when it is not there."""
        with self._asked("get", path):
            return bytes(obstore.get(self._store, path).bytes())

    def size(self, path: str) -> int:
        """The object's size in bytes. Raises ``ObjectNotFound`` when it is not there."""
        with self._asked("head", path):
            return obstore.head(self._store, path)["size"]

    def list(self, prefix: str = "", *, limit: int | None = None) -> list[str]:
        """Paths of all objects below a folder, sorted; at most about ``limit`` of them are looked at when given."""
        found: list[str] = []
        with self._asked("list", prefix):
            for chunk in obstore.list(self._store, prefix or None, chunk_size=min(limit or 1000, 1000)):
                found.extend(entry["path"] for entry in chunk)
                if limit is not None and len(found) >= limit:
                    break
        return sorted(found)

    def objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects below a folder, in no order, as the store lists them."""
        with self._asked("list", prefix):
            for chunk in obstore.list(self._store, prefix or None):
                for entry in chunk:
                    yield StoredObject(entry["path"], entry["size"], entry["last_modified"])

    def modified(self, path: str) -> datetime:
        """When the object was last written, by the store's own clock. Raises ``ObjectNotFound`` when it is not there."""
        with self._asked("head", path):
            return obstore.head(self._store, path)["last_modified"]

    def delete(self, path: str) -> None:
        """Afterwards the object is not there. Deleting what is absent is not an error."""
        with self._asked("delete", path):
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                return

    def root_exists(self) -> bool:
        """Whether anything at all is stored at the root (object stores have no empty folders)."""
        if self.is_local:
            return os.path.lexists(self.root)
        return bool(self.list(limit=1))

    def make_root(self) -> None:
        """Makes the local folder; object stores need none."""
        if self.is_local:
            with self._asked("mkdir", ""):
                os.makedirs(self.root, exist_ok=True)

    @cached_property
    def _store(self) -> Any:
        if self.is_local:
            return LocalStore(prefix=self.root)
        client = {key: value for key, value in self.options.items() if key in _CLIENT_OPTIONS}
        config: Any = {key: value for key, value in self.options.items() if key not in _CLIENT_OPTIONS}
        return from_url(self.root, config=config, client_options=client or None)  # type: ignore[arg-type]

    @contextmanager
    def _asked(self, verb: str, path: str) -> Iterator[None]:
        self.operations[verb] += 1
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectNotFound(f"'{self.uri(path)}' does not exist.", details={"path": path}) from error
        except (BaseError, OSError) as error:
            if isinstance(error, StorageError):
                raise
            reason = str(error).split("\n", 1)[0]
            raise StorageError(
                f"{verb} of '{self.uri(path)}' failed: {reason}", details={"path": path, "operation": verb}
            ) from error


def normalise_root(root: str | os.PathLike[str]) -> str:
    """An absolute local path, or a store's URL; without a trailing slash. The same root always gets the same text."""
    text = os.fspath(root)
    if not text:
        raise InvalidArgument(
            "The address of a graph is empty.", hint="Give a folder or a URL such as s3://bucket/name."
        )
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    if "://" in text:
        return text.rstrip("/")
    return "/" + os.path.abspath(text).lstrip("/")  # POSIX lets two leading slashes stand
