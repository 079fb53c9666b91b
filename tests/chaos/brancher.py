"""One brancher of a chaos run: ``python brancher.py GRAPH JOURNAL SEED SLOT OPERATIONS LEASE``.

It makes a branch, or takes one that is there, writes to it as a writer does to main, merges main and the other branches into it
and it into main, and mostly deletes it. Branchers share a few names, so that they meet on a branch, merge and delete it under
each other's hands and give its name one life after another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from content import Violation, digest
from omnigraph_engine.errors import OmnigraphError
from omnigraph_engine.manifest.rows import MAIN
from writer import Writer, content_of, main, seen

NAMES = ("blue", "team/green")
LOOKS = 5  # at a branch that others keep writing to


class Brancher(Writer):
    def run(self, operations: int) -> None:
        while self.done < operations:
            self.branch = self._random.choice(NAMES)
            self._step("create", lambda: self._graph.branches.create(self.branch))
            for _ in range(self._random.randint(1, 3)):
                self.read()
                self._random.choices(
                    [
                        self.insert,
                        self.insert_hot,
                        self.merge,
                        self.replace_settings,
                        self.replace_places,
                        self.update,
                        self.exchange,
                    ],
                    [4, 2, 4, 2, 2, 3, 3],
                )[0]()
            self.read()
            if self._random.random() < 0.6:
                self.publish()
            self.read()
            if self._random.random() < 0.6:
                self._step("delete", lambda: self._graph.branches.delete(self.branch))

    def update(self) -> None:
        """Merges what main has into the branch."""
        self._merge_branch(MAIN, self.branch)

    def exchange(self) -> None:
        """Merges what another branch has into the branch, if there is that other one."""
        other = self._random.choice([name for name in NAMES if name != self.branch])
        self._merge_branch(other, self.branch, delete_branch=self._random.random() < 0.2)

    def publish(self) -> None:
        """Merges what the branch has into main."""
        self._merge_branch(self.branch, MAIN, delete_branch=self._random.random() < 0.4)

    def _merge_branch(self, source: str, into: str, *, delete_branch: bool = False) -> None:
        tag = self._tag()
        on_conflict = self._random.choices(["fail", "ours", "theirs"], [2, 2, 3])[0]
        merge = {"source": source, "on_conflict": on_conflict, "delete_branch": delete_branch}
        self._intend(tag, branch=into, merge=merge)
        try:
            merged = self._graph.merge(
                source, into, actor=self._slot, message=tag, on_conflict=on_conflict, delete_branch=delete_branch
            )
        except OmnigraphError as error:
            went_by = {name: error.details.get(name) for name in ("base", "source", "target")}
            self._refused(tag, error, branch=into, details=went_by)
            return
        self._journal.note(
            "ack",
            tag=tag,
            commit=None if merged.commit is None else merged.commit.commit_id,
            outcome=merged.outcome.value,
            base=merged.base_commit,
            source=merged.source_commit,
            txn=None,
            replayed=False,
        )

    def read(self) -> None:
        """Reads the whole branch, if it is there, and notes which commits it shows; the oracle replays them."""
        for _ in range(LOOKS):
            life = self._life()
            if life is None:
                return
            try:
                snapshot = self._graph.snapshot(branch=self.branch)
                commits = self._graph.commits.list(self.branch)
                content = content_of(snapshot)
            except (OmnigraphError, Violation) as error:
                if self._life() == life:
                    self._journal.note("violation", text=f"{self.branch} ({life}) cannot be read: {error}")
                    raise
                return  # it was deleted while we read
            if self._life() != life or commits[0] != snapshot.commit:
                continue
            self._content = content
            self._journal.note(
                "branch read",
                branch=self.branch,
                life=life,
                commits=[asdict(seen(commit)) for commit in reversed(commits)],
                digest=digest(content),
            )
            return

    def _life(self) -> str | None:
        return next((info.life for info in self._graph.branches.list() if info.name == self.branch), None)

    def _step(self, verb: str, act: Callable[[], object]) -> None:
        self._journal.note("branch step", verb=verb, branch=self.branch)
        try:
            act()
        except OmnigraphError as error:
            self._journal.note("branch failed", verb=verb, branch=self.branch, code=error.code, text=str(error))


if __name__ == "__main__":
    main(Brancher)
