"""What lies in a table's folder, and which of it no version refers to.

Lance gives every file a random name when it writes it, and versions refer to files by these names: to those of their own
line and, by base paths, to those of other lines. What was staged on one line may be committed on another alone. So a file is
told by its name: when no version of any line names it, it is nobody's, wherever it lies. Lance's own cleanup asks the
versions of one line only, and takes for garbage what just other lines refer to.

What has a name of another form is not known here and never told to be left over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from urllib.parse import unquote

import lance
import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.storage import Storage, StoredObject
from omnigraph_engine.tables.exact import lance_errors


class FileKind(str, Enum):
    DATA = "data"
    BLOB = "blob"
    DELETIONS = "deletions"
    INDEX = "index"
    TRANSACTION = "transaction"
    REFUSED = "refused version"  # of a commit that did not come to be
    UNFINISHED = "unfinished"  # of a writer that died within a file, on a disk


@dataclass(frozen=True)
class Name:
    """What a version refers to: a file, or all files of one index."""

    kind: FileKind
    text: str


@dataclass(frozen=True)
class TableFile:
    """A file that may be left over, which it is unless a version names what it belongs to."""

    line: str | None  # whose folder it lies in
    kind: FileKind
    belongs_to: Name | None  # None: no version ever names it
    stored: StoredObject


@dataclass
class Line:
    """What lies in the folder of one line of a table."""

    files: int = 0
    size: int = 0
    modified: datetime | None = None  # the newest of it
    versions: set[int] = field(default_factory=set)


@dataclass
class Folder:
    """What lies in the folder of a table."""

    lines: dict[str | None, Line] = field(default_factory=dict)  # None is the main one
    files: list[TableFile] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)  # what may be a version, in a form that nobody knows


_MANIFEST = re.compile(r"(?:tree/(?P<line>.+)/)?_versions/(?P<number>\d{20})\.manifest")
_REF = re.compile(r"_refs/branches/(?P<name>[^/]+)\.json")
_PLACE = re.compile(r"(?:tree/(?P<line>.+?)/)?(?P<rest>(?:data|_deletions|_indices|_transactions|_versions|_refs)/.+)")
_KNOWN = re.compile(
    r"""
      data/(?P<data>[^/]+\.lance)
    | data/(?P<blob>[^/]+)/[^/]+\.blob
    | _deletions/(?P<deletions>[^/]+\.(?:arrow|bin))
    | _indices/(?P<index>[^/]+)/.+
    | _transactions/(?P<transaction>[^/]+\.txn)
    | _versions/(?P<refused>\d{20}\.manifest-[^/]+)
    | (?:[^/]+/)+(?P<unfinished>\.tmp[0-9A-Za-z]{6})
    """,
    re.VERBOSE,
)
_HINT = "_versions/latest_version_hint.json"


def contents(location: str, objects: Iterable[StoredObject]) -> Folder:
    """A table's folder, from a listing of it. Pure."""
    inside = [(stored.path.removeprefix(f"{location}/"), stored) for stored in objects]
    known = {match["line"] for path, _ in inside if (match := _MANIFEST.fullmatch(path))} - {None}
    folder = Folder()
    for path, stored in inside:
        ref = _REF.fullmatch(path)
        line, rest = (unquote(ref["name"]), "") if ref else _placed(path, known)
        found = folder.lines.setdefault(line, Line())
        found.files += 1
        found.size += stored.size
        found.modified = stored.modified if found.modified is None else max(found.modified, stored.modified)
        if version := _MANIFEST.fullmatch(rest):
            found.versions.add(2**64 - 1 - int(version["number"]))
        elif match := _KNOWN.fullmatch(rest):
            folder.files.append(_file(line, match, stored))
        elif rest.startswith("_versions/") and rest != _HINT:
            folder.strange.append(path)
    return folder


def _placed(path: str, known: Collection[str]) -> tuple[str | None, str]:
    """The line that a path belongs to, and the rest of it. A line's name may have several parts, of any text."""
    parts = path.split("/")
    if parts[0] != "tree":
        return None, path
    for end in range(len(parts) - 1, 1, -1):
        if "/".join(parts[1:end]) in known:
            return "/".join(parts[1:end]), "/".join(parts[end:])
    place = _PLACE.fullmatch(path)
    return (parts[1], "") if place is None else (place["line"], place["rest"])


def _file(line: str | None, match: re.Match[str], stored: StoredObject) -> TableFile:
    kind = FileKind.REFUSED if match["refused"] else FileKind.UNFINISHED if match["unfinished"] else None
    return TableFile(line, kind, None, stored) if kind else TableFile(line, *_belongs(match), stored)


def _belongs(match: re.Match[str]) -> tuple[FileKind, Name]:
    if match["blob"]:
        return FileKind.BLOB, Name(FileKind.DATA, f"{match['blob']}.lance")
    for kind in (FileKind.DATA, FileKind.DELETIONS, FileKind.INDEX, FileKind.TRANSACTION):
        if match[kind.value]:
            return kind, Name(kind, match[kind.value])
    raise AssertionError("unreachable: one of the groups has matched")


def forgotten(
    folder: Folder, parents: Mapping[str, str | None], kept: Collection[str | None], before: datetime
) -> list[str]:
    """The lines that may go, those that others were forked from last. Pure.

    A line stays when it is among ``kept``, when anything of it is newer than ``before``, when a line that stays was forked
    from it, and when a line that stays lies in its folder.
    """
    lines = {line for line in (*folder.lines, *parents) if line is not None}
    staying = {line for line in lines if line in kept or _modified(folder, line) > before}
    while more := {line for line in lines - staying if any(_needs(other, line, parents) for other in staying)}:
        staying |= more
    return sorted(lines - staying, key=lambda line: (_generation(line, parents), line), reverse=True)


def _modified(folder: Folder, line: str) -> datetime:
    found = folder.lines[line].modified if line in folder.lines else None
    return datetime.max.replace(tzinfo=timezone.utc) if found is None else found  # it has come since the listing


def _generation(line: str, parents: Mapping[str, str | None]) -> int:
    generation, parent = 0, parents.get(line)
    while parent is not None and generation < len(parents):
        generation, parent = generation + 1, parents.get(parent)
    return generation


def _needs(line: str, other: str, parents: Mapping[str, str | None]) -> bool:
    return parents.get(line) == other or line.startswith(f"{other}/")


def line_parents(storage: Storage, location: str) -> dict[str, str | None]:
    """The lines of a table that have a ref, and which line each was forked from; None is the main one."""
    with lance_errors(f"Listing the lines of '{storage.uri(location)}'"):
        root = lance.dataset(storage.uri(location), storage_options=storage.options or None)
        return {name: line["parent_branch"] for name, line in root.branches.list().items()}


def named(storage: Storage, path: str, above: int) -> Iterator[tuple[set[Name], set[int]]]:
    """What the versions of a line that are newer than ``above`` refer to, and which versions these are, in portions.

    Not in it: indexes that a line has from one that it was forked from. The versions of that one name them.
    """
    with lance_errors(f"Reading what the versions of '{storage.uri(path)}' refer to"):
        dataset = lance.dataset(storage.uri(path), storage_options=storage.options or None)
        for batch in dataset.tracked_files(min_version=above + 1):
            paths = pc.unique(batch.column("path")).to_pylist()
            matches = [match for text in paths if (match := _KNOWN.fullmatch(text))]
            manifests = batch.filter(pc.equal(batch.column("type").cast(pa.string()), "manifest"))
            versions = manifests.column("version").to_pylist()
            yield {_belongs(match)[1] for match in matches}, {int(version) for version in versions if version}
