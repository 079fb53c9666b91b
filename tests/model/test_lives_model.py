"""In no order of events does a branch show what another life of its name held, or lack what was committed to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from breadth_first import explore
from lives import SCENES, Fault

FOUND_BY = {
    Fault.NO_START: "two lives of main's versions",
    Fault.START_ON_ANYTHING: "two lives of main's versions",
    Fault.START_UNCHECKED: "two lives of main's versions",
    Fault.WITHDRAW_UNWRITTEN: "the parent of the first life goes",
    Fault.REBASED: "two lives of main's versions",
}


@pytest.mark.parametrize("name", SCENES)
def test_a_branch_shows_its_own_life_and_all_of_it(name: str) -> None:
    result = explore(SCENES[name])
    assert result.violation is None, result.violation
    assert max(len(state.past) for state in result.states) == len(SCENES[name].lives)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found(fault: Fault) -> None:
    result = explore(replace(SCENES[FOUND_BY[fault]], fault=fault))
    assert result.violation is not None
