"""A quick look at rules between rows, by numbers alone: it proves that all is well, or asks for a look at the values.

Looking at values of every key takes several times as long. What the quick look finds is one-sided. Ids whose fingerprints are all
different are different. An endpoint is taken for known only when a node has the same digest; a node with another id has it
once in 2**64 times at the most, because half of a digest is keyed at random for this one look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from omnigraph_engine.compute import pc
from omnigraph_engine.tables.fingerprints import Digester, FingerprintSet, fingerprints
from omnigraph_engine.tables.numbers import Numbers, holds

Keys = Iterable[pa.RecordBatch]  # the first column is the key


def all_new(incoming: Keys, stored: Keys, *, rows: int) -> bool:
    """Proves that the incoming keys are distinct and none of them is stored. False proves nothing.

    Args:
        incoming: The keys in question.
        stored: The keys that there are.
        rows: How many keys come in.
    """
    return holds(_all_new, [_fingerprints(incoming)], _fingerprints(stored), columns=1, rows=rows)


def all_known(incoming: Sequence[Keys], stored: Keys, *, rows: int) -> bool:
    """Proves that all incoming keys are stored, of whichever stream they are. False proves nothing."""
    digester = Digester()
    return holds(
        _all_known, [_digests(keys, digester) for keys in incoming], _digests(stored, digester), columns=2, rows=rows
    )


def _all_new(given: Numbers, existing: Iterable[Numbers]) -> bool:
    found = np.sort(given[0])
    if (found[1:] == found[:-1]).any():
        return False
    known = FingerprintSet(found)
    return not any(known.contains(numbers[0]).any() for numbers in existing)


def _all_known(given: Numbers, existing: Iterable[Numbers]) -> bool:
    found, checks = given
    encoded = pa.array(found).dictionary_encode()
    places = encoded.indices.to_numpy()
    check_of = np.empty(len(encoded.dictionary), np.uint64)
    check_of[places] = checks
    if (check_of[places] != checks).any():  # two keys with one fingerprint: only their values can tell them apart
        return False
    known = np.zeros(len(check_of), np.bool_)
    for others, other_checks in existing:
        met = pc.index_in(pa.array(others), value_set=encoded.dictionary)
        place, check = met.drop_null().to_numpy(), other_checks[met.is_valid().to_numpy(zero_copy_only=False)]
        known[place[check_of[place] == check]] = True
    return bool(known.all())


def _fingerprints(keys: Keys) -> Iterator[Numbers]:
    for batch in keys:
        yield (fingerprints(batch.column(0)),)


def _digests(keys: Keys, digester: Digester) -> Iterator[Numbers]:
    for batch in keys:
        yield digester(batch.column(0))
