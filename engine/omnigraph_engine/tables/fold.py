"""Folding small fragments together, so that reading a table costs what its rows cost and not what its history was.

Every commit leaves at least one fragment. A table written in many small commits would soon be slow to read and to check keys
against, so a commit that would leave too many small fragments side by side folds them in a second step of its own. Folding
goes by size classes: sixteen fragments of one class become one of the next, so a row is rewritten a few times in its life and
the number of fragments grows with the logarithm of the number of commits. Large fragments are left to ``optimize``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from lance.optimize import Compaction

from omnigraph_engine.tables.staged import StagedWrite, StageKind, new_transaction_uuid
from omnigraph_engine.tables.table import Table

FOLD_AT = 16
SIZE_CLASSES = (16, 256, 4_096, 65_536)  # rows below which a fragment belongs to the class


def fold_limit(rows: Sequence[int]) -> int | None:
    """The size class of which a table with fragments of these sizes, oldest first, has too many at its end; or None."""
    for limit in SIZE_CLASSES:
        if sum(1 for _ in takewhile(lambda count: count < limit, reversed(rows))) >= FOLD_AT:  # noqa: B023
            return limit
    return None


def fold_limit_after(table: Table, staged: StagedWrite) -> int | None:
    """The class to fold once ``staged`` is committed on ``table``; None for indexed tables, whose indexes would be lost."""
    if staged.kind not in (StageKind.APPEND, StageKind.UPSERT):
        return None
    removed = set(staged.removed_fragment_ids)
    standing = [part.rows for part in table.fragments() if part.fragment_id not in removed]
    coming = [int(json.loads(text)["physical_rows"]) for text in staged.new_fragments]
    limit = fold_limit([*standing, *coming])
    return None if limit is None or table.dataset.describe_indices() else limit


def stage_fold(table: Table, limit: int) -> StagedWrite:
    """Rewrites runs of fragments smaller than ``limit`` rows into larger ones. Rows keep their ids, versions and values."""
    options: Any = {"target_rows_per_fragment": limit, "materialize_deletions": False}
    with table.reading("Folding small fragments of"):
        plan = Compaction.plan(table.dataset, options)
        done: list[Any] = [task.execute(table.dataset) for task in plan.tasks]
    return StagedWrite(
        table_key=table.ref.table_key,
        kind=StageKind.REWRITE,
        base_version=table.ref.version,
        transaction_uuid=new_transaction_uuid(),
        line=table.ref.branch,
        rewrites=tuple(
            json.dumps(
                {
                    "old": [json.dumps(part.to_json()) for part in group.original_fragments],
                    "new": [json.dumps(part.to_json()) for part in group.new_fragments],
                }
            )
            for group in done
        ),
    )
