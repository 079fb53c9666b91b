"""Deciding what to do with an operation that somebody left behind. Pure: facts in, verdict out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from omnigraph_engine.commit.sidecar import TableIntent
from omnigraph_engine.manifest.publisher import TablePin
from omnigraph_engine.manifest.rows import AbortState


class Standing(str, Enum):
    """How far an operation got with one table."""

    PUBLISHED = "already published"
    LANDED = "landed"
    NOT_MOVED = "not moved"
    INCOMPLETE = "incomplete chain"
    MOVED_BY_OTHER = "moved by someone else"
    IMPOSSIBLE = "impossible"  # HEAD is below what the manifest publishes


class Verdict(str, Enum):
    """What recovery does with an operation."""

    CLEAN = "clean"  # its fate is sealed and nothing is left to do but to forget it
    ROLL_FORWARD = "roll forward"
    ROLL_BACK = "roll back"
    RESUME_UNDO = "resume undo"  # somebody published its abort already
    REFUSE = "refuse"


@dataclass(frozen=True)
class TableFacts:
    """What is true of one table now."""

    pin: TablePin | None  # what the manifest publishes; None when the table is gone from it
    head: int
    above: Sequence[str | None]  # transaction uuids of the versions above the intent's expected one, in order


def landed_steps(intent: TableIntent, above: Sequence[str | None]) -> int:
    """How many of the intent's transactions stand, in order, right above its expected version.

    An intent without uuids (sidecar version 1) takes whatever stands there for its own, as its writer's engine did.
    """
    steps = 0
    for planned, found in zip(intent.transactions, above, strict=False):
        if planned is not None and planned != found:
            break
        steps += 1
    return steps


def classify(intent: TableIntent, facts: TableFacts) -> Standing:
    """How far the operation got with this table."""
    if intent.adopts:  # that what it adopts is published is no proof: others may have adopted the same
        return Standing.LANDED if facts.pin == intent.pin else Standing.MOVED_BY_OTHER
    same_line = facts.pin is not None and facts.pin.branch == intent.branch
    if facts.pin is not None and same_line and facts.head < facts.pin.version:
        return Standing.IMPOSSIBLE
    steps = landed_steps(intent, facts.above)
    whole = steps == len(intent.transactions)
    if facts.pin == intent.pin and steps == len(facts.above):  # nobody but the operation has moved the table
        unfinished = Standing.INCOMPLETE if steps else Standing.NOT_MOVED
        return Standing.LANDED if whole else unfinished
    if whole and same_line and facts.pin is not None and facts.pin.version >= intent.final_version:
        return Standing.PUBLISHED
    return Standing.MOVED_BY_OTHER


def decide(
    standings: Iterable[Standing], *, committed: bool, abort: AbortState | None, authority_holds: bool
) -> Verdict:
    """What recovery does, given how far each table got and what the manifest says about the operation itself.

    The manifest comes first: a commit or an abort that it holds is the operation's fate, whatever the tables look like.
    """
    if committed or abort is AbortState.DONE:
        return Verdict.CLEAN
    if abort is AbortState.UNDOING:
        return Verdict.RESUME_UNDO
    found = set(standings)
    if Standing.IMPOSSIBLE in found:
        return Verdict.REFUSE
    if found == {Standing.PUBLISHED}:
        return Verdict.CLEAN
    if found == {Standing.LANDED} and authority_holds:
        return Verdict.ROLL_FORWARD
    return Verdict.ROLL_BACK
