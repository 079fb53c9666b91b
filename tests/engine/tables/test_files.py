"""What lies in a table's folder is told by its path, and lines that others need do not go."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from omnigraph_engine.storage import StoredObject
from omnigraph_engine.tables.files import FileKind, Folder, Name, contents, forgotten

THEN = datetime(2026, 1, 1, tzinfo=timezone.utc)
LATER = THEN + timedelta(days=1)
TABLE = "nodes/0000000000000001-0000000000000002"


def stored(path: str, modified: datetime = THEN, size: int = 1) -> StoredObject:
    return StoredObject(f"{TABLE}/{path}", size, modified)


def folder(*paths: str) -> Folder:
    return contents(TABLE, map(stored, paths))


@pytest.mark.parametrize(
    ("path", "kind", "belongs_to"),
    [
        ("data/0101ab.lance", FileKind.DATA, Name(FileKind.DATA, "0101ab.lance")),
        ("data/0101ab/100.blob", FileKind.BLOB, Name(FileKind.DATA, "0101ab.lance")),
        ("_deletions/0-2-82.arrow", FileKind.DELETIONS, Name(FileKind.DELETIONS, "0-2-82.arrow")),
        ("_deletions/0-2-82.bin", FileKind.DELETIONS, Name(FileKind.DELETIONS, "0-2-82.bin")),
        ("_indices/7abc/page_data.lance", FileKind.INDEX, Name(FileKind.INDEX, "7abc")),
        ("_indices/7abc/staging/part/x.lance", FileKind.INDEX, Name(FileKind.INDEX, "7abc")),
        ("_transactions/3-7abc.txn", FileKind.TRANSACTION, Name(FileKind.TRANSACTION, "3-7abc.txn")),
        (f"_versions/{2**64 - 4:020d}.manifest-7abc", FileKind.REFUSED, None),
        ("data/.tmpHf4OkA", FileKind.UNFINISHED, None),
        ("data/0101ab/.tmpHf4OkA", FileKind.UNFINISHED, None),
        ("_deletions/.tmpHf4OkA", FileKind.UNFINISHED, None),
    ],
)
@pytest.mark.parametrize("line", [None, "dev-0ab-01M", "feature/data/x"])
def test_what_may_be_left_over_is_told_by_its_path(
    line: str | None, path: str, kind: FileKind, belongs_to: Name | None
) -> None:
    home = "" if line is None else f"tree/{line}/"
    found = folder(f"{home}_versions/{2**64 - 2:020d}.manifest", f"{home}{path}")
    (file,) = found.files
    assert (file.line, file.kind, file.belongs_to) == (line, kind, belongs_to)
    assert found.lines[line].versions == {1}
    assert found.lines[line].files == 2


@pytest.mark.parametrize(
    "path",
    [
        f"_versions/{2**64 - 2:020d}.manifest",
        "_versions/latest_version_hint.json",
        "_refs/branches/dev.json",
        "_refs/tags/t.json",
        "data/notes.txt",
        "data/0101ab/notes.txt",
        "README",
        "tree/README",
        "somewhere/0101ab.lance",
    ],
)
def test_what_is_not_known_is_never_left_over(path: str) -> None:
    assert folder(path).files == []
    assert folder(path).strange == []


@pytest.mark.parametrize("path", ["_versions/3.manifest", "_versions/d92.manifest", "tree/x/_versions/d9.manifest"])
def test_a_version_of_another_form_is_strange(path: str) -> None:
    assert folder(path).strange == [path]


def test_a_line_counts_all_that_lies_in_its_folder_and_its_ref() -> None:
    found = contents(
        TABLE,
        [
            stored("tree/x/_versions/latest_version_hint.json", THEN, 2),
            stored("tree/x/what/ever", THEN, 3),
            stored("_refs/branches/x.json", LATER, 4),
            stored("_refs/branches/a%2Fb.json", THEN, 5),
        ],
    )
    assert (found.lines["x"].files, found.lines["x"].size, found.lines["x"].modified) == (3, 9, LATER)
    assert found.lines["a/b"].size == 5


def lines(*names: str, modified: datetime = THEN) -> Folder:
    return contents(TABLE, [stored(f"tree/{name}/_versions/{2**64 - 2:020d}.manifest", modified) for name in names])


def test_a_line_that_nobody_keeps_goes_and_main_never_does() -> None:
    found = folder(f"_versions/{2**64 - 2:020d}.manifest", f"tree/x/_versions/{2**64 - 2:020d}.manifest")
    assert forgotten(found, {"x": None}, {"x"}, LATER) == []
    assert forgotten(found, {"x": None}, set(), LATER) == ["x"]


def test_a_line_with_anything_young_stays() -> None:
    assert forgotten(lines("x", modified=LATER), {"x": None}, set(), THEN) == []


def test_a_line_that_has_come_since_the_listing_stays() -> None:
    assert forgotten(lines(), {"x": None}, set(), LATER) == []


def test_lines_that_one_that_stays_was_forked_from_stay() -> None:
    parents = {"a": None, "b": "a", "c": "b", "d": "a"}
    assert forgotten(lines("a", "b", "c", "d"), parents, {"c"}, LATER) == ["d"]


def test_a_line_goes_after_those_that_were_forked_from_it() -> None:
    parents = {"c": None, "a": "c", "b": "a"}
    assert forgotten(lines("a", "b", "c"), parents, set(), LATER) == ["b", "a", "c"]


def test_a_line_in_whose_folder_one_lies_that_stays_stays() -> None:
    assert forgotten(lines("a", "a/b", "ab"), {}, {"a/b"}, LATER) == ["ab"]
