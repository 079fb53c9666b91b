"""Doing several things at a time that mostly wait for the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

AT_A_TIME = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def at_once(act: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """What ``act`` makes of each item, in their order. It must not call this itself: it would wait for its own thread."""
    todo = list(items)
    if len(todo) < 2:
        return list(map(act, todo))
    return list(_threads().map(act, todo))


@cache
def _threads() -> ThreadPoolExecutor:
    """Kept, because starting a thread takes as long as reading a small object from a disk."""
    return ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="omnigraph")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of its parent's threads
