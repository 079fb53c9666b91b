"""What must be true in every state of the protocol, and what must be true once nobody has anything left to do."""

from __future__ import annotations

from collections.abc import Iterator

from protocol import HALTED, Model
from protocol_state import BRANCH, MAIN, TRUNK, LineName, State, content_at, line_of, step_bit, visible_content


class Invariants:
    """Finds what is wrong with a state of one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        branches = {write.branch for write in model.writers}
        self._branches = sorted(branches | {MAIN})
        self._operations = {
            branch: sum(1 << op for op in range(model.operations) if model.write_of(op).branch == branch)
            for branch in (MAIN, BRANCH)
        }
        self._bits_of_branch = sum(
            step_bit(op, step)
            for op in range(model.operations)
            if model.write_of(op).branch == BRANCH
            for step in (0, 1)
        )
        self._contents: dict[tuple[int, int], int] = {}

    def violation(self, state: State) -> str | None:
        """The first rule that the state breaks, in words, or None."""
        return next(self._violations(state), None)

    def at_rest(self, state: State) -> str | None:
        """What is wrong with a state in which nobody can move."""
        if HALTED in state.processes:
            return "recovery took a sound graph for a damaged one"
        if state.armed | state.owned:
            return "nobody can move and sidecars are left"
        for branch in self._branches:
            for table, pin in self._own_pins(state, branch):
                line = line_of(state, (table, pin[0]))
                if line is None or line.head != pin[1]:
                    return f"at rest, HEAD of table {table} is not what branch {branch} pins"
        return None

    def _violations(self, state: State) -> Iterator[str]:
        for branch in self._branches:
            yield from self._of_manifest(state, branch)
            yield from self._unowned(state, branch)
        commits = state.manifests[MAIN].commits | state.manifests[BRANCH].commits
        if state.acknowledged & ~commits:
            yield f"acknowledged but not committed: {_names(state.acknowledged & ~commits)}"
        if state.failed & commits:
            yield f"reported failed but visible: {_names(state.failed & commits)}"
        if self._bits_of_branch:
            yield from self._on_main(state)

    def _of_manifest(self, state: State, branch: int) -> Iterator[str]:
        manifest = state.manifests[branch]
        for table in range(self._model.tables):
            content = visible_content(state, branch, table)
            if content is None:
                yield f"branch {branch} pins a version of table {table} that is not there"
            elif content != self._committed_content(manifest.commits, table):
                yield f"readers of branch {branch} see part of a commit, or too much, in table {table}"
        if manifest.commits & (manifest.undoing | manifest.undone):
            yield "an operation is both committed and aborted"
        if manifest.commits & ~self._operations[branch]:
            yield f"branch {branch} has a commit of another branch"
        if manifest.committed_twice:
            yield f"committed twice: {_names(manifest.committed_twice)}"
        if manifest.committed_stale:
            yield f"published on a table that had changed since it was read: {_names(manifest.committed_stale)}"

    def _committed_content(self, commits: int, table: int) -> int:
        if (commits, table) not in self._contents:
            model = self._model
            self._contents[commits, table] = sum(
                step_bit(op, step)
                for op in range(model.operations)
                if commits >> op & 1
                for written, steps in model.write_of(op).tables
                if written == table
                for step in range(steps)
            )
        return self._contents[commits, table]

    def _unowned(self, state: State, branch: int) -> Iterator[str]:
        for table, pin in self._own_pins(state, branch):
            line = line_of(state, (table, pin[0]))
            if line is not None and line.head != pin[1] and not self._owned(state, line.name):
                yield f"HEAD of table {table} is not what branch {branch} pins, and no sidecar owns it"

    def _own_pins(self, state: State, branch: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """The pins that say where a line's HEAD is. A branch also pins versions of main's lines, which go on without it."""
        for table, pin in enumerate(state.manifests[branch].pins):
            if branch == MAIN or pin.owner != TRUNK:
                yield table, pin

    def _owned(self, state: State, name: LineName) -> bool:
        sidecars = state.armed | state.owned
        for op, capture in enumerate(state.captures):
            if sidecars >> op & 1 and capture is not None and any(intent.line == name for intent in capture.intents):
                return True
        return False

    def _on_main(self, state: State) -> Iterator[str]:
        for line in state.lines:
            if line.name[1] == TRUNK and line.versions[-1].content & self._bits_of_branch:
                yield f"an operation of the branch wrote to main's line of table {line.name[0]}"
        for table, pin in enumerate(state.manifests[MAIN].pins):
            if (content_at(state, table, pin) or 0) & self._bits_of_branch:
                yield f"main shows what an operation of the branch wrote to table {table}"


def _names(operations: int) -> str:
    return ", ".join(f"operation {op}" for op in range(operations.bit_length()) if operations >> op & 1)
