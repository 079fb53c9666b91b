from __future__ import annotations

import time

import pyarrow as pa
import pytest
from omnigraph_engine.write.ulids import new_ulids
from ulid import ULID


def test_every_id_is_a_ulid_of_the_moment_of_the_call() -> None:
    before = time.time_ns() // 1_000_000
    ids = new_ulids(500)
    after = time.time_ns() // 1_000_000

    parsed = [ULID.from_str(text) for text in ids.to_pylist()]
    assert [str(ulid) for ulid in parsed] == ids.to_pylist()
    assert all(before <= ulid.milliseconds <= after for ulid in parsed)


def test_ids_are_distinct_within_and_across_calls() -> None:
    ids = [*new_ulids(50_000).to_pylist(), *new_ulids(50_000).to_pylist()]

    assert len(set(ids)) == 100_000


def test_the_random_part_uses_all_of_its_characters() -> None:
    texts = new_ulids(2_000).to_pylist()

    assert all({text[place] for text in texts} == set("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for place in range(10, 26))


def test_ids_sort_by_the_time_of_the_call() -> None:
    earlier = new_ulids(100).to_pylist()
    time.sleep(0.003)
    later = new_ulids(100).to_pylist()

    assert max(earlier) < min(later)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_as_many_ids_as_asked_for_come_as_a_valid_string_array(count: int) -> None:
    ids = new_ulids(count)

    ids.validate(full=True)
    assert ids.type == pa.string()
    assert len(ids) == count
    assert ids.null_count == 0
