"""Who writes what, and what goes wrong: small worlds that can be explored to the last state."""

from __future__ import annotations

from protocol import Fault, Model
from protocol_state import BRANCH, Write

A, B = 0, 1  # tables
SINGLE_A, SINGLE_B = (A, 1), (B, 1)
CHAIN_A, CHAIN_B = (A, 2), (B, 2)

BOTH = Write((SINGLE_A, SINGLE_B))
ONLY_A = Write((SINGLE_A,))
ONLY_B = Write((SINGLE_B,))

SCENARIOS: dict[str, Model] = {
    "two writers on both tables": Model((BOTH, BOTH), errors=1),
    "one of two writers on both tables dies": Model((BOTH, BOTH), crashes=1),
    "writers overlap on one table": Model((BOTH, ONLY_B), crashes=1, errors=1),
    "two recoverers of one writer": Model((BOTH,), recoverers=2, crashes=1, errors=1),
    "retry after a conflict": Model((BOTH, ONLY_A), errors=1, attempts=2),
    "renewal after the undo": Model((BOTH,), crashes=1, errors=1, renewals=1, attempts=2),
    "chain": Model((Write((CHAIN_A, SINGLE_B)),), crashes=1, errors=1, attempts=2),
    "chain meets a single commit": Model((Write((CHAIN_A, SINGLE_B)), ONLY_B), crashes=1, errors=1),
    "write skew": Model((Write((SINGLE_A,), reads=(B,)), Write((SINGLE_B,), reads=(A,))), crashes=1, errors=1),
    "two forks of one table": Model(
        (Write((SINGLE_A,), branch=BRANCH), Write((SINGLE_A,), branch=BRANCH)), crashes=1, errors=1, tables=1
    ),
    "fork beside main": Model(
        (Write((SINGLE_A,), branch=BRANCH), ONLY_A), crashes=1, errors=1, tables=1
    ),
    "long and short fork": Model(
        (Write((CHAIN_A,), branch=BRANCH), Write((SINGLE_A,), branch=BRANCH)), crashes=1, tables=1, attempts=2
    ),
}

DEEP_SCENARIOS: dict[str, Model] = {
    "two writers on both tables, crash and error": Model((BOTH, BOTH), crashes=1, errors=1),
}

FAULT_SCENARIOS: dict[Fault, str] = {}
