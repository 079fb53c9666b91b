"""One writer of a chaos run: ``python writer.py GRAPH JOURNAL SEED SLOT OPERATIONS LEASE``.

It goes on where its predecessor in the same slot was killed, as the journal tells. Every line of the journal is on disk
before the next step: what an operation is to do stands there before anything of it can become visible.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import content as model
import oracle
import pyarrow as pa
from omnigraph_engine import failpoints
from omnigraph_engine.errors import OmnigraphError, OutcomeUnknown
from omnigraph_engine.graph import Graph
from omnigraph_engine.manifest.rows import MAIN, GraphCommit
from omnigraph_engine.snapshot import Snapshot
from omnigraph_engine.write.load import WriteOptions
from past import RECOVERY_ACTOR, Commit

PLANTED_VARIABLE = "OMNIGRAPH_PLANTED"
HOT_KEYS = 12  # few enough for writers to meet on the same rows
BADGES = 40
TRIES = 4  # of an operation that replaces types and met somebody faster

_TYPES = {"amount": pa.int64(), "badge": pa.int64(), "count": pa.int64()}

Writes = list[dict[str, Any]]


class Journal:
    """The lines that a writer leaves, each of them durable when ``note`` returns."""

    def __init__(self, path: str) -> None:
        self.entries: list[dict[str, Any]] = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.entries.extend(oracle.read_entries(file))
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(self._file, b"\n")

    def note(self, event: str, **values: Any) -> None:
        os.write(self._file, (json.dumps({"event": event, "at": round(time.time(), 3), **values}) + "\n").encode())
        os.fsync(self._file)

    def unfinished_transaction(self) -> dict[str, Any] | None:
        """The last numbered write whose outcome is in doubt: it is safe to send again, and is."""
        last: dict[str, Any] | None = None
        for entry in self.entries:
            if entry["event"] == "intent" and entry["txn"]:
                last = entry
            elif entry["event"] == "ack" and last is not None and entry["tag"] == last["tag"]:
                last = None
        return last


def content_of(snapshot: Snapshot) -> model.Content:
    content: model.Content = {}
    for name in model.TYPES:
        rows = snapshot.table(name).to_arrow().to_pylist()
        content[name] = {}
        for row in rows:
            key = row["id"]
            if key in content[name]:
                raise model.Violation(f"{name} has the id {key!r} twice")
            content[name][key] = {column: row[column] for column in row if column != "id" or name in model.EDGES}
    return content


def seen(commit: GraphCommit) -> Commit:
    """A commit as the oracle takes it."""
    told = commit.extra.get("merge", {})
    return Commit(
        commit_id=commit.commit_id,
        parent_id=commit.parent_id,
        manifest_version=commit.manifest_version,
        actor=commit.actor,
        tag=None if commit.actor == RECOVERY_ACTOR else commit.extra.get("message"),
        merged_id=commit.merged_parent_id,
        source=told.get("source"),
        source_version=told.get("source_version"),
        base_id=told.get("base"),
    )


class Writer:
    """Writes to one branch at a time, by default to main, and reads what comes of it."""

    branch = MAIN

    def __init__(self, graph: Graph, journal: Journal, seed: str, slot: str) -> None:
        self._graph = graph
        self._journal = journal
        self._random = random.Random(seed)  # noqa: S311 - a schedule, not a secret
        self._slot = slot
        intents = [entry for entry in journal.entries if entry["event"] == "intent"]
        # By number, not by count: an operation that came to no intent has had one too, and tags must not come again.
        self.done = max((int(entry["tag"].rsplit("-", 1)[1]) for entry in intents), default=0)
        self._app_version = max((entry["txn"][1] for entry in intents if entry["txn"]), default=0)
        self._content: model.Content = {name: {} for name in model.TYPES}

    def run(self, operations: int) -> None:
        unfinished = self._journal.unfinished_transaction()
        if unfinished is not None:
            self._send_again(unfinished)
        while self.done < operations:
            self.read()
            self._random.choices(
                [self.insert, self.insert_hot, self.merge, self.numbered, self.replace_settings, self.replace_places],
                [4, 2, 5, 3, 3, 3],
            )[0]()
        self.read()

    # -- reading ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Reads a whole snapshot. What it must be is checked here; which commit it shows, by the oracle afterwards."""
        snapshot = self._graph.snapshot()
        try:
            self._content = content_of(snapshot)
            model.check_content(self._content)
        except model.Violation as violation:
            self._journal.note("violation", text=f"{snapshot.id}: {violation}")
            raise
        self._journal.note("read", commit=snapshot.commit.commit_id, digest=model.digest(self._content))

    # -- writing ----------------------------------------------------------------------------------------------

    def insert(self) -> None:
        """New people with their accounts, and edges among them and others, in one commit."""
        tag = self._tag()
        names = [f"{tag}-{number}" for number in range(self._random.randint(1, 3))]
        self._write(tag, [*self._people(tag, names, "append"), *self._edges(tag, names)])

    def insert_hot(self) -> None:
        """Insert of names that others insert too: one of them succeeds."""
        tag = self._tag()
        self._write(tag, self._people(tag, self._hot(), "append"))

    def merge(self) -> None:
        """Update of people that others update too, with some new ones."""
        tag = self._tag()
        names = [*self._hot(), *self._random.sample([f"{tag}-{number}" for number in range(2)], 1)]
        writes = self._people(tag, names, "merge")
        self._write(tag, writes if self._random.random() < 0.5 else [*writes, *self._edges(tag, names)])

    def numbered(self) -> None:
        """A write under a number of the application's own: sent again whenever its outcome is in doubt."""
        tag = self._tag()
        self._app_version += 1
        mode = self._random.choice(["append", "merge"])
        names = [f"{tag}-0"] if mode == "append" else self._hot()
        writes = self._people(tag, names, mode, badges=False)
        transaction = (f"app-{self._slot}", self._app_version)
        for _ in range(TRIES):
            if self._write(tag, writes, transaction) == "ack":
                break
        if self._random.random() < 0.3:
            self._write(tag, writes, transaction)

    def replace_settings(self) -> None:
        """Replaces two types, as a function of what they held: an update that got lost would show."""
        for _ in range(TRIES):
            tag = self._tag()

            def writes(tag: str = tag) -> tuple[Writes, str]:
                content = content_of(self._graph.snapshot(branch=self.branch))
                amounts = [self._random.randint(-9, 9) for _ in model.SETTINGS]
                settings = [
                    {"name": name, "tag": tag, "amount": amount}
                    for name, amount in zip(model.SETTINGS, amounts, strict=True)
                ]
                count = sum(row["count"] for row in content["Total"].values()) + 1
                total = [{"name": "total", "tag": tag, "amount": sum(amounts), "count": count}]
                based_on = next((str(row["tag"]) for row in content["Setting"].values()), "")
                return [_write("Setting", "overwrite", settings), _write("Total", "overwrite", total)], based_on

            if self._write_after_reading(tag, writes) in ("ack", "unknown"):
                return

    def replace_places(self) -> None:
        """Replaces the places that people may be moving to at the same time, sometimes with the edges themselves."""
        tag = self._tag()
        used = {str(row["dst"]) for row in self._content["LivesAt"].values()}
        kept = used | {name for name in self._content["Place"] if self._random.random() < 0.5}
        with_edges = self._random.random() < 0.2
        names = [*(sorted(kept)[:6] if with_edges else sorted(kept)), f"place-{tag}"]
        writes = [_write("Place", "overwrite", [{"name": name, "tag": tag} for name in names])]
        if with_edges:
            ends = [row for row in self._content["LivesAt"].values() if row["dst"] in names][:3]
            writes.append(
                _write(
                    "LivesAt",
                    "overwrite",
                    [
                        {"id": f"{tag}-home-{number}", "src": row["src"], "dst": row["dst"], "tag": tag}
                        for number, row in enumerate(ends)
                    ],
                )
            )
        self._write(tag, writes)

    def _people(self, tag: str, names: Iterable[str], mode: str, *, badges: bool = True) -> Writes:
        people = []
        for name in names:
            badge = self._random.randrange(BADGES) if badges and self._random.random() < 0.3 else None
            people.append({"name": name, "tag": tag, "amount": self._random.randint(-99, 99), "badge": badge})
        accounts = [{"name": row["name"], "tag": tag, "amount": -row["amount"]} for row in people]
        return [_write("Person", mode, people), _write("Account", mode, accounts)]

    def _edges(self, tag: str, names: list[str]) -> Writes:
        known = [*names, *self._random.sample(sorted(self._content["Person"]), min(3, len(self._content["Person"])))]
        knows = [
            {"id": f"{tag}-knows-{number}", "src": name, "dst": self._random.choice(known), "tag": tag}
            for number, name in enumerate(known[: self._random.randint(1, 3)])
        ]
        writes = [_write("Knows", "append", knows)]
        places = sorted(self._content["Place"])
        if places and self._random.random() < 0.6:
            home = {"src": self._random.choice(known), "dst": self._random.choice(places), "tag": tag}
            writes.append(_write("LivesAt", "append", [{"id": f"{tag}-home", **home}]))
        return writes

    def _hot(self) -> list[str]:
        return [
            f"{model.HOT}{number:02d}" for number in self._random.sample(range(HOT_KEYS), self._random.randint(1, 2))
        ]

    def _tag(self) -> str:
        self.done += 1
        return f"{self._slot}-{self.done:03d}"

    def _send_again(self, entry: dict[str, Any]) -> None:
        for _ in range(TRIES):
            if self._write(entry["tag"], entry["writes"], tuple(entry["txn"])) == "ack":
                return

    def _write(self, tag: str, writes: Writes, transaction: tuple[str, int] | None = None) -> str:
        self._intend(tag, writes=writes, txn=transaction)
        return self._attempt(tag, lambda: writes, transaction)

    def _write_after_reading(self, tag: str, decide: Callable[[], tuple[Writes, str]]) -> str:
        """What is read after the transaction began is what the transaction replaces, or it conflicts."""

        def writes() -> Writes:
            decided, based_on = decide()
            self._intend(tag, writes=decided, based_on=based_on)
            return decided

        return self._attempt(tag, writes, None)

    def _attempt(self, tag: str, writes: Callable[[], Writes], transaction: tuple[str, int] | None) -> str:
        app_id, version = transaction or (None, None)
        try:
            with self._graph.transaction(
                self.branch, actor=self._slot, message=tag, txn_app_id=app_id, txn_version=version
            ) as running:
                for write in writes():
                    running.load(write["type"], _arrow(write["rows"]), write["mode"])
        except OmnigraphError as error:
            return self._refused(tag, error)
        receipt = running.receipt
        assert receipt is not None
        assert receipt.commit is not None
        self._journal.note(
            "ack",
            tag=tag,
            commit=receipt.commit.commit_id,
            txn=transaction,
            replayed=receipt.replayed,
            attempts=receipt.attempts,
            seconds={phase: round(spent, 3) for phase, spent in receipt.seconds.items()},
        )
        return "ack"

    def _intend(self, tag: str, **what: Any) -> None:
        intent = {"branch": self.branch, "writes": [], "txn": None, "based_on": None, "merge": None, **what}
        self._journal.note("intent", tag=tag, **intent)

    def _refused(self, tag: str, error: OmnigraphError, **more: Any) -> str:
        event = "unknown" if isinstance(error, OutcomeUnknown) else "failed"
        self._journal.note(event, **{"tag": tag, "branch": self.branch, "code": error.code, "text": str(error), **more})
        return event


def _write(type_name: str, mode: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": type_name, "mode": mode, "rows": rows}


def _arrow(rows: list[dict[str, Any]]) -> pa.Table:
    names = list(rows[0]) if rows else ["id", "src", "dst", "tag"]
    return pa.table({name: pa.array([row[name] for row in rows], _TYPES.get(name, pa.string())) for name in names})


def _injecting(journal: Journal) -> failpoints.Handler:
    """The faults of the environment, each noted when it strikes."""
    faults = failpoints.faults(os.environ.get(failpoints.ENVIRONMENT_VARIABLE, ""))

    def handle(point: failpoints.Failpoint, moment: failpoints.Moment) -> None:
        try:
            faults(point, moment)
        except OmnigraphError:
            journal.note("injected", effect=f"{point.value}:{moment.value}")
            raise

    return handle


def main(kind: type[Writer] = Writer) -> None:
    uri, path, seed, slot, operations, lease = sys.argv[1:]
    logging.disable(logging.WARNING)
    if PLANTED_VARIABLE in os.environ:
        sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "crash"))
        importlib.import_module("planted").plant(os.environ[PLANTED_VARIABLE])
    journal = Journal(path)
    with failpoints.installed(_injecting(journal)):
        journal.note("started", pid=os.getpid())
        while True:
            try:
                graph = Graph.open(uri, options=WriteOptions(lease=float(lease)))
                break
            except OmnigraphError as error:
                if error.code not in oracle.STORE_FAILURES:
                    raise
                journal.note("open failed", code=error.code, text=str(error))
        kind(graph, journal, f"{seed}-{slot}-{len(journal.entries)}", slot).run(int(operations))
        journal.note("finished")


if __name__ == "__main__":
    main()
