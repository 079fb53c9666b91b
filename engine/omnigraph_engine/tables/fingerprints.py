"""Numbers for texts, by which keys are dealt into buckets and compared a first time.

A *fingerprint* is 64 bits, the same everywhere: equal texts have equal ones, and different texts rarely do. A *check* is 64
more, keyed at random by the ``Digester`` that makes them: whoever chose the texts, two that differ have the same check once in
2**64 times.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Fingerprints = npt.NDArray[np.uint64]

_WORDS = 32  # how many words of eight bytes are looked at from the start; longer texts differ early, at their end or in length
_MOST_MARKS = 24  # bits; the marks of a set take sixteen megabytes at most
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_MASKS = np.array([2 ** (8 * size) - 1 for size in range(9)], np.uint64)  # the bytes of a word that belong to the text
_LOWER, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


class Digests(NamedTuple):
    """For each text its fingerprint and its check."""

    fingerprints: Fingerprints
    checks: Fingerprints


def fingerprints(texts: pa.Array[Any]) -> Fingerprints:
    """The fingerprint of each text; none may be null."""
    return _fingerprints(_Texts(texts))


def _fingerprints(texts: _Texts) -> Fingerprints:
    found = _mixed(texts.lengths.astype(np.uint64) * _FIRST)
    for rows, word in texts.words:
        found[rows] = _mixed((found[rows] ^ word) * _FIRST)
    longer = np.flatnonzero(texts.lengths > 8 * _WORDS)
    if len(longer):
        found[longer] = _mixed((found[longer] ^ texts.last_words(longer)) * _FIRST)
    return found


class Digester:
    """Makes digests of texts; those of two digesters cannot be compared."""

    def __init__(self) -> None:
        self._secret = os.urandom(64)
        self._keys: Fingerprints = np.frombuffer(os.urandom(8 * 4 * (_WORDS + 1)), np.uint64).reshape(-1, 4)

    def __call__(self, texts: pa.Array[Any]) -> Digests:
        """The digest of each text; none may be null."""
        read = _Texts(texts)
        return Digests(_fingerprints(read), self._checks(read, texts))

    def _checks(self, read: _Texts, texts: pa.Array[Any]) -> Fingerprints:
        """Two strongly universal hashes of 32 bits (multilinear-HM of Lemire and Kaser) over the length and all words."""
        lengths = read.lengths.astype(np.uint64)
        one, other = (self._keys[-1, place] + lengths * self._keys[-1, place + 1] for place in (0, 2))
        for (rows, word), (a, b, c, d) in zip(read.words, self._keys, strict=False):
            lower, upper = word & _LOWER, word >> _HALF
            one[rows] += (lower + a) * (upper + b)
            other[rows] += (lower + c) * (upper + d)
        found: Fingerprints = (one & ~_LOWER) | (other >> _HALF)
        for row in np.flatnonzero(
            read.lengths > 8 * _WORDS
        ).tolist():  # ids this long are rare, and no place for shortcuts
            digest = hashlib.blake2b(texts[row].as_py().encode(), digest_size=8, key=self._secret)
            found[row] = int.from_bytes(digest.digest(), "little")
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


class _Texts:
    """The bytes of texts, eight at a time."""

    def __init__(self, texts: pa.Array[Any]) -> None:
        large = texts.cast(pa.large_string())
        buffers: list[Any] = large.buffers()
        offsets = np.frombuffer(buffers[1], np.int64, len(large) + 1 + large.offset)[large.offset :]
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.zeros(last - first + 8, np.uint8)  # a word may begin at the last byte
        if last > first:
            data[:-8] = np.frombuffer(buffers[2], np.uint8, last)[first:]
        self._words: Fingerprints = np.ndarray((last - first + 1,), "<u8", data, strides=(1,))  # from every byte on
        self._starts, self._ends = offsets[:-1] - first, offsets[1:] - first
        self.lengths = np.diff(offsets)
        # The first words, one after the other: the rows that have one, and theirs; zeros fill the last one.
        self.words = [self._word(number) for number in range(min(_WORDS, -(-int(self.lengths.max(initial=0)) // 8)))]

    def _word(self, number: int) -> tuple[Any, Fingerprints]:
        left = self.lengths - 8 * number
        rows: Any = slice(None)
        if left.min(initial=1) <= 0:
            rows = np.flatnonzero(left > 0)
            left = left[rows]
        return rows, self._words[self._starts[rows] + 8 * number] & _MASKS[np.minimum(left, 8)]

    def last_words(self, rows: npt.NDArray[np.int64]) -> Fingerprints:
        return self._words[self._ends[rows] - 8]


def _mixed(values: Fingerprints) -> Fingerprints:
    values = values ^ (values >> np.uint64(32))
    values = values * _SECOND
    mixed: Fingerprints = values ^ (values >> np.uint64(29))
    return mixed
