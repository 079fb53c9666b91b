"""One brancher of a chaos run: ``python brancher.py GRAPH JOURNAL SEED SLOT OPERATIONS LEASE``.

It makes a branch, or takes one that is there, writes to it as a writer does to main, and mostly deletes it. Branchers share a
few names, so that they meet on a branch, delete it under each other's hands and give its name one life after another.
"""

from __future__ import annotations

from collections.abc import Callable

import oracle
from omnigraph_engine.errors import OmnigraphError
from writer import Writer, content_of, main

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
                    [self.insert, self.insert_hot, self.merge, self.replace_settings, self.replace_places],
                    [4, 2, 4, 2, 2],
                )[0]()
            self.read()
            # A merge into main belongs here: its commit stands on main with the branch's tags, which the oracle, that now
            # takes any tag of a branch on main for a violation, must then allow.
            if self._random.random() < 0.7:
                self._step("delete", lambda: self._graph.branches.delete(self.branch))

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
            except (OmnigraphError, oracle.Violation) as error:
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
                commits=[commit.commit_id for commit in reversed(commits)],
                tags=[
                    commit.extra["message"]
                    for commit in reversed(commits)
                    if "message" in commit.extra and commit.actor != oracle.RECOVERY_ACTOR
                ],
                digest=oracle.digest(content),
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
