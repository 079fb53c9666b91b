"""The commits that one table takes within one graph commit: usually one, for some writes a chain of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from omnigraph_engine.tables.fold import fold_limit_after, stage_fold
from omnigraph_engine.tables.row_ids import is_named_later, stage_row_ids, under_new_row_ids
from omnigraph_engine.tables.staged import StagedWrite, new_transaction_uuid
from omnigraph_engine.tables.table import Table


@dataclass(frozen=True)
class LaterStep:
    """A commit that can be staged only on top of the one before it in the same chain."""

    transaction_uuid: str
    stage: Callable[[Table], StagedWrite]


Step = StagedWrite | LaterStep


def steps_of(table: Table, write: StagedWrite) -> tuple[Step, ...]:
    """A write that was staged on this version of a table, and what has to follow it."""
    named_later = is_named_later(table, write)
    return (under_new_row_ids(write) if named_later else write, *_following(table, write, named_later=named_later))


def _following(table: Table, write: StagedWrite, *, named_later: bool) -> Iterator[Step]:
    if named_later:
        yield LaterStep(new_transaction_uuid(), partial(stage_row_ids, before=table, staged=write))
    limit = fold_limit_after(table, write)
    if limit is not None:  # else it would leave too many small fragments
        yield LaterStep(new_transaction_uuid(), partial(stage_fold, limit=limit))
