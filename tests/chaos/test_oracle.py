"""What the oracle of the chaos objects to, and what it does not: a run without violation says as much as this does."""

from __future__ import annotations

import json
from typing import Any

import oracle
import pytest
from content import Content, Contradiction, check_rules, merge, nothing
from past import Commit, Past

PERSON = {"tag": "t", "amount": 1, "badge": None}


def people(**rows: dict[str, Any]) -> Content:
    return {**nothing(), "Person": {name: {"name": name, **PERSON, **row} for name, row in rows.items()}}


def test_a_merge_has_what_both_sides_did_and_equal_changes_are_no_contradiction() -> None:
    base = people(kept={}, theirs={}, ours={}, both={}, gone={}, gone_too={})
    theirs = people(kept={}, theirs={"amount": 2}, ours={}, both={"amount": 3}, gone_too={}, new={})
    ours = people(kept={}, theirs={}, ours={"amount": 4}, both={"amount": 3}, gone={}, own={})

    assert merge(base, [], theirs, ours, "fail") == people(
        kept={}, theirs={"amount": 2}, ours={"amount": 4}, both={"amount": 3}, new={}, own={}
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (people(a={"amount": 2}), people(a={"amount": 3})),
        (people(), people(a={"amount": 3})),
        (people(a={"amount": 2}), people()),
    ],
)
def test_what_both_changed_is_refused_or_taken_from_the_side_that_was_asked_for(theirs: Content, ours: Content) -> None:
    base = people(a={})
    with pytest.raises(Contradiction, match="both changed Person a"):
        merge(base, [], theirs, ours, "fail")
    assert merge(base, [], theirs, ours, "ours") == ours
    assert merge(base, [], theirs, ours, "theirs") == theirs


def test_a_rule_that_only_both_sides_together_break_is_a_contradiction_whoever_wins() -> None:
    theirs = {**people(a={}, b={}), "Knows": {"k": {"id": "k", "src": "a", "dst": "b", "tag": "t"}}}
    check_rules(theirs)
    for ours, problem in ((people(a={}), "Knows.dst dangles"), (people(a={}, b={}, c={"badge": 1}), "badge")):
        marked = {**theirs, "Person": people(a={}, b={}, d={"badge": 1})["Person"]}
        with pytest.raises(Contradiction, match=problem):
            merge(people(a={}, b={}), [], marked, ours, "theirs")


def test_bases_that_tell_different_stories_of_a_row_are_a_contradiction() -> None:
    one, two = people(a={"amount": 1}), people(a={"amount": 2})
    assert merge(one, [], two, one, "theirs") == two
    with pytest.raises(Contradiction, match="nobody knows"):
        merge(one, [two], two, one, "theirs")


# -- a short history: main writes, a branch writes, main merges it ----------------------------------------------------


def entry(tag: str, branch: str, name: str, **more: Any) -> dict[str, Any]:
    rows = {"Person": [{"name": name, "tag": tag, "amount": 1, "badge": None}]}
    rows["Account"] = [{"name": name, "tag": tag, "amount": -1}]
    writes = [{"type": kind, "mode": "append", "rows": values} for kind, values in rows.items()]
    given = {"writes": writes, "txn": None, "based_on": None, "merge": None, **more}
    return {"event": "intent", "tag": tag, "branch": branch, **given}


MERGE = {"source": "dev", "on_conflict": "fail", "delete_branch": False}
JOURNAL = [
    entry("t1", "main", "a"),
    entry("t2", "dev", "b"),
    entry("t3", "main", "c"),
    entry("t4", "main", "", writes=[], merge=MERGE),
]
START = Commit("0", None, 1, None, None)
ON_MAIN, ON_DEV = Commit("1", "0", 2, "w", "t1"), Commit("2", "0", 2, "b", "t2")
MERGED = Commit("3", "1", 3, "b", "t4", merged_id="2", source="dev", source_version=2, base_id="0")


def judged(
    *history: Commit, others: tuple[Commit, ...] = (ON_DEV,), more: tuple[dict[str, Any], ...] = ()
) -> list[str]:
    journals = oracle.read_journals({"w": [json.dumps(line) for line in (*JOURNAL, *more)]})
    return oracle.check_history(journals, list(history), Past(journals.operations, [*history, *others]))


def test_a_merge_brings_in_what_the_branch_has() -> None:
    journals = oracle.read_journals({"w": [json.dumps(line) for line in JOURNAL]})
    past = Past(journals.operations, [START, ON_MAIN, ON_DEV, MERGED])

    assert past.content("3")["Person"].keys() == {"a", "b"}
    assert judged(START, ON_MAIN, MERGED) == []


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ((START, ON_MAIN, MERGED, Commit("4", "3", 4, "w", "t1")), "t1 stands in history 2 times"),
        ((START, ON_MAIN, ON_DEV), "does not follow"),
        ((START, Commit("1", "0", 2, "w", "t2")), "was made on dev and stands in main's history"),
        ((START, ON_MAIN, Commit("3", "1", 3, "b", "t4")), "was intended, and"),
        ((START, ON_MAIN, Commit("3", "1", 3, "b", "t3", "2", "dev", 2, "0")), "None was intended, and"),
        ((START, ON_MAIN, Commit("3", "1", 3, "b", "t4", "2", "dev", 2, "1")), "merged on 1 instead of 0"),
        ((START, ON_MAIN, Commit("3", "1", 3, "b", "t4", "9", "dev", 2, "0")), "nobody has seen commit 9"),
        ((START, ON_MAIN, Commit("3", "1", 3, "b", "t9")), "nobody intended t9"),
    ],
)
def test_a_history_that_cannot_be_is_told(history: tuple[Commit, ...], problem: str) -> None:
    assert any(problem in complaint for complaint in judged(*history))


def test_a_merge_that_is_refused_without_a_contradiction_is_told() -> None:
    refused = {"event": "failed", "tag": "t4", "branch": "main", "code": oracle.MERGE_CONFLICT, "text": "refused"}
    told = {**refused, "details": {"base": "0", "source": "2", "target": "1"}}

    assert judged(START, ON_MAIN, more=(told,)) == ["t4 was refused, and 2 does not contradict 1"]


def test_an_operation_that_failed_stands_nowhere_not_even_through_a_merge() -> None:
    failed = {"event": "failed", "tag": "t2", "branch": "dev", "code": oracle.BRANCH_GONE, "text": "gone"}
    lines = [JOURNAL[1], failed, JOURNAL[0], *JOURNAL[2:]]
    journals = oracle.read_journals({"w": [json.dumps(line) for line in lines]})
    past = Past(journals.operations, [START, ON_MAIN, ON_DEV, MERGED])

    [complaint] = oracle.check_history(journals, [START, ON_MAIN, MERGED], past)
    assert complaint.startswith("t2 was reported failed and stands in history")


@pytest.mark.parametrize(
    ("branch", "code", "accepted"),
    [
        ("dev", oracle.BRANCH_GONE, True),
        ("dev", oracle.SNAPSHOT_GONE, True),
        ("dev", "OG5001", False),
        ("main", oracle.BRANCH_GONE, False),
        ("main", oracle.SNAPSHOT_GONE, False),
    ],
)
def test_only_a_branch_that_is_gone_ends_an_operation_before_it_began(branch: str, code: str, accepted: bool) -> None:  # noqa: FBT001
    ended = {"event": "failed", "tag": "t9", "branch": branch, "code": code, "text": code}
    complaints = oracle.read_journals({"w": [json.dumps(ended)]}).complaints
    assert (not complaints) == accepted
