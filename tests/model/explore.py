"""Explores every state that a model of the commit protocol can reach, breadth first, and shows the way to a broken one.

python tests/model/explore.py                   the scenarios that the tests explore
python tests/model/explore.py --deep            the larger ones too; minutes, and some gigabytes of memory
python tests/model/explore.py --fault no-fence  each scenario with a mistake planted into the protocol
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from protocol import Fault, Model
from protocol_invariants import Invariants
from protocol_scenarios import DEEP_SCENARIOS, SCENARIOS
from protocol_state import Label, State


@dataclass(frozen=True)
class Violation:
    """What is wrong, and the shortest way there."""

    message: str
    labels: tuple[Label, ...]
    states: tuple[State, ...]

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {number:3} {label}" for number, label in enumerate(self.labels, 1))])


@dataclass(frozen=True)
class Exploration:
    states: int
    rests: int  # states in which nobody can move
    steps: frozenset[str]  # that somebody took
    violation: Violation | None


def explore(model: Model) -> Exploration:
    """Every reachable state holds the invariants, and from every one the world can still come to rest; or a violation."""
    collecting = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and looking for cycles among millions of tuples takes longer than exploring
    try:
        return _Explorer(model).run()
    finally:
        if collecting:
            gc.enable()


class _Explorer:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._invariants = Invariants(model)
        self._states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._origins: list[tuple[int, Label | None]] = []
        self._before: list[list[int]] = []  # from which states each state is reached
        self._rests: list[int] = []

    def run(self) -> Exploration:
        self._number(self._model.initial(), 0, None)
        todo = deque([0])
        while todo:
            number = todo.popleft()
            state = self._states[number]
            message = self._invariants.violation(state)
            known = len(self._states)
            if message is None and not self._expand(number, state):
                message = self._invariants.at_rest(state)
                self._rests.append(number)
            if message is not None:
                return self._exploration(self._violation(message, number))
            todo.extend(range(known, len(self._states)))
        restless = self._restless()
        violation = None if restless is None else self._violation("this can never come to rest", restless)
        return self._exploration(violation)

    def _exploration(self, violation: Violation | None) -> Exploration:
        steps = frozenset(label.step for _, label in self._origins if label is not None)
        return Exploration(len(self._states), len(self._rests), steps, violation)

    def _number(self, state: State, origin: int, label: Label | None) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._origins.append((origin, label))
            self._before.append([])
        return number

    def _expand(self, number: int, state: State) -> bool:
        moved = False
        for label, after in self._model.moves(state):
            self._before[self._number(after, number, label)].append(number)
            moved = True
        return moved

    def _restless(self) -> int | None:
        """The first state from which no state of rest can be reached."""
        restful = bytearray(len(self._states))
        todo = list(self._rests)
        for number in todo:
            restful[number] = 1
        while todo:
            for before in self._before[todo.pop()]:
                if not restful[before]:
                    restful[before] = 1
                    todo.append(before)
        first = restful.find(0)
        return None if first < 0 else first

    def _violation(self, message: str, number: int) -> Violation:
        labels: list[Label] = []
        states = [self._states[number]]
        while True:
            number, label = self._origins[number]
            if label is None:
                break
            labels.append(label)
            states.append(self._states[number])
        return Violation(message, tuple(reversed(labels)), tuple(reversed(states)))


def _report(scenarios: Iterable[tuple[str, Model]], fault: Fault | None) -> bool:
    found = False
    for name, model in scenarios:
        started = time.perf_counter()
        result = explore(replace(model, fault=fault))
        seconds = time.perf_counter() - started
        outcome = "no violation" if result.violation is None else str(result.violation)
        sys.stdout.write(f"{name}: {result.states} states, {result.rests} at rest, {seconds:.1f} s, {outcome}\n")
        sys.stdout.flush()
        found = found or result.violation is not None
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Explore the commit protocol.")
    parser.add_argument("--deep", action="store_true", help="explore the larger scenarios too")
    parser.add_argument("--fault", choices=[fault.value for fault in Fault], help="plant a mistake")
    parser.add_argument("--only", help="scenarios whose name contains this")
    arguments = parser.parse_args()
    fault = None if arguments.fault is None else Fault(arguments.fault)
    scenarios = {**SCENARIOS, **(DEEP_SCENARIOS if arguments.deep else {})}
    chosen = [(name, model) for name, model in scenarios.items() if (arguments.only or "") in name]
    found = _report(chosen, fault)
    return 0 if found == (fault is not None) else 1


if __name__ == "__main__":
    sys.exit(main())
