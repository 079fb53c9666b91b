"""The crash matrix: no gap of any writer shows a partial commit, loses one, blocks the next, or parts HEAD from the manifest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cells import KINDS, Happening, all_cells, gaps, quick_cells
from matrix import Result, page, results, run_apart
from omnigraph_engine.failpoints import Failpoint, Moment

PAGE = Path(__file__).parents[2] / "docs" / "crash-matrix.md"


def test_every_failpoint_has_its_rows() -> None:
    for moment in Moment:
        covered = {gap.step for kind in KINDS.values() for gap in gaps(kind) if gap.moment is moment}
        assert covered == set(Failpoint)


def test_the_quick_cells_touch_every_gap_with_a_failpoint_of_its_own() -> None:
    assert {(cell.gap.kind, cell.gap.place) for cell in quick_cells()} == {
        (cell.gap.kind, cell.gap.place) for cell in all_cells()
    }


def test_every_kind_of_writer_goes_through_exactly_the_steps_that_its_rows_name() -> None:
    expected = {name: [step.value for step in (*kind.before, *kind.steps, *kind.after)] for name, kind in KINDS.items()}
    assert run_apart(["--trace"]) == expected


@pytest.mark.timeout(600)
def test_no_cell_shows_a_partial_commit_loses_one_blocks_the_next_write_or_parts_head_from_the_manifest() -> None:
    found = results(["--quick"])
    assert [result.cell for result in found] == [cell.id for cell in quick_cells()]
    assert [result for result in found if result.violations] == []


def test_the_page_has_a_row_for_every_gap_and_a_result_for_every_cell() -> None:
    text = PAGE.read_text(encoding="utf-8")
    run = rf"^Run of \d{{4}}-\d\d-\d\d \d\d:\d\d UTC: {len(all_cells())} cells, 0 violations"
    assert re.search(run, text, re.MULTILINE)
    assert _rows(text) == [
        (kind.name, gap.place, gap.moment.value, len(Happening)) for kind in KINDS.values() for gap in gaps(kind)
    ]


def test_a_violation_is_printed_in_its_cell_and_in_words() -> None:
    cell = all_cells()[0]
    text = page([Result(cell.id, ("undone",), ("HEAD of node:Person is 3",), None, 0.1)], 0.1)
    assert "1 cells, 1 violations" in text
    assert "**VIOLATION**" in text
    assert f"- `{cell.id}`: HEAD of node:Person is 3" in text


def _rows(text: str) -> list[tuple[str, str, str, int]]:
    """Kind, place, moment and number of filled cells of every row of the page."""
    rows, kind, place = [], "", ""
    for line in text.splitlines():
        if line.startswith("## "):
            kind = line.removeprefix("## ")
        columns = [column.strip() for column in line.strip("|").split("|")]
        if len(columns) == 2 + len(Happening) and columns[1] in set(Moment):
            place = columns[0].strip("`") or place
            rows.append((kind, place, columns[1], len([column for column in columns[2:] if column])))
    return rows
