"""What a stage leaves behind: plain data that says which files a commit will make visible.

A ``StagedWrite`` travels from executors to the driver and into recovery documents, so it holds text and numbers only, and
its size follows the number of fragments, never the number of rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any


class StageKind(str, Enum):
    APPEND = "append"  # new rows only
    OVERWRITE = "overwrite"  # these rows and no others
    UPSERT = "upsert"  # matched rows replaced under their row ids, the rest new
    DELETE = "delete"  # deletion vectors only
    INDEX = "index"  # index segments only
    REWRITE = "rewrite"  # the same rows in other fragments


@dataclass(frozen=True)
class StagedWrite:
    """Files staged against one version of one table; invisible until ``commit_staged`` makes them its next version."""

    table_key: str
    kind: StageKind
    base_version: int
    transaction_uuid: str
    line: str | None = None  # of the table, as in ``TableRef.branch``: the one whose folder the files are in
    new_fragments: tuple[str, ...] = ()  # Lance fragment metadata as JSON text, here and below
    updated_fragments: tuple[str, ...] = ()
    removed_fragment_ids: tuple[int, ...] = ()
    new_indices: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()  # per group of fragments: those it replaces ("old") and those it puts there ("new")
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    minted_ids: bool = False  # every id was made for this very write, so none of them can exist or occur twice

    def rows_after(self, rows_before: int) -> int:
        """How many rows the table has once this is committed on a version with ``rows_before`` rows."""
        if self.kind is StageKind.OVERWRITE:
            return self.rows_inserted
        return rows_before + self.rows_inserted - self.rows_deleted

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> StagedWrite:
        fields: dict[str, Any] = json.loads(text)
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(value)
        return cls(**{**fields, "kind": StageKind(fields["kind"])})


def new_transaction_uuid() -> str:
    return str(uuid.uuid4())


def combine(parts: Iterable[StagedWrite]) -> StagedWrite | None:
    """One write from those that many workers staged for one table, or None when nobody staged anything.

    The parts must be of one kind and one base. Only kinds whose workers touch no common fragment can be combined: a
    fragment with two deletion vectors would lose one of them.
    """
    staged = list(parts)
    if not staged:
        return None
    first = staged[0]
    if any(
        (part.table_key, part.kind, part.base_version, part.line)
        != (first.table_key, first.kind, first.base_version, first.line)
        for part in staged
    ):
        raise ValueError("staged parts differ in table, kind, base version or line")
    touched = [json.loads(text)["id"] for part in staged for text in part.updated_fragments]
    touched.extend(fragment_id for part in staged for fragment_id in part.removed_fragment_ids)
    if len(touched) != len(set(touched)):
        raise ValueError(f"two staged parts of {first.table_key} touch the same fragment")
    return replace(
        first,
        new_fragments=tuple(text for part in staged for text in part.new_fragments),
        updated_fragments=tuple(text for part in staged for text in part.updated_fragments),
        removed_fragment_ids=tuple(fragment_id for part in staged for fragment_id in part.removed_fragment_ids),
        new_indices=tuple(text for part in staged for text in part.new_indices),
        rewrites=tuple(text for part in staged for text in part.rewrites),
        rows_inserted=sum(part.rows_inserted for part in staged),
        rows_updated=sum(part.rows_updated for part in staged),
        rows_deleted=sum(part.rows_deleted for part in staged),
        minted_ids=all(part.minted_ids for part in staged),
    )
