"""The two halves of a load: staged by any number of workers, checked and committed in one place, in bounded memory."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from omnigraph_engine.errors import DuplicateKey, MissingEndpoint, SchemaChanged
from omnigraph_engine.graph import Graph
from omnigraph_engine.schema.contract import STATE_FILE
from omnigraph_engine.tables.staged import StagedWrite
from omnigraph_engine.write.load import Load, LoadMode


@pytest.fixture
def graph(tmp_path: Path, social: str) -> Graph:
    return Graph.create(tmp_path / "graph.omni", social)


def people(*names: str) -> pa.Table:
    return pa.table({"name": names})


def ids(graph: Graph, name: str = "Person") -> list[str]:
    return sorted(graph.snapshot().table(name).to_arrow(["id"])["id"].to_pylist())


def elsewhere(load: Load) -> Load:
    """The load as another process has it."""
    copy: Load = pickle.loads(pickle.dumps(load))  # noqa: S301 - our own bytes
    return copy


def stage(load: Load, table_key: str, rows: pa.Table, mode: LoadMode = LoadMode.APPEND) -> StagedWrite:
    """Stages in another process and sends the result back as text."""
    staged = elsewhere(load).stage(table_key, rows.to_batches(), mode)
    assert staged is not None
    return StagedWrite.from_json(staged.to_json())


def test_parts_that_many_workers_staged_are_one_commit_whoever_commits_it(graph: Graph) -> None:
    load = graph.begin_load(actor="ada", message="many hands")
    parts = [stage(load, "node:Person", people(f"p{number}a", f"p{number}b")) for number in range(4)]
    parts.append(stage(load, "edge:Knows", pa.table({"src": ["p0a"], "dst": ["p3b"]})))
    assert graph.snapshot().version == 1
    receipt = elsewhere(load).commit(reversed(parts))
    assert (graph.snapshot().version, len(ids(graph))) == (2, 8)
    assert receipt.tables["node:Person"].inserted == 8
    assert receipt.commit is not None
    assert (receipt.commit.actor, receipt.commit.extra["message"]) == ("ada", "many hands")


def test_rules_between_the_rows_of_different_workers_are_checked(graph: Graph) -> None:
    load = graph.begin_load()
    twice = [stage(load, "node:Person", people("Ada", f"p{number}")) for number in range(2)]
    with pytest.raises(DuplicateKey):
        elsewhere(load).commit(twice)
    with pytest.raises(MissingEndpoint):
        elsewhere(load).commit([stage(load, "edge:Knows", pa.table({"src": ["Ada"], "dst": ["Ada"]}))])
    assert graph.snapshot().version == 1


def test_workers_stage_on_the_captured_versions_also_when_others_have_committed_since(graph: Graph) -> None:
    graph.load({"Person": people("Ada")})
    load = graph.begin_load()
    graph.load({"Person": people("Bob")})
    parts = [stage(load, "node:Person", pa.table({"name": ["Ada", "Cleo"]}), LoadMode.MERGE)]
    receipt = elsewhere(load).commit(parts)
    assert ids(graph) == ["Ada", "Bob", "Cleo"]
    assert (receipt.tables["node:Person"].inserted, receipt.tables["node:Person"].updated) == (1, 1)


def test_parts_of_an_overwrite_replace_the_table_together(graph: Graph) -> None:
    graph.load({"Person": people("Ada", "Bob", "Cleo")})
    load = graph.begin_load()
    parts = [stage(load, "node:Person", people(name), LoadMode.OVERWRITE) for name in ("Bob", "Dora")]
    receipt = load.commit(parts)
    assert ids(graph) == ["Bob", "Dora"]
    counts = receipt.tables["node:Person"]
    assert (counts.rows, counts.inserted, counts.deleted) == (2, 2, 3)


def test_a_handle_that_has_not_seen_the_newest_schema_writes_nothing(graph: Graph) -> None:
    state = json.loads(graph.storage.get(STATE_FILE))
    graph.storage.put(STATE_FILE, json.dumps({**state, "changed": True}).encode())
    with pytest.raises(SchemaChanged, match="Open the graph again"):
        graph.load({"Person": people("Ada")})


def test_a_merge_keeps_the_row_ids_of_the_rows_that_it_replaces(graph: Graph) -> None:
    graph.load({"Person": people("Ada", "Bob")})

    def row_ids() -> dict[str, int]:
        rows: Iterable[dict[str, int]] = graph.snapshot().table("Person").to_arrow(["id", "_rowid"]).to_pylist()
        return {str(row["id"]): row["_rowid"] for row in rows}

    before = row_ids()
    graph.load({"Person": people("Ada", "Cleo")}, mode="merge")
    assert row_ids().items() >= before.items()


def test_validating_a_million_rows_takes_little_memory() -> None:
    """The same script with ten million stays below 2 GiB."""
    script = Path(__file__).parents[1] / "memory_check.py"
    done = subprocess.run([sys.executable, str(script), "load", "1000000"], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["grown"] < 400 * 2**20
