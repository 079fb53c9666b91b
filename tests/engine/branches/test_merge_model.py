"""Random histories of branches, writes, deletions and merges, merges of merges too, against a model in plain Python."""

from __future__ import annotations

import copy
import itertools
import shutil
import tempfile
from functools import partial
from typing import Any

import pytest
from branch_writes import SCHEMA, delete, knows, merge_in_parts, people, state
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from omnigraph_engine.branches.merge import MergeOutcome
from omnigraph_engine.errors import MergeConflict
from omnigraph_engine.graph import Graph

State = dict[str, dict[str, tuple[Any, ...]]]  # by type and id: the values
NAMES = st.sampled_from(["a", "b", "c", "d"])
PEOPLE = st.dictionaries(NAMES, st.tuples(st.integers(0, 2), st.sampled_from(["x", "y"])), min_size=1, max_size=3)
EDGES = st.dictionaries(st.sampled_from(["e", "f"]), st.tuples(NAMES, NAMES, st.integers(0, 1)), min_size=1)
COLUMNS = {"Person": ("age", "city"), "Knows": ("src", "dst", "since")}


class Histories(RuleBasedStateMachine):
    """The model keeps the state of every commit and who its parents are; the graph must agree at every step."""

    branches = Bundle("branches")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="omnigraph-merge-")
        self.graph = Graph.create(f"{self.folder}/g", SCHEMA)
        self.states: dict[str, State] = {}
        self.parents: dict[str, list[str]] = {}
        self.heads: dict[str, str] = {}
        self.names = (f"branch{number}" for number in itertools.count())
        self._remember("main", {"Person": {}, "Knows": {}}, [])

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(target=branches)
    def main(self) -> str:
        self.write("main", {"a": (0, "x"), "b": (0, "x"), "c": (0, "y")})
        return "main"

    @rule(target=branches, origin=branches)
    def create(self, origin: str) -> str:
        name = next(self.names)
        self.graph.branches.create(name, origin)
        self.heads[name] = self.heads[origin]
        return name

    @rule(branch=branches, rows=PEOPLE)
    def write(self, branch: str, rows: dict[str, tuple[int, str]]) -> None:
        after = self._state(branch)
        after["Person"].update(rows)
        given = people(*((name, *row) for name, row in rows.items()))
        self.graph.load({"Person": given}, branch=branch, mode="merge")
        self._remember(branch, after, [self.heads[branch]])

    @rule(branch=branches, rows=EDGES)
    def connect(self, branch: str, rows: dict[str, tuple[str, str, int]]) -> None:
        after = self._state(branch)
        rows = {key: row for key, row in rows.items() if {row[0], row[1]} <= after["Person"].keys()}
        if not rows:
            return
        after["Knows"].update(rows)
        self.graph.load({"Knows": knows(*((key, *row) for key, row in rows.items()))}, branch=branch, mode="merge")
        self._remember(branch, after, [self.heads[branch]])

    @rule(branch=branches, name=NAMES)
    def remove(self, branch: str, name: str) -> None:
        after = self._state(branch)
        edges = [key for key, row in after["Knows"].items() if name in row[:2]]
        if name not in after["Person"]:
            return
        del after["Person"][name]
        for key in edges:
            del after["Knows"][key]
        delete(self.graph, branch, {"node:Person": [name], "edge:Knows": edges})
        self._remember(branch, after, [self.heads[branch]])

    @rule(
        source=branches,
        into=branches,
        on_conflict=st.sampled_from(["fail", "ours", "theirs"]),
        granularity=st.sampled_from(["row", "property"]),
        in_parts=st.booleans(),
    )
    def merge(self, source: str, into: str, on_conflict: str, granularity: str, *, in_parts: bool) -> None:
        if source == into:
            return
        merge = partial(merge_in_parts, self.graph) if in_parts else self.graph.merge
        plan = merge(source, into, dry_run=True, on_conflict=on_conflict, granularity=granularity)
        bases = self._bases(source, into)
        assert plan.base_commit == max(bases)
        if plan.outcome is MergeOutcome.UP_TO_DATE:
            assert self.heads[source] in self._ancestors(self.heads[into])
            return
        others = [self.states[base] for base in bases - {plan.base_commit}]
        merged = self._merged(self.states[plan.base_commit], others, source, into, on_conflict, granularity)
        if merged is None:
            assert plan.outcome is MergeOutcome.CONFLICTS
            with pytest.raises(MergeConflict):
                merge(source, into, on_conflict=on_conflict, granularity=granularity)
            return
        assert plan.outcome is not MergeOutcome.CONFLICTS, plan.report()
        merge(source, into, on_conflict=on_conflict, granularity=granularity)
        self._remember(into, merged, [self.heads[into], self.heads[source]])

    @rule(target=branches, branch=consumes(branches))
    def forget(self, branch: str) -> Any:
        """Deletes a branch that nobody descends from; any other stays."""
        infos = {info.name: info for info in self.graph.branches.list()}
        heirs = [other for other in infos.values() if other.descends_from(infos[branch])]
        if branch == "main" or heirs:
            return branch
        self.graph.branches.delete(branch)
        del self.heads[branch]
        return multiple()

    @invariant()
    def every_branch_shows_what_the_model_says(self) -> None:
        for branch, head in self.heads.items():
            shown = state(self.graph, branch)
            for kind, columns in COLUMNS.items():
                found = {key: tuple(row[name] for name in columns) for key, row in shown[kind].items()}
                assert found == self.states[head][kind], (branch, kind)
                assert self.graph.snapshot(branch=branch).table(kind).count() == len(found)

    def _merged(
        self, base: State, others: list[State], source: str, into: str, on_conflict: str, granularity: str
    ) -> State | None:
        merged: State = {"Person": {}, "Knows": {}}
        theirs, ours = self._state(source), self._state(into)
        for kind, rows in merged.items():
            for key in base[kind].keys() | theirs[kind].keys() | ours[kind].keys():
                was, their, our = (side[kind].get(key) for side in (base, theirs, ours))
                if _disputed(was, [other[kind].get(key) for other in others], their, our, granularity):
                    return None
                if their in (was, our):
                    row = our
                elif our == was:
                    row = their
                else:
                    row = _properties(was, their, our) if granularity == "property" else None
                    if row is None and on_conflict == "fail":
                        return None
                    if row is None:
                        row = our if on_conflict == "ours" else their
                if row is not None:
                    rows[key] = row
        alive = merged["Person"].keys()
        orphaned = any(not {row[0], row[1]} <= alive for row in merged["Knows"].values())
        return None if orphaned else merged

    def _bases(self, source: str, into: str) -> set[str]:
        common = self._ancestors(self.heads[source]) & self._ancestors(self.heads[into])
        return {base for base in common if not any(base in self._ancestors(other) for other in common - {base})}

    def _ancestors(self, commit: str) -> set[str]:
        found: set[str] = set()
        todo = [commit]
        while todo:
            current = todo.pop()
            if current not in found:
                found.add(current)
                todo += self.parents[current]
        return found

    def _state(self, branch: str) -> State:
        return copy.deepcopy(self.states[self.heads[branch]])

    def _remember(self, branch: str, after: State, parents: list[str]) -> None:
        head = self.graph.snapshot(branch=branch).commit.commit_id
        if head in self.states:  # nothing was committed, because nothing changed
            assert self.states[head] == after
            return
        self.states[head], self.parents[head], self.heads[branch] = after, parents, head


def _disputed(base: Any, others: list[Any], their: Any, our: Any, granularity: str) -> bool:
    """Whether bases of crosswise merges tell different stories of an entity."""
    if their == our:
        return False
    stories = {(their != was, our != was) for was in [base, *others]}
    if {(True, False), (False, True)} <= stories:
        return True
    mixed = granularity == "property" and (their != base, our != base) == (True, True)
    return mixed and bool(stories & {(True, False), (False, True)})


def _properties(was: Any, their: Any, our: Any) -> Any:
    """The row with both sides' changes, or None when they contradict each other."""
    if None in (was, their, our):
        return None
    row = []
    for base, left, right in zip(was, their, our, strict=True):
        if left not in (base, right) and right != base:
            return None
        row.append(right if left == base else left)
    return tuple(row)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=12,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
