"""Explores a small model breadth first, up to the first state that must not be; ``explore.py`` does more for the large one."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    def initial(self) -> S: ...

    def moves(self, state: S) -> Iterator[tuple[str, S]]: ...

    def violation(self, state: S) -> str | None: ...


@dataclass(frozen=True)
class Explored(Generic[S]):
    states: Collection[S]
    violation: str | None  # what is wrong, and the shortest way there


def explore(model: Model[S]) -> Explored[S]:
    """Every state that the model can reach."""
    origins: dict[S, tuple[S, str] | None] = {model.initial(): None}
    todo = deque(origins)
    while todo:
        state = todo.popleft()
        wrong = model.violation(state)
        if wrong is not None:
            return Explored(origins.keys(), "\n".join([wrong, *_way(origins, state)]))
        for label, after in model.moves(state):
            if after not in origins:
                origins[after] = (state, label)
                todo.append(after)
    return Explored(origins.keys(), None)


def _way(origins: dict[S, tuple[S, str] | None], state: S) -> list[str]:
    labels = []
    origin = origins[state]
    while origin is not None:
        state, label = origin
        labels.append(f"  {label}")
        origin = origins[state]
    return labels[::-1]
