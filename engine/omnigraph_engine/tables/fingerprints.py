"""Sixty-four bits for a text: equal texts have equal fingerprints, and different texts rarely do.

They are for dealing keys into buckets and for finding the few keys that may be equal; whether keys are equal is always
decided by the keys themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Fingerprints = npt.NDArray[np.uint64]

_WORDS = 32  # how many words of eight bytes are looked at from the start; longer texts differ early, at their end or in length
_MOST_MARKS = 24  # bits; the marks of a set take sixteen megabytes at most
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_MASKS = np.array([2 ** (8 * size) - 1 for size in range(9)], np.uint64)  # the bytes of a word that belong to the text


def fingerprints(texts: pa.Array[Any]) -> Fingerprints:
    """The fingerprint of each text; none may be null."""
    large = texts.cast(pa.large_string())
    buffers: list[Any] = large.buffers()
    offsets = np.frombuffer(buffers[1], np.int64, len(large) + 1 + large.offset)[large.offset :]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, np.uint8)  # a word may begin at the last byte
    if last > first:
        data[:-8] = np.frombuffer(buffers[2], np.uint8, last)[first:]
    words: Fingerprints = np.ndarray((last - first + 1,), "<u8", data, strides=(1,))  # eight bytes from every byte on
    starts, ends, lengths = offsets[:-1] - first, offsets[1:] - first, np.diff(offsets)
    found = _mixed(lengths.astype(np.uint64) * _FIRST)
    longest = int(lengths.max(initial=0))
    for number in range(min(_WORDS, -(-longest // 8))):
        left = lengths - 8 * number
        if left.min(initial=1) > 0:
            word = words[starts + 8 * number] & _MASKS[np.minimum(left, 8)]
            found = _mixed((found ^ word) * _FIRST)
            continue
        rows = np.flatnonzero(left > 0)
        word = words[starts[rows] + 8 * number] & _MASKS[np.minimum(left[rows], 8)]
        found[rows] = _mixed((found[rows] ^ word) * _FIRST)
    if longest > 8 * _WORDS:
        rows = np.flatnonzero(lengths > 8 * _WORDS)
        found[rows] = _mixed((found[rows] ^ words[ends[rows] - 8]) * _FIRST)
    return found


class FingerprintSet:
    """Sorted fingerprints in which others are looked up, most of them absent: a mark for their leading bits tells nearly all."""

    def __init__(self, sorted_fingerprints: Fingerprints) -> None:
        self._sorted = sorted_fingerprints
        bits = min(len(sorted_fingerprints).bit_length() + 4, _MOST_MARKS)
        self._shift = np.uint64(64 - bits)
        self._marks = np.zeros(2**bits, np.bool_)
        self._marks[sorted_fingerprints >> self._shift] = True

    def contains(self, wanted: Fingerprints) -> npt.NDArray[np.bool_]:
        """Which of ``wanted`` are in the set."""
        found = np.zeros(len(wanted), np.bool_)
        marked = np.flatnonzero(self._marks[wanted >> self._shift])
        if len(marked):
            # Neighbours are looked up one after the other, which memory likes.
            marked = marked[np.argsort(wanted[marked])]
            places = np.searchsorted(self._sorted, wanted[marked])
            found[marked] = self._sorted[np.minimum(places, len(self._sorted) - 1)] == wanted[marked]
        return found


def _mixed(values: Fingerprints) -> Fingerprints:
    values = values ^ (values >> np.uint64(32))
    values = values * _SECOND
    mixed: Fingerprints = values ^ (values >> np.uint64(29))
    return mixed
