"""Measures, side by side in one run, what the project promises about speed.

    make bench                                all of it
    python benchmarks/run.py commits loads    some of it

Times are of this machine and this moment; the ratios are what to look at.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median, quantiles

import branch_side
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import spark_side
from omnigraph_engine import Graph

TYPES = 8
SCHEMA = "\n".join(
    ["node Person { name: String @key  age: I32? }", "edge Knows: Person -> Person"]
    + [f"node Thing{number} {{ name: String @key }}" for number in range(TYPES)]
)
COMMITS_PER_WRITER = 25
HISTORY = 1_000
ROWS = 1_000_000

WRITER = """
import sys
import pyarrow as pa
from omnigraph_engine import Graph
uri, kind, tag, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
graph = Graph.open(uri)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    graph.load({kind: pa.table({"name": [f"{tag}-{number}"]})})
print("done", flush=True)
"""


def commits(folder: Path) -> None:
    """Commits per second; and what a commit costs early and late in a graph's life."""
    one = _commits_per_second(folder / "one.omni", ["Person"])
    same = _commits_per_second(folder / "same.omni", ["Person"] * TYPES)
    apart = _commits_per_second(folder / "apart.omni", [f"Thing{number}" for number in range(TYPES)])
    _say("commits/s, 1 writer", f"{one:.1f}", "target at least 30")
    _say(f"commits/s, {TYPES} writers, same table", f"{same:.1f}", f"{same / one:.2f}x of 1 writer")
    _say(f"commits/s, {TYPES} writers, different tables", f"{apart:.1f}", f"{apart / one:.2f}x of 1 writer")


def history(folder: Path) -> None:
    """A two-table commit at 10 and at 1,000 commits of history."""
    graph = Graph.create(folder / "history.omni", SCHEMA)
    graph.load({"Person": pa.table({"name": ["first"]})})

    def commit(number: int) -> float:
        rows = {
            "Person": pa.table({"name": [f"p{number}"]}),
            "Knows": pa.table({"src": ["first"], "dst": [f"p{number}"]}),
        }
        started = time.perf_counter()
        graph.load(rows)
        return time.perf_counter() - started

    taken = [commit(number) for number in range(HISTORY + 100)]
    early, late = taken[10:110], taken[HISTORY:]
    for name, window in (("at 10 commits", early), (f"at {HISTORY} commits", late)):
        p95 = quantiles(window, n=20)[-1]
        _say(f"two-table commit {name}", f"p50 {median(window) * 1e3:.1f} ms", f"p95 {p95 * 1e3:.1f} ms")
    _say("p50 late / early", f"{median(late) / median(early):.2f}x", "target at most 1.2x")


def loads(folder: Path) -> None:
    """A million rows: through a graph, with every check, and as raw files."""
    table = pa.table({"name": [f"person-{number}" for number in range(ROWS)], "age": pa.array(range(ROWS), pa.int32())})
    graph = Graph.create(folder / "load.omni", SCHEMA)
    raw = _timed(lambda: lance.write_dataset(table, folder / "raw.lance", data_storage_version="2.2"))
    parquet = _timed(lambda: pq.write_table(table, folder / "raw.parquet"))
    append = _timed(lambda: graph.load({"Person": table}))
    merge = _timed(lambda: graph.load({"Person": table}, mode="merge"))
    _say("raw Lance write, 1,000,000 rows", f"{raw:.2f} s", "1.0x")
    _say("parquet write", f"{parquet:.2f} s", f"{parquet / raw:.1f}x")
    _say("graph append, checked", f"{append:.2f} s", f"{append / raw:.1f}x")
    _say("graph merge, all rows matched", f"{merge:.2f} s", f"{merge / raw:.1f}x")


def _commits_per_second(uri: Path, kinds: list[str]) -> float:
    Graph.create(uri, SCHEMA)
    count = COMMITS_PER_WRITER if len(kinds) > 1 else COMMITS_PER_WRITER * 4
    writers = [
        subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", WRITER, uri, kind, str(number), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, kind in enumerate(kinds)
    ]
    for writer in writers:
        _expect(writer, "ready")
    started = time.perf_counter()
    for writer in writers:
        assert writer.stdin is not None  # noqa: S101 - it is a pipe
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _expect(writer, "done")
    seconds = time.perf_counter() - started
    for writer in writers:
        writer.communicate()
    return count * len(kinds) / seconds


def _expect(writer: subprocess.Popen[str], word: str) -> None:
    assert writer.stdout is not None  # noqa: S101 - it is a pipe
    said = writer.stdout.readline().strip()
    if said != word:
        raise SystemExit(f"a writer failed: it said {said!r} where {word!r} was due")


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _say(what: str, value: str, remark: str) -> None:
    print(f"  {what:<50} {value:>14}   {remark}", flush=True)


def spark(folder: Path) -> None:
    """Through Spark: loads with all checks, reads, counts and upserts, side by side with parquet."""
    spark_side.measure(folder, _say)


def branches(folder: Path) -> None:
    """Making branches, first writes, merges and fast-forwards, small and large."""
    branch_side.measure(folder, _say)


BENCHMARKS: dict[str, Callable[[Path], None]] = {
    "commits": commits,
    "history": history,
    "loads": loads,
    "branches": branches,
    "spark": spark,
}


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    print(f"{date.today().isoformat()}, Python {platform.python_version()}, {os.cpu_count()} cores, local disk")  # noqa: DTZ011
    for name in names or BENCHMARKS:
        print(f"{name}: {BENCHMARKS[name].__doc__}")
        folder = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
        try:
            BENCHMARKS[name](folder)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
