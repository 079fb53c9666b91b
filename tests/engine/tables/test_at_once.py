"""Several things at a time: the results come in order, and errors arrive."""

from __future__ import annotations

import os
import signal
from threading import Barrier

import pytest
from omnigraph_engine.tables.at_once import AT_A_TIME, at_once


def test_results_come_in_the_order_of_their_items() -> None:
    together = Barrier(AT_A_TIME)  # passed only when all of them are under way

    def doubled(number: int) -> int:
        together.wait(timeout=30)
        return 2 * number

    assert at_once(doubled, range(AT_A_TIME)) == [2 * number for number in range(AT_A_TIME)]
    assert at_once(str, []) == []
    assert at_once(str, [1]) == ["1"]


def test_an_error_of_one_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        at_once(lambda number: 1 / number, [1, 0, 2])


@pytest.mark.filterwarnings("ignore:lance is not fork-safe", "ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    assert at_once(str, range(3)) == ["0", "1", "2"]
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # should it wait for threads that are not there
        os._exit(0 if at_once(str, range(3)) == ["0", "1", "2"] else 1)
    assert os.waitpid(child, 0)[1] == 0
