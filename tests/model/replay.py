"""Replays random paths of the model against the real commit path, one step at a time, and compares what is true after each.

python tests/model/replay.py --paths 500 --seed 1
python tests/model/replay.py --only chain         the scenarios whose name contains this

Every process of the model is a thread that waits at a gate before each of its steps, reads included, so a path is followed in
exactly the model's order. After every step the graph in storage, what each operation has told its caller, and the gate that each
process stands at must be what the model says. Which paths there are is a matter of the seed alone.

What the model has and the engine not yet, writes to a branch, is not replayed. What the engine has and the model not, the audit
trail and the folding of the manifest, happens unseen between two gates.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import replay_gates
from protocol import Fault, Model, random_path
from protocol_scenarios import DEEP_SCENARIOS, SCENARIOS
from protocol_state import MAIN, Label, State
from replay_gates import Order
from replay_world import View, World, view_of_model

REPLAYED: dict[str, Model] = {
    name: model
    for name, model in {**SCENARIOS, **DEEP_SCENARIOS}.items()
    if all(write.branch == MAIN for write in model.writers)
}
LONGEST = 400  # steps; a path that takes longer is followed so far

_ORDERS = {
    "read": Order.GO,
    "done": Order.GO,
    "refused": Order.GO,
    "dies": Order.DIE,
    "answer lost": Order.LOSE,
    "fails": Order.FAIL,
    "straggles": Order.STRAGGLE,
}


class Difference(AssertionError):
    """The engine did something else than the model."""


@dataclass(frozen=True)
class Walk:
    """One path of one scenario."""

    scenario: str
    model: Model
    seed: int
    labels: Sequence[Label]
    states: Sequence[State]

    def __str__(self) -> str:
        return f"{self.scenario}, seed {self.seed}"


def walk_of(scenario: str, seed: int, fault: Fault | None = None) -> Walk:
    """A random path of the scenario, the same for the same seed."""
    model = replace(REPLAYED[scenario], fault=fault)
    labels, states = random_path(model, random.Random(seed), LONGEST, _weight)  # noqa: S311 - a path, not a secret
    return Walk(scenario, model, seed, labels, states)


def walks(paths: int, seed: int, only: str = "") -> Iterator[Walk]:
    """So many random paths, the scenarios in turn."""
    names = [name for name in REPLAYED if only in name]
    for number in range(paths):
        yield walk_of(names[number % len(names)], seed * 1_000_000 + number)


def _weight(label: Label) -> float:
    """How often a move is taken: misfortune comes late, and a recoverer not at once, so that there is more to recover."""
    unhurried = label.step == "idle" or _ORDERS.get(label.outcome, Order.GO) is not Order.GO
    return 0.2 if unhurried else 1.0


def replay(walk: Walk, root: Path) -> None:
    """Follows the path on a new graph below ``root``.

    Raises:
        Difference: something was not as the model says; the message shows the path so far and both views.
    """
    with replay_gates.installed():
        world = World(walk.model, root)
        world.start()
        try:
            _compare(walk, 0, world)
            for number, (label, after) in enumerate(zip(walk.labels, walk.states[1:], strict=True), 1):
                _move(walk.model, world, label, after)
                _compare(walk, number, world)
        finally:
            world.stop()


def _move(model: Model, world: World, label: Label, after: State) -> None:
    if label.actor == "store":
        late = world.in_flight.pop(label.number)
        if label.outcome == "arrives":
            late()
        return
    me = label.number if label.actor == "writer" else len(model.writers) + label.number
    op = after.processes[me].op
    if label.step == "renew":
        world.renew(op)
    else:
        world.actors[me].release(_ORDERS[label.outcome], op)


def _compare(walk: Walk, number: int, world: World) -> None:
    expected, found = view_of_model(walk.states[number]), world.view()
    # A writer that has failed and may not try anew has ended in the model; here it stands before an attempt it never makes.
    gates = (
        None if gate == "barrier" and end is None else gate
        for gate, end in zip(found.gates, expected.gates, strict=True)
    )
    found = replace(found, gates=tuple(gates))
    if found != expected:
        raise Difference(_difference(walk, number, expected, found))


def _difference(walk: Walk, number: int, expected: View, found: View) -> str:
    lines = [f"the engine differs from the model after step {number}"]
    lines += [f"  {count:3} {label}" for count, label in enumerate(walk.labels[:number], 1)]
    for field in fields(View):
        model, engine = getattr(expected, field.name), getattr(found, field.name)
        lines.append(
            f"  {field.name}: {model}" if model == engine else f"! {field.name}: model {model}, engine {engine}"
        )
    return "\n".join([*lines, f"  the model's state: {walk.states[number]}"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay paths of the model against the engine.")
    parser.add_argument("--paths", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # recoveries are reported as warnings, and here they are the rule
    started, different = time.perf_counter(), 0
    taken: Counter[str] = Counter()
    for walk in walks(arguments.paths, arguments.seed, arguments.only):
        with tempfile.TemporaryDirectory() as folder:
            try:
                replay(walk, Path(folder))
            except AssertionError as difference:
                different += 1
                sys.stdout.write(f"{walk}: {difference}\n\n")
                sys.stdout.flush()
        taken.update(f"{label.step}, {label.outcome}" for label in walk.labels)
    sys.stdout.writelines(f"{count:7} {step}\n" for step, count in sorted(taken.items()))
    seconds = time.perf_counter() - started
    sys.stdout.write(
        f"{arguments.paths} paths, {sum(taken.values())} steps, {different} paths with differences, {seconds:.0f} s\n"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
