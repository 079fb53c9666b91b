"""No order of merges, deletions, creations, deaths and recoveries drops a line of a table that a branch shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from breadth_first import explore
from reclaim import SCENES, Fault

FOUND_BY = {
    Fault.NO_CHECK: "a merge beside the deletion of its source",
    Fault.CHECK_BEFORE_ARM: "a merge beside the deletion of its source",
    Fault.NO_ABORT: "a merge beside the deletion of its source",
    Fault.NO_RECOVERY_CHECK: "a merge beside the deletion of its source",
    Fault.SIDECARS_LAST: "a merge beside the deletion of its source",
    Fault.SIDECARS_BEFORE_REFS: "a line that two branches show",
    Fault.IGNORE_THE_GONE: "a line that two branches show",
}


@pytest.mark.parametrize("name", SCENES)
def test_nobody_shows_a_line_that_was_dropped(name: str) -> None:
    result = explore(SCENES[name])
    assert result.violation is None, result.violation
    assert any(state.dropped for state in result.states)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found(fault: Fault) -> None:
    result = explore(replace(SCENES[FOUND_BY[fault]], fault=fault))
    assert result.violation is not None
    assert "shows a line that was dropped" in result.violation
