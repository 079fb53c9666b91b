"""The engine does what the model says, step by step: what the exploration proves of the model it proves of the code."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from protocol import STEPS, Fault
from protocol_state import State
from replay import REPLAYED, Difference, Walk, replay, walk_of, walks
from replay_world import View, view_of_model

WALKS = list(walks(2 * len(REPLAYED), seed=1))
NOT_REPLAYED = {"fork", "lookup head"}  # no engine writes to branches yet; only taken with a fault planted

SHOWN_BY = {
    Fault.UNDO_BEFORE_ABORT: "two writers on one table",
    Fault.NO_FENCE: "one writer that may die or be misled",
    Fault.NO_UNDO_SIDECAR: "two writers on one table",
    Fault.REBASE_TABLE_COMMIT: "two writers on the same tables",
    Fault.DELETE_ON_UNKNOWN: "one writer and an effect that comes late",
    Fault.PUBLISH_BLIND: "two writers on the same tables",
    Fault.FORWARD_IF_ANY_LANDED: "one writer and two recoverers",
    Fault.FORWARD_INCOMPLETE_CHAIN: "a chain and a single commit on one table",
    Fault.PUBLISH_BEFORE_ALL_LANDED: "a chain of commits",
    Fault.IGNORE_READ_SET: "two writers that read what the other writes",
    Fault.NO_OWN_COMMIT_CHECK: "one writer that may die or be misled",
    Fault.DISARM_BEFORE_PUBLISH: "two writers on the same tables",
    Fault.FORGET_BEFORE_CONVERGE: "one writer and two recoverers",
}


@pytest.mark.parametrize("walk", WALKS, ids=str)
def test_the_engine_follows_the_model_step_by_step(walk: Walk, tmp_path: Path) -> None:
    replay(walk, tmp_path)


def test_the_replayed_paths_take_every_step_of_the_protocol() -> None:
    taken = {label.step for walk in WALKS for label in walk.labels}
    assert STEPS - taken == NOT_REPLAYED


def test_the_replayed_paths_meet_every_kind_of_misfortune() -> None:
    met = {label.outcome for walk in WALKS for label in walk.labels}
    assert {"refused", "dies", "answer lost", "fails", "straggles", "arrives", "vanishes"} <= met


@pytest.mark.parametrize("fault", SHOWN_BY, ids=lambda fault: fault.value)
def test_a_replay_shows_where_another_protocol_differs(fault: Fault, tmp_path: Path) -> None:
    walk = next(walk for seed in count() if _is_another(walk := walk_of(SHOWN_BY[fault], seed, fault)))
    with pytest.raises(Difference, match="the engine differs from the model after step"):
        replay(walk, tmp_path)


def _is_another(walk: Walk) -> bool:
    """Whether somebody who sees what a replay compares can tell the path from every path of the sound protocol."""
    sound = replace(walk.model, fault=None)
    state = sound.initial()
    for label, expected in zip(walk.labels, walk.states[1:], strict=True):
        like = [after for move, after in sound.moves(state) if move == label and _seen(after) == _seen(expected)]
        if not like:
            return True
        (state,) = like
    return False


def _seen(state: State) -> tuple[View, tuple[int, ...]]:
    return view_of_model(state), tuple(process.op for process in state.processes)
