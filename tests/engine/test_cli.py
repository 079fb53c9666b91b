"""The command ``omnigraph``: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from omnigraph_engine.cli import cli
from omnigraph_engine.failpoints import Failpoint, Moment, installed
from omnigraph_engine.graph import Graph
from omnigraph_engine.write.load import LoadMode, WriteOptions

ROWS = """\
{"type": "Person", "data": {"name": "Ada", "age": 36}}
{"type": "Person", "data": {"name": "Bob"}}
{"edge": "Knows", "from": "Ada", "to": "Bob", "data": {}}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def text(*arguments: object) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def document(*arguments: object) -> Any:
    return json.loads(text(*arguments, "--json"))


@pytest.fixture
def schema_file(tmp_path: Path, social: str) -> Path:
    path = tmp_path / "social.pg"
    path.write_bytes(social.encode())
    return path


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    path = tmp_path / "people.jsonl"
    path.write_text(ROWS, encoding="utf-8")
    return path


@pytest.fixture
def graph(tmp_path: Path, social: str, rows_file: Path) -> Graph:
    """A graph with two commits: its creation, and a load by alice."""
    graph = Graph.create(tmp_path / "social.omni", social)
    graph.load_jsonl(rows_file, actor="alice", message="[first] people")
    return graph


def test_init_creates_a_graph_and_names_its_tables(tmp_path: Path, schema_file: Path) -> None:
    assert "node:Person" in text("init", tmp_path / "text.omni", schema_file)
    created = document("init", tmp_path / "json.omni", schema_file)
    assert created["tables"] == ["edge:Knows", "edge:WorksAt", "node:Company", "node:Person"]
    assert created["commit"] == Graph.open(tmp_path / "json.omni").snapshot().commit.commit_id


def test_init_keeps_the_line_ends_of_the_schema_file(tmp_path: Path, schema_file: Path, social: str) -> None:
    schema_file.write_bytes(social.replace("\n", "\r\n").encode())
    text("init", tmp_path / "graph.omni", schema_file)
    assert Graph.open(tmp_path / "graph.omni").schema.source == social.replace("\n", "\r\n")


def test_load_commits_a_file_and_reports_each_table(tmp_path: Path, schema_file: Path, rows_file: Path) -> None:
    uri = tmp_path / "graph.omni"
    text("init", uri, schema_file)
    loaded = document("load", uri, rows_file, "--actor", "alice", "--message", "people")
    assert (loaded["commit"]["actor"], loaded["commit"]["message"]) == ("alice", "people")
    person = {"version": 2, "rows": 2, "inserted": 2, "updated": 0, "deleted": 0, "skipped": 0}
    assert loaded["tables"]["node:Person"] == person
    printed = text("load", uri, rows_file, "--mode", "merge")
    assert "node:Person" in printed
    assert Graph.open(uri).snapshot().commit.commit_id in printed


def test_a_load_of_an_empty_file_commits_nothing(graph: Graph, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert text("load", graph.uri, empty) == "Nothing to commit.\n"
    assert document("load", graph.uri, empty) == {"commit": None, "tables": {}}


def test_snapshot_shows_key_version_branch_and_rows_of_each_table(graph: Graph) -> None:
    shown = document("snapshot", graph.uri)
    assert {"key": "node:Person", "version": 2, "branch": "main", "rows": 2} in shown["tables"]
    lines = [line.split() for line in text("snapshot", graph.uri).splitlines()]
    assert ["key", "version", "branch", "rows"] in lines
    assert ["node:Person", "2", "main", "2"] in lines


def test_snapshot_shows_a_branch_commit_version_or_time(graph: Graph) -> None:
    newest, first = document("commit", "list", graph.uri)["commits"]
    for selection, expected in (
        (("--branch", "main"), newest),
        (("--commit", first["id"]), first),
        (("--version", 1), first),
        (("--timestamp", first["created_at"]), first),
    ):
        assert document("snapshot", graph.uri, *selection)["commit"] == expected["id"]


def test_schema_show_prints_the_diagram_or_the_exact_source(graph: Graph) -> None:
    assert text("schema", "show", graph.uri) == graph.schema.diagram() + "\n"
    assert text("schema", "show", graph.uri, "--source") == graph.schema.source
    assert document("schema", "show", graph.uri) == {
        "diagram": graph.schema.diagram(),
        "source": graph.schema.source,
    }


def test_schema_plan_prints_the_steps_and_applies_nothing(graph: Graph, schema_file: Path, social: str) -> None:
    schema_file.write_text(social.replace("    age: I32?\n", "    email: String?\n"), encoding="utf-8")
    assert text("schema", "plan", graph.uri, schema_file).splitlines() == [
        "add node:Person.email: String?",
        "drop node:Person.age (destructive)",
    ]
    planned = document("schema", "plan", graph.uri, schema_file)
    assert [step["kind"] for step in planned["steps"]] == ["add_property", "drop_property"]
    assert Graph.open(graph.uri).schema.source == social


def test_schema_plan_says_when_there_is_nothing_to_change(graph: Graph, schema_file: Path) -> None:
    assert text("schema", "plan", graph.uri, schema_file) == "Nothing to change.\n"
    assert document("schema", "plan", graph.uri, schema_file)["steps"] == []


def test_commit_list_is_newest_first_and_can_be_narrowed(graph: Graph) -> None:
    ids = [commit.commit_id for commit in graph.commits.list()]
    assert [commit["id"] for commit in document("commit", "list", graph.uri, "--branch", "main")["commits"]] == ids
    assert [commit["id"] for commit in document("commit", "list", graph.uri, "--limit", 1)["commits"]] == ids[:1]
    assert [commit["id"] for commit in document("commit", "list", graph.uri, "--actor", "alice")["commits"]] == ids[:1]
    printed = text("commit", "list", graph.uri).splitlines()
    assert [line.split()[0] for line in printed[1:]] == ids


def test_commit_show_prints_one_commit_with_its_message_as_it_was_given(graph: Graph) -> None:
    newest, first = graph.commits.list()
    shown = document("commit", "show", graph.uri, newest.commit_id)
    assert (shown["parent"], shown["actor"], shown["message"]) == (first.commit_id, "alice", "[first] people")
    assert "[first] people" in text("commit", "show", graph.uri, newest.commit_id)


def test_branch_list_has_main(graph: Graph) -> None:
    assert text("branch", "list", graph.uri).splitlines()[1].split()[0] == "main"
    assert [branch["name"] for branch in document("branch", "list", graph.uri)["branches"]] == ["main"]


def test_branch_create_makes_a_branch_of_a_branch_or_a_commit(graph: Graph) -> None:
    assert text("branch", "create", graph.uri, "dev") == "Created branch dev from main, version 2.\n"
    first = graph.commits.list()[-1]
    made = document("branch", "create", graph.uri, "old", "--from", first.commit_id)
    assert (made["name"], made["parent"], made["parent_version"]) == ("old", "main", 1)
    assert [branch["name"] for branch in document("branch", "list", graph.uri)["branches"]] == ["main", "dev", "old"]
    assert document("snapshot", graph.uri, "--branch", "old")["commit"] == first.commit_id
    assert run("branch", "create", graph.uri, "dev").stderr.startswith("error: OG1013 ")


def test_load_takes_a_branch_and_leaves_main_alone(graph: Graph, rows_file: Path) -> None:
    graph.branches.create("dev")
    loaded = document("load", graph.uri, rows_file, "--mode", "merge", "--branch", "dev")
    assert loaded["commit"]["branch"] == "dev"
    assert [commit["branch"] for commit in document("commit", "list", graph.uri, "--branch", "dev")["commits"]] == [
        "dev", "main", "main"
    ]  # fmt: skip
    assert document("snapshot", graph.uri)["version"] == 2


@pytest.fixture
def dev(graph: Graph) -> Graph:
    """The graph with a branch dev, on which Ada got older, Cy came and Bob went, and with him what he was known by."""
    graph.branches.create("dev")
    graph.load({"Knows": pa.table({"src": ["Ada"], "dst": ["Ada"]})}, mode="overwrite", branch="dev")
    people = pa.table({"name": ["Ada", "Cy"], "age": pa.array([37, 5], pa.int32())})
    graph.load({"Person": people}, mode="overwrite", branch="dev", message="people")
    return graph


def test_branch_delete_shows_what_would_go_and_deletes_only_with_yes(dev: Graph) -> None:
    commits = [commit.commit_id for commit in dev.commits.list("dev", limit=2)]
    told = document("branch", "delete", dev.uri, "dev")
    assert (told["deleted"], told["tables"], told["descendants"]) == (False, ["edge:Knows", "node:Person"], [])
    assert [(commit["id"], commit["merged"]) for commit in told["commits"]] == [(id_, False) for id_ in commits]
    printed = text("branch", "delete", dev.uri, "dev")
    assert "dev has 2 commits of its own, changing edge:Knows, node:Person; 2 not merged elsewhere." in printed
    assert printed.endswith("Nothing was deleted. To delete the branch, add --yes.\n")
    assert [info.name for info in dev.branches.list()] == ["main", "dev"]

    dev.merge("dev")
    dev.load({"Person": pa.table({"name": ["Eve"]})}, branch="dev")
    told = document("branch", "delete", dev.uri, "dev", "--yes")
    assert (told["deleted"], [commit["merged"] for commit in told["commits"]]) == (True, [False, True, True])
    assert [info.name for info in dev.branches.list()] == ["main"]


def test_branch_delete_names_the_branches_that_stand_against_it(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.branches.create("feature", from_="dev")
    assert document("branch", "delete", graph.uri, "dev")["descendants"] == ["feature"]
    assert "cannot be deleted before feature" in text("branch", "delete", graph.uri, "dev")
    assert run("branch", "delete", graph.uri, "dev", "--yes").stderr.startswith("error: OG1014 ")
    assert run("branch", "delete", graph.uri, "main").exit_code == 1
    assert run("branch", "delete", graph.uri, "deb").stderr.endswith("hint: Did you mean 'dev'?\n")
    assert text("branch", "delete", graph.uri, "feature", "--yes").endswith("Deleted branch feature.\n")


def test_diff_counts_and_shows_every_entity_that_is_different(dev: Graph) -> None:
    told = document("diff", dev.uri, "main", "dev")
    assert told["tables"]["edge:Knows"]["counts"] == {"inserted": 1, "updated": 0, "deleted": 1}
    person = told["tables"]["node:Person"]
    assert person["counts"] == {"inserted": 1, "updated": 1, "deleted": 1}
    ada, bob = {"id": "Ada", "name": "Ada"}, {"id": "Bob", "name": "Bob", "age": None}
    assert person["changes"][:2] == [
        {"change": "updated", "id": "Ada", "before": {**ada, "age": 36}, "after": {**ada, "age": 37}},
        {"change": "deleted", "id": "Bob", "before": bob, "after": None},
    ]
    printed = text("diff", dev.uri, "main", "dev", "--type", "Person").splitlines()
    assert [line.rstrip() for line in printed] == [
        "node:Person: 1 inserted, 1 updated, 1 deleted",
        "change    id   properties",
        "updated   Ada  age: 36 -> 37",
        'deleted   Bob  age: null, name: "Bob"',
        'inserted  Cy   age: 5, name: "Cy"',
    ]
    assert text("diff", dev.uri, "dev", "dev") == text("diff", dev.uri, "main") == "Nothing is different.\n"


def test_diff_is_of_commits_too_and_counts_beyond_its_limit(dev: Graph) -> None:
    newest, first = dev.commits.list()
    told = document("diff", dev.uri, first.commit_id, "--type", "node:Person", "--limit", 1)
    assert (told["from"], told["to"], list(told["tables"])) == (first.commit_id, newest.commit_id, ["node:Person"])
    assert told["tables"]["node:Person"]["counts"]["inserted"] == 2
    assert [change["id"] for change in told["tables"]["node:Person"]["changes"]] == ["Ada"]
    assert text("diff", dev.uri, "main", "dev", "--type", "Person", "--limit", 0) == (
        "node:Person: 1 inserted, 1 updated, 1 deleted\n"
    )
    assert run("diff", dev.uri, "main", "dev", "--type", "Persn").exit_code == 1


def test_diff_prints_values_of_every_type_whole(tmp_path: Path) -> None:
    kinds = "when: DateTime?  times: [DateTime]?  day: Date?  raw: Blob?  big: U64?  near: Vector(2)?  real: F64?"
    graph = Graph.create(tmp_path / "kinds.omni", f"node Thing {{ name: String @key  {kinds} }}")
    graph.branches.create("dev")
    row = {
        "name": "a", "when": "2026-01-01T10:11:12.345Z", "times": ["2026-01-01T00:00:01Z"], "day": "2026-01-02",
        "raw": "base64:AAEC", "big": 2**64 - 1, "near": [1, 2.5], "real": 0.1,
    }  # fmt: skip
    graph.load_jsonl([json.dumps({"type": "Thing", "data": row})], branch="dev")
    (change,) = document("diff", graph.uri, "main", "dev")["tables"]["node:Thing"]["changes"]
    times = {"when": "2026-01-01T10:11:12.345000+00:00", "times": ["2026-01-01T00:00:01+00:00"]}
    assert change["after"] == {**row, **times, "id": "a"}


def test_merge_says_what_it_did_to_each_table(dev: Graph) -> None:
    planned = document("merge", dev.uri, "dev", "--dry-run")
    assert (planned["outcome"], planned["commit"]) == ("fast-forward", None)
    assert text("merge", dev.uri, "dev", "--dry-run").endswith("Nothing was changed: a dry run.\n")
    assert len(dev.commits.list()) == 2
    merged = document("merge", dev.uri, "dev", "--actor", "jo", "--message", "reviewed", "--delete-branch")
    assert (merged["commit"]["actor"], merged["commit"]["message"]) == ("jo", "reviewed")
    assert merged["commit"]["merged_parent"] == merged["merged"]
    assert merged["tables"]["node:Person"]["action"] == "adopted"
    assert [info.name for info in dev.branches.list()] == ["main"]
    assert document("snapshot", dev.uri)["commit"] == merged["commit"]["id"]


def test_merge_into_another_branch_and_again(dev: Graph) -> None:
    dev.branches.create("staging")
    printed = text("merge", dev.uri, "dev", "--into", "staging")
    assert "dev into staging: fast-forward." in printed
    assert dev.commits.list("staging", limit=1)[0].commit_id in printed
    assert text("merge", dev.uri, "dev", "--into", "staging") == "dev into staging: already up to date.\n"
    assert text("merge", dev.uri, "staging", "--delete-branch").endswith("Deleted branch staging.\n")


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_conflicts_are_printed_and_exit_1_and_change_nothing(dev: Graph, flags: tuple[str, ...]) -> None:
    dev.load({"Person": pa.table({"name": ["Ada"], "age": pa.array([40], pa.int32())})}, mode="merge")
    failed = run("merge", dev.uri, "dev", *flags)
    assert failed.exit_code == 1
    error, hint = failed.stderr.splitlines()
    assert error == "error: OG2008 Merging 'dev' into 'main' has 1 conflict."
    assert "--on-conflict" in hint
    header, ada = failed.stdout.splitlines()[-2:]
    assert header.split() == ["kind", "type", "id", "base", "source", "target"]
    assert ada.split("  ")[:3] == ["divergent update", "Person", "Ada"]
    told = json.loads(run("merge", dev.uri, "dev", "--json", *flags).stdout)
    (conflict,) = told["conflicts"]
    assert (conflict["base"]["age"], conflict["source"]["age"], conflict["target"]["age"]) == (36, 37, 40)
    assert (told["outcome"], told["commit"], len(dev.commits.list())) == ("conflicts", None, 3)


@pytest.mark.parametrize(("words", "age"), [(("ours",), 40), (("Person=theirs", "Knows=ours"), 37)])
def test_on_conflict_says_which_side_wins_for_all_types_or_for_one(
    dev: Graph, words: tuple[str, ...], age: int
) -> None:
    dev.load({"Person": pa.table({"name": ["Ada"], "age": pa.array([40], pa.int32())})}, mode="merge")
    options = [part for word in words for part in ("--on-conflict", word)]
    assert "1 conflict resolved:" in text("merge", dev.uri, "dev", "--dry-run", *options)
    merged = document("merge", dev.uri, "dev", *options)
    (resolved,) = merged["resolved"]
    assert resolved["resolution"] == words[0].rpartition("=")[2]
    assert dev.snapshot().table("Person").to_arrow(["age"], "id = 'Ada'").to_pylist() == [{"age": age}]


def test_a_conflict_over_no_number_is_valid_json(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path / "g.omni", "node Thing { name: String @key  real: F64? }")
    graph.branches.create("dev")
    for branch, real in (("main", 1.5), ("dev", float("nan"))):
        graph.load({"Thing": pa.table({"name": ["a"], "real": [real]})}, branch=branch)
    (conflict,) = json.loads(run("merge", graph.uri, "dev", "--json").stdout, parse_constant=pytest.fail)["conflicts"]
    assert (conflict["base"], conflict["source"]["real"], conflict["target"]["real"]) == (None, "nan", 1.5)


def test_people_are_shown_few_of_many_conflicts_and_programs_all(graph: Graph) -> None:
    graph.branches.create("dev")
    names = [f"p{number:02d}" for number in range(25)]
    for branch, age in (("main", 1), ("dev", 2)):
        rows = pa.table({"name": names, "age": pa.array([age] * 25, pa.int32())})
        graph.load({"Person": rows}, branch=branch)
    assert run("merge", graph.uri, "dev").stdout.endswith("and 5 more; --json shows all.\n")
    assert len(json.loads(run("merge", graph.uri, "dev", "--json").stdout)["conflicts"]) == 25


def test_merge_by_property_keeps_the_changes_of_both(tmp_path: Path) -> None:
    graph = Graph.create(tmp_path / "g.omni", "node Person { name: String @key  age: I32?  city: String? }")
    graph.load_jsonl(['{"type": "Person", "data": {"name": "Ada", "age": 36, "city": "London"}}'])
    graph.branches.create("dev")
    graph.load_jsonl(
        ['{"type": "Person", "data": {"name": "Ada", "age": 37, "city": "London"}}'], mode="merge", branch="dev"
    )
    graph.load_jsonl(['{"type": "Person", "data": {"name": "Ada", "age": 36, "city": "Turin"}}'], mode="merge")
    assert document("merge", graph.uri, "dev", "--granularity", "property")["outcome"] == "merged"
    (ada,) = graph.snapshot().table("Person").to_arrow(["age", "city"]).to_pylist()
    assert ada == {"age": 37, "city": "Turin"}


def test_recovery_list_shows_what_became_of_a_dead_writers_commit(graph: Graph) -> None:
    assert document("recovery", "list", graph.uri) == {"recoveries": []}

    def die(point: Failpoint, moment: Moment) -> None:
        if (point, moment) == (Failpoint.COMMIT_TABLE, Moment.AFTER):
            raise KeyboardInterrupt

    impatient = Graph.open(graph.uri, options=WriteOptions(lease=0.1))
    with installed(die), pytest.raises(KeyboardInterrupt):
        impatient.load({"Person": pa.table({"name": ["Cy"]})}, actor="bob")
    Graph.open(graph.uri)
    (record,) = document("recovery", "list", graph.uri)["recoveries"]
    assert (record["kind"], record["actor"], record["writer"]) == ("RolledForward", "bob", "Load")
    assert record["tables"] == [{"table_key": "node:Person", "from_version": 2, "to_version": 3}]
    assert record["operation"] in text("recovery", "list", graph.uri)


def test_cleanup_shows_what_would_go_and_takes_it_when_confirmed(graph: Graph) -> None:
    load = graph.begin_load()
    load.stage("node:Person", pa.table({"name": ["Lost"]}).to_batches(), LoadMode.APPEND)
    load.stage_part("node:Person", pa.table({"name": ["Ada"]}).to_batches(), LoadMode.MERGE)
    stored = graph.storage.list()
    assert text("cleanup", graph.uri) == "Nothing is left over.\n"
    shown = text("cleanup", graph.uri, "--older-than", "0s")
    assert [line.split()[:4] for line in shown.splitlines()[1:2]] == [["node:Person", "data", "files", "2"]]
    assert f"staged by {load.operation_id}, 0 days old" in shown
    assert shown.endswith("Nothing was deleted. To delete them, add --confirm.\n")
    previewed = document("cleanup", graph.uri, "--older-than", "0s")
    assert (previewed["confirmed"], previewed["files"]) == (False, 3)
    assert graph.storage.list() == stored
    done = document("cleanup", graph.uri, "--older-than", "0s", "--confirm")
    assert (done["confirmed"], done["older_than_seconds"], done["skipped"], done["warnings"]) == (True, 0, {}, [])
    assert done["tables"] == {
        "node:Person": {"lines": {}, "files": {"data": previewed["tables"]["node:Person"]["files"]["data"]}}
    }
    assert [(left["operation"], left["files"]) for left in done["staged"]] == [(load.operation_id, 1)]
    assert len(graph.storage.list()) == len(stored) - 3
    assert text("cleanup", graph.uri, "--older-than", "0s", "--confirm") == "Deleted 0 files, 0 bytes.\n"


def test_cleanup_says_which_tables_it_left_alone(graph: Graph) -> None:
    graph.storage.put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"torn")
    assert "node:Person was left alone: OG2005" in text("cleanup", graph.uri)


def test_version_is_that_of_the_installed_package() -> None:
    assert text("version") == f"omnigraph {version('omnigraph-spark')}\n"
    assert document("version") == {"version": version("omnigraph-spark")}


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_failed_request_exits_1_with_error_and_hint_on_stderr_alone(graph: Graph, flags: tuple[str, ...]) -> None:
    result = run("snapshot", graph.uri, "--branch", "mian", *flags)
    assert (result.exit_code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: OG1010 ")
    assert hint == "hint: Did you mean 'main'?"


def test_a_schema_file_that_is_not_text_is_a_failed_request(tmp_path: Path, schema_file: Path) -> None:
    schema_file.write_bytes(b"\xff\xfe")
    result = run("init", tmp_path / "graph.omni", schema_file)
    assert result.exit_code == 1
    assert result.stderr == f"error: OG4001 '{schema_file}' is not UTF-8 text.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "graph.omni", "absent.pg"),
        ("load", "graph.omni", "absent.jsonl"),
        ("schema", "plan", "graph.omni", "absent.pg"),
        ("load", "graph.omni", __file__, "--mode", "upsert"),
        ("commit", "list", "graph.omni", "--limit", "0"),
        ("merge", "graph.omni", "dev", "--on-conflict", "mine"),
        ("merge", "graph.omni", "dev", "--on-conflict", "ours", "--on-conflict", "Person=theirs"),
        ("merge", "graph.omni", "dev", "--granularity", "cell"),
        ("diff", "graph.omni", "main", "--limit", "-1"),
        ("cleanup", "graph.omni", "--older-than", "a week"),
        ("no-such-command",),
    ],
)
def test_wrong_usage_exits_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_malformed_storage_setting_is_wrong_usage_and_is_not_repeated() -> None:
    result = run("snapshot", "s3://bucket/graph.omni", "--storage", "s3cr3t")
    assert result.exit_code == 2
    assert "expected KEY=VALUE" in result.stderr
    assert "s3cr3t" not in result.stderr


def test_an_unreachable_store_is_a_retryable_failure_and_exits_3(schema_file: Path) -> None:
    settings = {
        "aws_endpoint": "http://127.0.0.1:9",  # the discard port: nobody listens
        "allow_http": "true",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "aws_region": "us-east-1",
    }
    storage = [word for key, value in settings.items() for word in ("--storage", f"{key}={value}")]
    result = run("init", "s3://bucket/graph.omni", schema_file, *storage)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: OG5001 ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.s3
def test_storage_settings_reach_the_store(schema_file: Path, s3_options: dict[str, str], tmp_path: Path) -> None:
    storage = [word for key, value in s3_options.items() for word in ("--storage", f"{key}={value}")]
    uri = f"s3://graphs/{tmp_path.name}/cli.omni"
    text("init", uri, schema_file, *storage)
    assert document("snapshot", uri, *storage)["version"] == 1


def test_the_help_documents_every_exit_code() -> None:
    lines = [line.split()[:1] for line in text("--help").split("Exit codes:")[1].splitlines()]
    assert [line[0] for line in lines if line and line[0].isdigit()] == ["0", "1", "2", "3"]


def test_the_installed_command_prints_nothing_but_the_document_to_a_pipe(graph: Graph, rows_file: Path) -> None:
    command = Path(sys.executable).with_name("omnigraph")
    merged = subprocess.run(
        [command, "load", graph.uri, rows_file, "--mode", "merge", "--json"], capture_output=True, check=True
    )
    assert merged.stderr == b""
    # The edge has no key of its own, so merging it again inserts it again.
    assert json.loads(merged.stdout)["tables"]["node:Person"]["updated"] == 2
