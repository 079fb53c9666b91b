"""A filter is one whole condition, or it is refused: Lance reads as far as it understands and drops the rest."""

from __future__ import annotations

import pyarrow as pa
import pytest
from omnigraph_engine.errors import InvalidArgument
from omnigraph_engine.graph import Graph
from omnigraph_engine.snapshot import SnapshotTable

SCHEMA = "node Person { name: String @key  age: I32?  active: Bool? }"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> SnapshotTable:
    graph = Graph.create(tmp_path_factory.mktemp("predicates") / "graph.omni", SCHEMA)
    graph.load(
        {"Person": pa.table({"name": ["a;b", "--", "/*", "it's", ")", "]"], "age": pa.array(range(6), pa.int32())})}
    )
    return graph.snapshot().table("Person")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("age > 0; AND name = 'ada'", ";"),
        ("age > 0;", ";"),
        ("age > 0 name = 'ada'", "name"),
        ("age > 0, name = 'ada'", None),
        ("age > 0) AND (name = 'ada'", ")"),
        ("age > 0) garbage (", ")"),
        ("age > 0)", ")"),
        ("age > 0] garbage [", "]"),
        ("age > 0 ORDER BY name", "ORDER"),
        ("age > 0 LIMIT 1", "LIMIT"),
        ("age > 0 /* and */ garbage", "garbage"),
        ("age > 0 -- and\n garbage", "garbage"),
    ],
)
def test_a_filter_of_which_lance_would_drop_a_part_is_refused(
    people: SnapshotTable, text: str, found: str | None
) -> None:
    for read in (people.to_arrow, people.count, lambda **given: list(people.to_batches(**given))):
        with pytest.raises(InvalidArgument, match="is not one condition") as refused:
            read(filter=text)
        assert refused.value.hint is not None
        assert found is None or refused.value.message.endswith(f"from '{found}' on.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name = 'a;b'", ["a;b"]),
        ('name = "a;b"', ["a;b"]),
        ("`name` = 'a;b'", ["a;b"]),
        ("name = '--' OR name = '/*'", ["--", "/*"]),
        ("name = 'it''s'", ["it's"]),
        ("name IN (')', ']')", [")", "]"]),
        ("age > 3 -- that is; all", [")", "]"]),
        ("age > 3 /* that is; all */", [")", "]"]),
        (" (age > 3) AND\n NOT (age = 4) ", ["]"]),
        ("regexp_match(name, '^it')", ["it's"]),
        ("array_has([1, 2], age)", ["--", "/*"]),
        ("active IS NULL AND age = CAST('5' AS INT)", ["]"]),
    ],
)
def test_a_whole_condition_is_accepted_whatever_stands_in_its_texts_and_comments(
    people: SnapshotTable, text: str, expected: list[str]
) -> None:
    assert people.to_arrow(["name"], filter=text)["name"].to_pylist() == expected
    assert people.count(text) == len(expected)


@pytest.mark.parametrize("text", ["agee > 3", "age >", "age", "foo(age) > 1", "", "name = N'x'", "age > 'x'", "'"])
def test_a_filter_that_does_not_work_is_told_in_one_line_without_paths_of_anybodys_build(
    people: SnapshotTable, text: str
) -> None:
    for read in (people.to_arrow, people.count):
        with pytest.raises(InvalidArgument, match="does not work on node:Person: ") as refused:
            read(filter=text)
        assert ".rs:" not in refused.value.message
        assert "/home/" not in refused.value.message
        assert "\n" not in refused.value.message


def test_a_filter_that_is_no_text_is_refused(people: SnapshotTable) -> None:
    with pytest.raises(InvalidArgument, match="not text"):
        people.to_arrow(filter=5)  # type: ignore[arg-type]
