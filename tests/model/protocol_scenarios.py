"""Who writes what, and what goes wrong: small worlds that can be explored to the last state."""

from __future__ import annotations

from protocol import Model
from protocol_state import BRANCH, Write

_A, _B = (0, 1), (1, 1)  # a table and the length of the chain that goes to it
_CHAIN_A = (0, 2)

_ONLY_A, _BOTH = Write((_A,)), Write((_A, _B))
_ONLY_B = Write((_B,))
_A_BY_B, _B_BY_A = Write((_A,), reads=(1,)), Write((_B,), reads=(0,))
_CHAINED, _CHAINED_BOTH = Write((_CHAIN_A,)), Write((_CHAIN_A, _B))
_FORK_A, _FORK_BOTH = Write((_A,), branch=BRANCH), Write((_A, _B), branch=BRANCH)
_FORK_CHAINED = Write((_CHAIN_A,), branch=BRANCH)

SCENARIOS: dict[str, Model] = {
    "one writer that may die or be misled": Model((_BOTH,), crashes=1, errors=1, renewals=1, attempts=2),
    "one writer and an effect that comes late": Model((_BOTH,), crashes=1, stragglers=1),
    "one writer and two recoverers": Model((_BOTH,), recoverers=2, crashes=1, errors=1),
    "two writers on the same tables": Model((_BOTH, _BOTH)),
    "two writers on one table": Model((_ONLY_A, _ONLY_A), tables=1, crashes=1),
    "two writers that read what the other writes": Model((_A_BY_B, _B_BY_A)),
    "a chain of commits": Model((_CHAINED_BOTH,), crashes=1, errors=1, attempts=2),
    "a fork of two tables": Model((_FORK_BOTH,), crashes=1, errors=1, attempts=2),
    "a fork and an effect that comes late": Model((_FORK_BOTH,), crashes=1, stragglers=1),
    "a fork of a table that main writes": Model((_FORK_A, _ONLY_A), tables=1, crashes=1),
    "two forks of one table": Model((_FORK_CHAINED, _FORK_A), tables=1, crashes=1),
}

DEEP_SCENARIOS: dict[str, Model] = {
    "two writers on one table, one dies, one is misled": Model((_ONLY_A, _ONLY_A), tables=1, crashes=1, errors=1),
    "two writers on one table and an effect that comes late": Model((_ONLY_A, _ONLY_A), tables=1, stragglers=1),
    "two writers on the same tables, one dies": Model((_BOTH, _BOTH), crashes=1),
    "two writers on the same tables, one is misled": Model((_BOTH, _BOTH), errors=1),
    "two writers that share their first table": Model((_BOTH, _ONLY_A), errors=1),
    "two writers that share their last table": Model((_BOTH, _ONLY_B), crashes=1, errors=1),
    "two recoverers and an effect that comes late": Model((_BOTH,), recoverers=2, stragglers=1),
    "two readers of the other's table, one dies": Model((_A_BY_B, _B_BY_A), crashes=1),
    "two readers of the other's table, one is misled": Model((_A_BY_B, _B_BY_A), errors=1),
    "a chain and a single commit on one table": Model((_CHAINED, _ONLY_A), tables=1, crashes=1, errors=1),
    "a chain before a table that another writes": Model((_CHAINED_BOTH, _ONLY_B), crashes=1),
    "two forks of one table, one dies, one is misled": Model((_FORK_A, _FORK_A), tables=1, crashes=1, errors=1),
    "two forks of one table, each tried twice": Model((_FORK_A, _FORK_A), tables=1, attempts=2),
    "two forks of two tables": Model((_FORK_BOTH, _FORK_BOTH), crashes=1),
}
