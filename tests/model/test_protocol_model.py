"""The commit protocol holds in every order of events, and the exploration that says so would notice if it did not."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
from explore import Exploration, explore
from protocol import STEPS, Fault, random_path
from protocol_invariants import Invariants
from protocol_scenarios import SCENARIOS

FOUND_BY = {
    Fault.UNDO_BEFORE_ABORT: ("two writers on one table", "both committed and aborted"),
    Fault.NO_FENCE: ("one writer that may die or be misled", "no sidecar owns it"),
    Fault.NO_UNDO_SIDECAR: ("two writers on one table", "no sidecar owns it"),
    Fault.REBASE_TABLE_COMMIT: ("two writers on the same tables", "part of a commit, or too much"),
    Fault.DELETE_ON_UNKNOWN: ("one writer and an effect that comes late", "no sidecar owns it"),
    Fault.PUBLISH_BLIND: ("two writers on the same tables", "committed twice"),
    Fault.FORWARD_IF_ANY_LANDED: ("one writer and two recoverers", "that is not there"),
    Fault.FORWARD_INCOMPLETE_CHAIN: ("two forks of one table", "that is not there"),
    Fault.PUBLISH_BEFORE_ALL_LANDED: ("a chain of commits", "that is not there"),
    Fault.IGNORE_READ_SET: ("two writers that read what the other writes", "changed since it was read"),
    Fault.SHARED_FORK_NAME: ("two forks of one table", "that is not there"),
    Fault.NO_FORK: ("a fork of a table that main writes", "wrote to main's line"),
    Fault.NO_OWN_COMMIT_CHECK: ("one writer that may die or be misled", "committed twice"),
    Fault.DISARM_BEFORE_PUBLISH: ("two writers on the same tables", "no sidecar owns it"),
    Fault.FORGET_BEFORE_CONVERGE: ("one writer and two recoverers", "no sidecar owns it"),
    Fault.HEAD_READ_AFTER_MARK: ("one writer and an effect that comes late", "no sidecar owns it"),
    Fault.HEAD_COMPARED_ACROSS_LINES: ("two forks of one table", "took a sound graph for a damaged one"),
}


@cache
def explored(scenario: str) -> Exploration:
    return explore(SCENARIOS[scenario])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_order_of_events_breaks_the_protocol(scenario: str) -> None:
    result = explored(scenario)
    assert result.violation is None, str(result.violation)
    assert result.rests


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.value)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    scenario, message = FOUND_BY[fault]
    violation = explore(replace(SCENARIOS[scenario], fault=fault)).violation
    assert violation is not None
    assert message in violation.message


def test_the_scenarios_reach_every_step_of_the_protocol() -> None:
    reached = frozenset().union(*(explored(scenario).steps for scenario in SCENARIOS))
    assert STEPS - reached == {"lookup head"}  # only taken with a fault planted


def test_the_way_to_a_violation_can_be_walked_again() -> None:
    model = replace(SCENARIOS["one writer and two recoverers"], fault=Fault.NO_FENCE)
    violation = explore(model).violation
    assert violation is not None
    state = model.initial()
    for label, expected in zip(violation.labels, violation.states[1:], strict=True):
        assert (label, expected) in list(model.moves(state))
        state = expected
    assert Invariants(model).violation(state) == violation.message


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_random_path_is_the_same_for_the_same_seed_and_comes_to_rest(scenario: str) -> None:
    model = SCENARIOS[scenario]
    labels, states = random_path(model, random.Random(7))  # noqa: S311 - a path, not a secret
    assert (labels, states) == random_path(model, random.Random(7))  # noqa: S311
    assert len(states) == len(labels) + 1
    assert not list(model.moves(states[-1]))
    assert Invariants(model).at_rest(states[-1]) is None
