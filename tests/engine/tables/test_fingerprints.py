"""Fingerprints deal and find suspects; equal texts always have equal ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omnigraph_engine.tables.fingerprints import Digester, FingerprintSet, fingerprints

LONG = "x" * 256  # as much as is looked at from the start


def one(text: str) -> int:
    return int(fingerprints(pa.array([text]))[0])


@given(st.lists(st.text(max_size=40), max_size=30), st.integers(0, 5))
def test_a_fingerprint_depends_on_the_text_alone(texts: list[str], skipped: int) -> None:
    whole = fingerprints(pa.array(texts, pa.string()))
    assert whole.tolist() == [one(text) for text in texts]
    assert fingerprints(pa.array(texts, pa.large_string()).slice(skipped)).tolist() == whole[skipped:].tolist()


@given(st.sets(st.text(max_size=40), max_size=60))
def test_different_texts_have_different_fingerprints(texts: set[str]) -> None:
    assert len(set(fingerprints(pa.array(sorted(texts), pa.string())).tolist())) == len(texts)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("", "\0"),
        ("a", "a\0"),
        ("abcdefgh", "abcdefgh\0"),
        ("abcdefghi", "abcdefghj"),
        (LONG + "a", LONG + "b"),
        (LONG, LONG + "x"),
    ],
)
def test_texts_that_differ_a_little_have_different_fingerprints(text: str, other: str) -> None:
    assert one(text) != one(other)


def test_what_lies_beyond_the_part_that_is_looked_at_only_makes_a_suspect() -> None:
    middle = LONG + "{}" + "y" * 8
    assert one(middle.format("a")) == one(middle.format("b"))


@given(st.lists(st.text(max_size=40), max_size=30), st.integers(0, 5))
def test_the_digest_of_a_text_depends_on_the_text_and_the_digester_alone(texts: list[str], skipped: int) -> None:
    digester = Digester()
    whole = digester(pa.array(texts, pa.string()))
    parts = digester(pa.array(texts, pa.large_string()).slice(skipped))
    assert whole.fingerprints.tolist() == fingerprints(pa.array(texts, pa.string())).tolist()
    assert [numbers[skipped:].tolist() for numbers in whole] == [numbers.tolist() for numbers in parts]
    if texts:
        assert Digester()(pa.array(texts)).checks.tolist() != whole.checks.tolist()


@pytest.mark.parametrize(
    ("text", "other"),
    [("", "\0"), ("a", "a\0"), ("abcdefgh", "abcdefgh\0"), ("\0" * 8, "\0" * 16), (LONG + "a", LONG + "b")],
)
def test_texts_that_differ_a_little_have_different_checks(text: str, other: str) -> None:
    checks = Digester()(pa.array([text, other])).checks
    assert checks[0] != checks[1]


def test_checks_differ_also_in_what_fingerprints_do_not_look_at() -> None:
    middle = LONG + "{}" + "y" * 8
    found, checks = Digester()(pa.array([middle.format("a"), middle.format("b")]))
    assert found[0] == found[1]
    assert checks[0] != checks[1]


@given(st.sets(st.text(max_size=40), max_size=60))
def test_different_texts_have_different_checks(texts: set[str]) -> None:
    assert len(set(Digester()(pa.array(sorted(texts), pa.string())).checks.tolist())) == len(texts)


def test_fingerprints_fill_buckets_about_equally() -> None:
    found = fingerprints(pa.array([f"user{number:08d}" for number in range(64_000)]))
    counts = Counter((found % np.uint64(64)).tolist())
    assert len(counts) == 64
    assert max(counts.values()) < 2 * 64_000 / 64


ANY = st.one_of(st.integers(0, 20), st.integers(2**64 - 20, 2**64 - 1), st.integers(0, 2**64 - 1))


@given(st.lists(ANY), st.lists(ANY), st.integers(0, 5))
def test_a_set_says_which_are_in_it(known: list[int], others: list[int], shared: int) -> None:
    wanted = [*others, *known[:shared]]
    found = FingerprintSet(np.sort(np.array(known, np.uint64))).contains(np.array(wanted, np.uint64))
    assert found.tolist() == [value in known for value in wanted]


def test_a_set_with_more_members_than_marks_says_which_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph_engine.tables.fingerprints._MOST_MARKS", 3)
    texts = fingerprints(pa.array([str(number) for number in range(1_000)]))
    assert FingerprintSet(np.sort(texts[::2])).contains(texts).tolist() == [True, False] * 500
