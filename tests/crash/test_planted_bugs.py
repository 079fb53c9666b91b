"""Each mistake that can be planted into the protocol is found by a cell of the crash matrix that is clean without it."""

from __future__ import annotations

import pytest
from cells import all_cells
from matrix import results
from planted import PLANTED, plant

# The cell that finds a mistake, and a word of what it says.
FOUND_BY = {
    "arm-after-the-first-table": ("append/table.commit#1/after/kill", "HEAD of edge:Knows"),
    "rebase-instead-of-exact": ("undo/recovery.restore#1/before/overtaken", "HEAD of edge:Knows"),
    "publish-before-all-landed": ("append/table.commit#2/before/kill", "cannot be read"),
    "disarm-before-publish": ("append/sidecar.disarm#1/after/kill", "HEAD of edge:Knows"),
    "delete-on-unknown": ("append/manifest.publish#1/before/error", "HEAD of edge:Knows"),
    "fail-without-looking": ("append/manifest.publish#1/after/error", "was rejected and stands in the history"),
    "ignore-abort": ("undo publishing/recovery.restore#1/after/kill", "HEAD of edge:Knows"),
    "publish-blind": ("undo publishing/recovery.restore#1/after/kill", "HEAD of edge:Knows"),
    "skip-revalidation": ("undo invalid/recovery.own#1/before/kill", "who do not exist"),
    "no-fence": ("overwrite/table.commit#2/before/stop", "HEAD of node:Person"),
    "undo-before-abort": ("undo publishing/recovery.abort#1/before/stop", "HEAD of edge:Knows"),
    "no-undo-sidecar": ("undo living/recovery.restore#1/after/kill", "HEAD of edge:Knows"),
    "unmarked-undo": ("undo/recovery.restore#1/after/kill", "HEAD of edge:Knows"),
    "forget-before-converge": ("undo/recovery.converge#1/before/kill", "HEAD of edge:Knows"),
    "forward-if-any-landed": ("append/table.commit#1/after/kill", "the next write failed"),
    "forward-incomplete-chain": ("fold/table.commit#3/after/kill", "the next write failed"),
    "forward-on-moved-read-set": ("undo invalid/recovery.own#1/before/kill", "who do not exist"),
    "forward-without-transaction": ("transaction/manifest.publish#1/before/kill", "the next write failed"),
    "write-on-the-parents-line": ("fork/manifest.publish#1/after/kill", "HEAD of edge:Knows"),
    "begin-in-the-residue": ("create again/branch.begin#1/after/kill", "after 'base-former'"),
    "forward-without-looking-at-the-line": ("fork/table.fork#1/after/kill", "the next write failed"),
}


def test_every_mistake_has_the_cell_that_finds_it() -> None:
    assert FOUND_BY.keys() == PLANTED.keys()
    assert len(PLANTED) >= 8
    assert {cell for cell, _ in FOUND_BY.values()} <= {cell.id for cell in all_cells()}


def test_a_mistake_that_nobody_knows_cannot_be_planted() -> None:
    with pytest.raises(KeyError):
        plant("no-such-mistake")


def test_the_cells_that_find_mistakes_are_clean_without_them() -> None:
    chosen = sorted({f"--cell={cell}" for cell, _ in FOUND_BY.values()})
    found = results(chosen)
    assert len(found) == len(chosen)
    assert [result for result in found if result.violations] == []


@pytest.mark.parametrize("mistake", FOUND_BY)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    cell, problem = FOUND_BY[mistake]
    [result] = results([f"--cell={cell}"], planted=mistake)
    assert any(problem in violation for violation in result.violations), result
