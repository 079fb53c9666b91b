"""A quick look at rules between rows, by numbers alone: it proves that all is well, or asks for a look at the values.

Looking at values of every key takes several times as long. What the quick look finds is one-sided. Ids whose fingerprints are all
different are different. An endpoint is taken for known only when a node has the same digest; a node with another id has it
once in 2**64 times at the most, because half of a digest is keyed at random for this one look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph_engine.tables.fingerprints import Digester, FingerprintSet, fingerprints
from omnigraph_engine.tables.numbers import Numbers, holds

# Each table puts fingerprints by other bits of theirs. One in nine is lost to the next table, so the last ones are empty.
_FACTORS = np.array([0x9E3779B97F4A7C15 * 3**power % 2**64 for power in range(12)], np.uint64)

Keys = Iterable[pa.RecordBatch]  # the first column is the key


def all_new(incoming: Sequence[Keys], stored: Sequence[Keys], *, rows: int) -> bool:
    """Proves that the incoming keys are distinct and none of them is stored. False proves nothing.

    Args:
        incoming: Streams of the keys in question, which are read side by side.
        stored: Streams of the keys that there are.
        rows: How many keys come in.
    """
    return holds(_all_new, list(map(_fingerprints, incoming)), list(map(_fingerprints, stored)), columns=1, rows=rows)


def all_known(incoming: Sequence[Keys], stored: Sequence[Keys], *, rows: int) -> bool:
    """Proves that all incoming keys are stored. False proves nothing. The arguments are those of ``all_new``."""
    digests = partial(_digests, digester=Digester())
    return holds(_all_known, list(map(digests, incoming)), list(map(digests, stored)), columns=2, rows=rows)


def _all_new(given: Numbers, existing: Iterable[Numbers]) -> bool:
    found = np.sort(given[0])
    if (found[1:] == found[:-1]).any():
        return False
    known = FingerprintSet(found)
    return not any(known.contains(numbers[0]).any() for numbers in existing)


def _all_known(given: Numbers, existing: Iterable[Numbers]) -> bool:
    for known in existing:
        given = _strangers(given, known)
    return not len(given[0])


def _strangers(wanted: Numbers, known: Numbers) -> Numbers:
    """The wanted digests that are not found among the known ones; a few that are there may be among them.

    The known ones are put into a table, and those that lose their place in it to another one into the next table.
    """
    for factor in _FACTORS:
        if not len(wanted[0]) or not len(known[0]):
            break
        bits = (4 * len(known[0])).bit_length()
        shift = np.uint64(64 - bits)
        table, checks = np.zeros(2**bits, np.uint64), np.zeros(2**bits, np.uint64)
        places = known[0] * factor >> shift
        table[places], checks[places] = known
        lost = table[places] != known[0]
        known = [column[lost] for column in known]
        places = wanted[0] * factor >> shift
        strange = (table[places] != wanted[0]) | (checks[places] != wanted[1])
        wanted = [column[strange] for column in wanted]
    return wanted


def _fingerprints(keys: Keys) -> Iterator[Numbers]:
    for batch in keys:
        yield (fingerprints(batch.column(0)),)


def _digests(keys: Keys, *, digester: Digester) -> Iterator[Numbers]:
    for batch in keys:
        yield digester(batch.column(0))
