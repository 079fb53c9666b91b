"""The crash matrix: every kind of writer, every gap between its durable steps, everything that can happen there.

    python tests/crash/matrix.py                              run the whole matrix and print it
    python tests/crash/matrix.py --write docs/crash-matrix.md ... and keep it
    python tests/crash/matrix.py --quick                      the cells that the test suite runs
    python tests/crash/matrix.py --cell 'append/table.commit#2/after/kill'

Each cell runs in real processes on a graph of its own: the writer meets its fate, another process opens the graph, settles
what is left, writes, and compares everything that the graph shows with what its writers were told.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from cells import KINDS, Cell, Gap, Happening, Kind, all_cells, gaps, quick_cells
from child import LEASE, Child, End, create, verify, write
from crash_oracle import Claim, Told
from planted import ENVIRONMENT_VARIABLE as PLANTED_VARIABLE

JOBS = 6  # cells at a time: most of a cell's life is waiting for a lease

ATTEMPTS = 4
_MISSED = "did not meet its fault"


@dataclass(frozen=True)
class Result:
    """What came of a cell: the fate of each write in it, and what the graph shows that it must not."""

    cell: str
    fates: tuple[str, ...]
    violations: tuple[str, ...]
    error: str | None  # what the writer was told
    seconds: float

    @property
    def missed(self) -> bool:
        """Nothing is wrong but that the fault did not happen."""
        return bool(self.violations) and all(problem.endswith(_MISSED) for problem in self.violations)

    @property
    def text(self) -> str:
        return "**VIOLATION**" if self.violations else ", ".join(self.fates)


class Stage:
    """One cell's graph and its processes."""

    def __init__(self, kind: Kind, bases: Path, folder: Path) -> None:
        self.kind = kind
        self.wrong: list[str] = []
        self.told: list[Told] = []
        self._folder = folder
        self._root = folder / "graph.omni"
        self._children: list[Child] = []
        shutil.copytree(bases / kind.base, self._root)

    def start(self, name: str, *arguments: Any, **options: Any) -> Child:
        """Another process; returns when it has ended or stands still."""
        child = Child(name, self._folder, lambda: write(self._root, *arguments, large=self.kind.large, **options))
        self._children.append(child)
        return child

    def expect(self, child: Child, end: End) -> None:
        if child.end is not end:
            said = child.report.get("error") or ""
            self.wrong.append(f"the {child.name} is {child.end.value}, not {end.value} {said}".rstrip())

    def expect_fault(self, child: Child, end: End, errors: int = 0) -> None:
        """The child has met its fault: it is gone, stands still, or was told of so many errors."""
        if child.end is not End.DONE:
            self.expect(child, end)
        elif end is not End.DONE or child.report["errors"] != errors:
            self.wrong.append(f"the {child.name} {_MISSED}")

    def hear(self, child: Child, operation: str) -> None:
        """Takes down what an ended child said of its write."""
        if child.end is End.KILLED:
            self.told.append(Told(operation, Claim.KILLED))
            return
        self.expect(child, End.DONE)
        if child.end is End.DONE:
            self.told.append(Told(operation, Claim(child.report["claim"]), child.report["commit_id"]))

    def verify(self) -> dict[str, Any]:
        check = Child("check", self._folder, lambda: verify(self._root, self.kind, self.told))
        self.expect(check, End.DONE)
        self.wrong += check.report.get("violations", [])
        return dict(check.report.get("fates", {}))

    def clear(self) -> None:
        for child in self._children:
            child.discard()


def run_cell(cell: Cell, bases: Path) -> Result:
    """Runs a cell, again when its fault did not happen: on a busy machine a lease may run out before the fault is reached."""
    for _ in range(ATTEMPTS - 1):
        result = _run_once(cell, bases)
        if not result.missed:
            return result
    return _run_once(cell, bases)


def _run_once(cell: Cell, bases: Path) -> Result:
    started = time.perf_counter()
    with _stage(KINDS[cell.gap.kind], bases) as stage:
        first = _run_first(stage)
        subject = _run_subject(stage, cell, first)
        found = stage.verify()
        fates = [] if first is None else [_fate(found, stage, "first")]
        fates.append(_fate(found, stage, stage.kind.subject.name))
        seconds = time.perf_counter() - started
        return Result(cell.id, tuple(fates), tuple(stage.wrong), subject.report.get("error"), seconds)


def trace(kind: Kind, bases: Path) -> list[str]:
    """The steps that the kind's subject goes through when nothing but its own faults happens to it."""
    with _stage(kind, bases) as stage:
        _run_first(stage)
        return list(stage.start("subject", kind.subject, kind.faults).report["steps"])


def _run_first(stage: Stage) -> Child | None:
    first = stage.kind.first
    if first is None:
        return None
    meanwhile = stage.start("meanwhile", first.meanwhile, park=True) if first.meanwhile else None
    child = stage.start("first", first.operation, first.faults)
    stage.expect_fault(child, End.STOPPED if stage.kind.first_lives else End.KILLED)
    if child.end is not End.STOPPED:
        stage.hear(child, first.operation.name)
    if meanwhile is not None and first.meanwhile is not None:
        stage.expect(meanwhile, End.STOPPED)
        meanwhile.go_on()
        stage.hear(meanwhile, first.meanwhile.name)
    return child


_ENDS = {
    Happening.KILL: End.KILLED,
    Happening.ERROR: End.DONE,
    Happening.STOP: End.STOPPED,
    Happening.OVERTAKEN: End.STOPPED,
}


def _run_subject(stage: Stage, cell: Cell, first: Child | None) -> Child:
    kind, happening = stage.kind, cell.happening
    subject = stage.start("subject", kind.subject, cell.faults)
    stage.expect_fault(subject, _ENDS[happening], errors=len(cell.faults.split(";")))
    if first is not None and first.end is End.STOPPED:
        first.go_on()
        stage.hear(first, "first")
    elif happening is Happening.STOP:
        stage.expect(stage.start("other", None), End.DONE)
    if happening is Happening.OVERTAKEN:
        other = stage.start("other", kind.overtaker)
        stage.hear(other, kind.overtaker.name)
        if other.end is End.DONE and other.report["claim"] != Claim.COMMITTED:
            stage.wrong.append(f"the other could not write: {other.report['error']}")
    if subject.end is End.STOPPED:
        subject.go_on()
    stage.hear(subject, kind.subject.name)
    return subject


def _fate(found: dict[str, bool], stage: Stage, operation: str) -> str:
    """In a word: what its writer was told, and after a kill or an unknown outcome, what came of it."""
    claims = [told.claim for told in stage.told if told.operation == operation]
    claim = claims[-1] if claims else Claim.KILLED
    truth = "committed" if found.get(operation) else "undone"
    if claim is Claim.KILLED:
        return truth
    return f"unknown ({truth})" if claim is Claim.UNKNOWN else claim.value


@contextmanager
def _stage(kind: Kind, bases: Path) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="crash-", dir=bases.parent) as folder:
        stage = Stage(kind, bases, Path(folder))
        try:
            yield stage
        finally:
            stage.clear()


@contextmanager
def _bases(kinds: Iterable[Kind]) -> Iterator[Path]:
    """A folder with the graphs that these kinds start from copies of."""
    planted = os.environ.pop(PLANTED_VARIABLE, None)  # mistakes are for the cells, not for what they start from
    with tempfile.TemporaryDirectory(prefix="crash-matrix-") as folder:
        bases = Path(folder) / "bases"
        bases.mkdir()
        for name in sorted({kind.base for kind in kinds}):
            made = Child(f"create-{name}", Path(folder), lambda name=name: create(bases / name, name))  # type: ignore[misc]
            if made.end is not End.DONE:
                raise RuntimeError(f"the base '{name}' could not be made")
        if planted is not None:
            os.environ[PLANTED_VARIABLE] = planted
        yield bases


_work_folder: Path  # of this process, set before it forks its workers


def _run_here(cell: Cell) -> Result:
    try:
        return run_cell(cell, _work_folder)
    except Exception as error:  # noqa: BLE001 - one cell that breaks the runner is one finding, not the end of the run
        return Result(cell.id, (), (f"the runner broke: {error!r}",), None, 0.0)


def _trace_here(kind: Kind) -> list[str]:
    return trace(kind, _work_folder)


def run(cells: Sequence[Cell], jobs: int = JOBS) -> list[Result]:
    """Runs the cells from this process, which must not have used the engine; see ``run_apart``."""
    global _work_folder  # forked workers inherit it
    kinds = [KINDS[cell.gap.kind] for cell in cells]
    with _bases(kinds) as _work_folder, multiprocessing.get_context("fork").Pool(jobs) as pool:
        return pool.map(_run_here, cells, chunksize=1)


def traces(jobs: int = JOBS) -> dict[str, list[str]]:
    """What the subject of each kind really goes through, by kind; from this process, as ``run``."""
    global _work_folder  # forked workers inherit it
    with _bases(KINDS.values()) as _work_folder, multiprocessing.get_context("fork").Pool(jobs) as pool:
        return dict(zip(KINDS, pool.map(_trace_here, KINDS.values(), chunksize=1), strict=True))


def run_apart(arguments: Iterable[str], planted: str | None = None) -> Any:
    """What this program answers to ``--json`` and more arguments, in a process of its own, as tests need it."""
    environment = {**os.environ, **({} if planted is None else {PLANTED_VARIABLE: planted})}
    command = [sys.executable, __file__, "--json", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def results(arguments: Iterable[str], planted: str | None = None) -> list[Result]:
    answer = run_apart(arguments, planted)
    return [Result(**one) for one in answer["results"]]


_INTRODUCTION = """\
Rows are the gaps before and after every durable step of every kind of writer, from the names in
`omnigraph_engine/failpoints.py`; `#2` is the second time that the writer gets there. Columns are what happens in the gap:

| | |
|---|---|
| kill | the process is killed (SIGKILL) |
| error | before: the store refuses the step; after: the step is done and its answer is lost |
| stop | the process stands still (SIGSTOP) until another one has settled what it left, then goes on |
| overtaken | the same, and the other one has also written to the same tables |

Kinds that make or delete a branch end in the branch being there, or gone, for *committed*. A cell says what became of the
writer's commit: *committed*, *rejected* (its caller was told so, nothing is visible), *undone*
(its writer was killed, nothing is visible), *unknown* (its caller was told to look; in brackets what there was to see). Where a
writer meets the remains of a first one, the first one's fate comes first. A writer that was stopped and is *committed* all the
same was either finished by the other or prepared itself anew.

In every cell another process then opened the graph, repeated the write where an application would, and wrote once more. The cell
is a violation unless all of these hold:

- every commit is in the history once, with all of its rows in both tables, or not at all;
- what was acknowledged is there, and what was rejected is not;
- every snapshot, also the one from before, can be read and holds what it held, and no edge lacks an endpoint;
- the next write went through;
- HEAD of every line that a branch owns is what its manifest publishes, no sidecar is left, and no recovery is audited twice;
- a branch that was made holds what its origin held, and one that was deleted shows nothing in its next life;
- the fault really happened.
"""


def _versions() -> str:
    return f"Python {platform.python_version()}, pylance {version('pylance')}"


def page(found: Sequence[Result], seconds: float) -> str:
    """The matrix as a page."""
    by_cell = {result.cell: result for result in found}
    bad = [result for result in found if result.violations]
    moment = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        "# The crash matrix",
        "",
        "<!-- Written by `make crash-matrix`; run that instead of editing. -->",
        "",
        f"Run of {moment}: {len(found)} cells, {len(bad)} violations, {seconds:.0f} s ({_versions()}, lease {LEASE:g} s).",
        "",
        *_INTRODUCTION.splitlines(),
    ]
    for kind in KINDS.values():
        rows = [gap for gap in gaps(kind) if any(_cell_id(gap, happening) in by_cell for happening in Happening)]
        if rows:
            lines += [
                "",
                f"## {kind.name}",
                "",
                f"{kind.title[0].upper()}{kind.title[1:]}.",
                "",
                *_table(rows, by_cell),
            ]
    lines += ["", "## Counts", "", "| outcome | cells |", "|---|---|"]
    lines += [f"| {text} | {count} |" for text, count in Counter(result.text for result in found).most_common()]
    if bad:
        lines += ["", "## Violations", ""]
        lines += [f"- `{result.cell}`: {problem}" for result in bad for problem in result.violations]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Gap], by_cell: dict[str, Result]) -> Iterator[str]:
    yield "| step | | " + " | ".join(happening.value for happening in Happening) + " |"
    yield "|---|---|" + "---|" * len(Happening)
    for place, moments in groupby(rows, key=lambda gap: gap.place):
        for number, gap in enumerate(moments):
            cells = [by_cell.get(_cell_id(gap, happening)) for happening in Happening]
            texts = ["" if result is None else result.text for result in cells]
            yield f"| {f'`{place}`' if number == 0 else ''} | {gap.moment.value} | " + " | ".join(texts) + " |"


def _cell_id(gap: Gap, happening: Happening) -> str:
    return Cell(gap, happening).id


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the crash matrix.")
    parser.add_argument("--quick", action="store_true", help="only the cells that the test suite runs")
    parser.add_argument(
        "--cell", action="append", default=[], help="only cells whose id begins with this; may be repeated"
    )
    parser.add_argument("--trace", action="store_true", help="only say which steps each kind of writer goes through")
    parser.add_argument("--write", type=Path, help="keep the page here, too")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"cells at a time (default {JOBS})")
    arguments = parser.parse_args()
    if arguments.trace:
        sys.stdout.write(json.dumps(traces(arguments.jobs), indent=2) + "\n")
        return 0
    chosen = [
        cell
        for cell in (quick_cells() if arguments.quick else all_cells())
        if not arguments.cell or any(cell.id.startswith(part) for part in arguments.cell)
    ]
    started = time.perf_counter()
    found = run(chosen, arguments.jobs)
    seconds = time.perf_counter() - started
    if arguments.json:
        answer = {"seconds": seconds, "results": [asdict(result) for result in found]}
        sys.stdout.write(json.dumps(answer) + "\n")
    else:
        sys.stdout.write(page(found, seconds))
    if arguments.write is not None:
        arguments.write.write_text(page(found, seconds), encoding="utf-8")
    return 1 if any(result.violations for result in found) else 0


if __name__ == "__main__":
    sys.exit(main())
