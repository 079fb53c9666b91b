"""The classifier and the decision, as tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from omnigraph_engine.commit.classify import Standing, TableFacts, Verdict, classify, decide, landed_steps
from omnigraph_engine.commit.sidecar import TableIntent
from omnigraph_engine.manifest.publisher import TablePin
from omnigraph_engine.manifest.rows import AbortState
from omnigraph_engine.schema.identity import TableIdentity

PUBLISHED, LANDED, NOT_MOVED, INCOMPLETE, OTHER, IMPOSSIBLE = Standing


def intent(*transactions: str | None, branch: str | None = None) -> TableIntent:
    """An operation on version 5 of a table."""
    return TableIntent("node:Person", TableIdentity(2, 10), branch, 5, transactions, None)


def forking(*transactions: str, of: str | None = None) -> TableIntent:
    """An operation that first forks a line of its own from version 5 of another line."""
    return replace(intent(*transactions, branch="fork"), replaces=TablePin(5, of))


def adopting(version: int = 9, line: str | None = "theirs", replaces: TablePin | None = None) -> TableIntent:
    """An operation that publishes a version which stands already, in place of version 5 of the main line."""
    return TableIntent("node:Person", TableIdentity(2, 10), line, version, (), None, replaces or TablePin(5, None))


ONE, CHAIN, OLD = intent("a"), intent("a", "b", "c"), intent(None)


def pin(version: int, branch: str | None = None) -> TablePin:
    return TablePin(version, branch)


STANDINGS = [
    # the intent, the pin, what stands above version 5, how far it got
    (ONE, pin(5), [], NOT_MOVED),
    (ONE, pin(5), ["a"], LANDED),
    (ONE, pin(6), ["a"], PUBLISHED),
    (ONE, pin(9), ["a", "x", "y", "z"], PUBLISHED),
    (ONE, pin(6), ["a", "x"], PUBLISHED),  # the next operation has landed on top
    (ONE, pin(5), ["x"], OTHER),
    (ONE, pin(6), ["x"], OTHER),
    (ONE, pin(5), ["a", "x"], OTHER),  # what nobody published was built upon
    (ONE, pin(7), ["x", "a"], OTHER),  # not at its own version
    (ONE, pin(6), [], IMPOSSIBLE),
    (ONE, pin(9), ["a", "x"], IMPOSSIBLE),
    (ONE, None, [], OTHER),  # the table is gone from the graph
    (ONE, None, ["a"], OTHER),
    (ONE, pin(5, "fork"), ["a"], OTHER),  # the manifest shows another line of the table
    (ONE, pin(6, "fork"), ["a"], OTHER),
    (intent("a", branch="fork"), pin(5, "fork"), ["a"], LANDED),
    (intent("a", branch="fork"), pin(6, "fork"), ["a"], PUBLISHED),
    (intent("a", branch="fork"), pin(6), ["a"], OTHER),
    (CHAIN, pin(5), [], NOT_MOVED),
    (CHAIN, pin(5), ["a"], INCOMPLETE),
    (CHAIN, pin(5), ["a", "b"], INCOMPLETE),
    (CHAIN, pin(5), ["a", "b", "c"], LANDED),
    (CHAIN, pin(8), ["a", "b", "c"], PUBLISHED),
    (CHAIN, pin(8), ["a", "b", "c", "x"], PUBLISHED),
    (CHAIN, pin(5), ["a", "x"], OTHER),
    (CHAIN, pin(5), ["b"], OTHER),
    (CHAIN, pin(7), ["a", "x"], OTHER),
    (CHAIN, pin(8), ["a", "b"], IMPOSSIBLE),
    (OLD, pin(5), [], NOT_MOVED),  # without uuids whatever stands there is taken for its own
    (OLD, pin(5), ["x"], LANDED),
    (OLD, pin(6), ["x"], PUBLISHED),
    (OLD, pin(5), ["x", "y"], OTHER),
    (intent(None, None), pin(5), ["x"], INCOMPLETE),
    (forking("a"), pin(5), [], NOT_MOVED),  # forked or not, the line holds nothing new
    (forking("a"), pin(5), ["a"], LANDED),
    (forking("a", of="parents"), pin(5, "parents"), ["a"], LANDED),
    (forking("a", "b"), pin(5), ["a"], INCOMPLETE),
    (forking("a", "b"), pin(5), ["a", "b"], LANDED),
    (forking("a"), pin(6, "fork"), ["a"], PUBLISHED),
    (forking("a"), pin(8, "fork"), ["a", "x", "y"], PUBLISHED),  # the branch has gone on with that line
    (forking("a"), pin(6, "rivals"), [], OTHER),  # another first write was faster, on a line of its own
    (forking("a"), pin(6, "rivals"), ["a"], OTHER),
    (forking("a"), pin(6), ["a"], OTHER),
    (forking("a"), pin(5, "fork"), ["a"], OTHER),  # the line's own beginning is not what it replaces
    (forking("a"), pin(5), ["x"], OTHER),
    (forking("a"), pin(6, "fork"), [], IMPOSSIBLE),
    (forking("a"), None, ["a"], OTHER),
]
# What is adopted stands in any case: only the manifest says how far the operation got.
ADOPTIONS = [
    # the intent, the pin, how far it got
    (adopting(), pin(5), LANDED),
    (adopting(), pin(9, "theirs"), OTHER),  # somebody else may have adopted the same
    (adopting(), pin(11, "theirs"), OTHER),
    (adopting(), pin(6), OTHER),  # the table that was to be replaced has moved
    (adopting(), pin(9, "rivals"), OTHER),
    (adopting(), None, OTHER),
    (adopting(9, None, TablePin(5, "mine")), pin(5, "mine"), LANDED),
    (adopting(9, None, TablePin(5, "mine")), pin(9), OTHER),
    (adopting(6, "mine", TablePin(5, "mine")), pin(5, "mine"), LANDED),
]


@pytest.mark.parametrize(("planned", "published", "above", "standing"), STANDINGS)
def test_how_far_an_operation_got_with_a_table(
    planned: TableIntent, published: TablePin | None, above: list[str | None], standing: Standing
) -> None:
    assert classify(planned, TableFacts(published, 5 + len(above), above)) is standing


@pytest.mark.parametrize(("planned", "published", "standing"), ADOPTIONS)
def test_how_far_an_operation_got_with_a_table_that_it_adopts(
    planned: TableIntent, published: TablePin | None, standing: Standing
) -> None:
    assert classify(planned, TableFacts(published, planned.expected_version, [])) is standing


def test_whether_an_intent_forks_or_adopts_follows_from_what_it_replaces_and_plans() -> None:
    plain, own = intent("a"), intent("a", branch="fork")
    for planned, forks, adopts in (
        (plain, False, False),
        (own, False, False),
        (forking("a"), True, False),
        (forking("a", "b", of="parents"), True, False),
        (adopting(), False, True),
        (adopting(6, "mine", TablePin(5, "mine")), False, True),
    ):
        assert (planned.forks, planned.adopts) == (forks, adopts), planned


def test_what_is_published_before_and_after_an_intent() -> None:
    assert (intent("a").pin, intent("a").final_version) == (pin(5), 6)
    assert (forking("a", "b").pin, forking("a", "b").final_version) == (pin(5), 7)
    assert (forking("a", of="parents").pin, forking("a").ref(6).branch) == (pin(5, "parents"), "fork")
    assert (adopting().pin, adopting().final_version) == (pin(5), 9)


def test_every_standing_is_in_the_table() -> None:
    assert {row[-1] for row in STANDINGS} == set(Standing)


@pytest.mark.parametrize(
    ("above", "steps"), [([], 0), (["a"], 1), (["a", "b", "c", "d"], 3), (["x"], 0), (["a", "x", "c"], 1), ([None], 0)]
)
def test_steps_count_from_the_expected_version_without_a_gap(above: list[str | None], steps: int) -> None:
    assert landed_steps(CHAIN, above) == steps


VERDICTS = [
    # the standings, whether the authority holds, the verdict
    ([PUBLISHED], True, Verdict.CLEAN),
    ([PUBLISHED, PUBLISHED], False, Verdict.CLEAN),
    ([LANDED], True, Verdict.ROLL_FORWARD),
    ([LANDED, LANDED], True, Verdict.ROLL_FORWARD),
    ([LANDED, LANDED], False, Verdict.ROLL_BACK),
    ([LANDED, NOT_MOVED], True, Verdict.ROLL_BACK),
    ([LANDED, INCOMPLETE], True, Verdict.ROLL_BACK),
    ([LANDED, OTHER], True, Verdict.ROLL_BACK),
    ([LANDED, PUBLISHED], True, Verdict.ROLL_BACK),
    ([NOT_MOVED], True, Verdict.ROLL_BACK),
    ([INCOMPLETE], True, Verdict.ROLL_BACK),
    ([OTHER], True, Verdict.ROLL_BACK),
    ([IMPOSSIBLE], True, Verdict.REFUSE),
    ([LANDED, IMPOSSIBLE], True, Verdict.REFUSE),
    ([PUBLISHED, IMPOSSIBLE], True, Verdict.REFUSE),
]


@pytest.mark.parametrize(("standings", "holds", "verdict"), VERDICTS)
def test_what_recovery_does_with_an_undecided_operation(
    standings: list[Standing], *, holds: bool, verdict: Verdict
) -> None:
    assert decide(standings, committed=False, abort=None, authority_holds=holds) is verdict


@pytest.mark.parametrize(("first", "second"), list(product(Standing, repeat=2)))
def test_what_the_manifest_holds_comes_before_what_the_tables_look_like(first: Standing, second: Standing) -> None:
    for holds in (True, False):
        for abort in (None, *AbortState):
            assert decide([first, second], committed=True, abort=abort, authority_holds=holds) is Verdict.CLEAN
        done = decide([first, second], committed=False, abort=AbortState.DONE, authority_holds=holds)
        undoing = decide([first, second], committed=False, abort=AbortState.UNDOING, authority_holds=holds)
        assert (done, undoing) == (Verdict.CLEAN, Verdict.RESUME_UNDO)


def test_every_verdict_is_reached() -> None:
    assert {row[-1] for row in VERDICTS} | {Verdict.RESUME_UNDO} == set(Verdict)
