"""Options: what is given is understood or refused with a hint; no Spark is needed to tell."""

from __future__ import annotations

import pytest
from omnigraph_engine.errors import InvalidArgument, UnknownType

from omnigraph_spark.options import OPTIONS, Address, TypeName, read_options, write_options

PERSON = {"path": "/data/social.omni", "node": "Person"}


def test_what_is_given_is_what_is_understood() -> None:
    options = read_options(
        {**PERSON, "branch": "dev", "version": "3", "columns": "id, name", "storage.aws_region": "eu-west-1"}
    )
    assert options.address == Address("/data/social.omni", {"aws_region": "eu-west-1"})
    assert options.target == TypeName("node", "Person")
    assert (options.branch, options.version, options.columns) == ("dev", 3, ("id", "name"))


def test_a_writer_writes_to_main_unless_told_otherwise() -> None:
    assert write_options(PERSON).branch == "main"
    assert write_options({**PERSON, "branch": "dev"}).branch == "dev"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**PERSON, "brnach": "dev"}, "no option 'brnach'.*Did you mean 'branch'"),
        ({**PERSON, "zzz": "1"}, "no option 'zzz'.*Options: path, node, edge"),
        ({"node": "Person"}, "address of the graph is missing"),
        ({"path": "social.omni", "node": "Person"}, "is relative.*absolute path"),
        ({"path": "/data/social.omni"}, "none was given"),
        ({**PERSON, "edge": "Knows"}, "node and edge were given"),
        ({**PERSON, "version": "three"}, "not a whole number"),
        ({**PERSON, "columns": "id,,name"}, "separated by commas"),
        ({**PERSON, "columns": "id,id"}, "distinct"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_hint(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        read_options(given)


@pytest.mark.parametrize("name", ["commit", "version", "timestamp", "columns"])
def test_options_of_reading_are_refused_when_writing(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"no option '{name}' to write"):
        write_options({**PERSON, name: "1"})


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("node", "Persom", "no node type 'Persom'. Hint: Did you mean 'Person'"),
        ("node", "Knows", "of the edge types"),
        ("edge", "Person", "of the node types"),
    ],
)
def test_a_type_that_is_not_there_is_refused_with_a_hint(kind: str, name: str, says: str) -> None:
    with pytest.raises(UnknownType, match=says):
        TypeName(kind, name).table_key({"node:Person": 0, "edge:Knows": 0})  # type: ignore[arg-type]


def test_every_option_says_what_it_means() -> None:
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    assert all(option.doc.endswith(".") for option in OPTIONS)
