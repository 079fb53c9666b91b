"""What this package leans on in pylance and its documentation does not promise. A failure here means: read before upgrading."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments
from lance.optimize import Compaction
from omnigraph_engine.storage import Storage
from omnigraph_engine.tables.exact import ExactHead, commit_exact, manifest_path, open_guarded

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("v", pa.int64()),
    ]
)
PATH = "t"


def rows(**values: int) -> pa.Table:
    return pa.table([pa.array(list(values)), pa.array(list(values.values()), pa.int64())], schema=SCHEMA)


def ids_by_row_id(dataset: LanceDataset) -> dict[int, str]:
    read = dataset.to_table(columns=["id", "_rowid"]).to_pydict()
    return dict(zip(read["_rowid"], read["id"], strict=True))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A root with one table, version 1, in two fragments."""
    place = Storage(tmp_path)
    lance.write_dataset(
        rows(a=1, b=2, c=3, d=4),
        place.uri(PATH),
        data_storage_version="2.2",
        enable_stable_row_ids=True,
        max_rows_per_file=2,
    )
    return place


@pytest.fixture
def uri(storage: Storage) -> str:
    return storage.uri(PATH)


def test_a_plain_append_on_a_moved_head_is_rebased_silently_even_with_no_retries(uri: str) -> None:
    staged = write_fragments(rows(x=1), uri, mode="append")
    LanceDataset.commit(
        uri, LanceOperation.Append(write_fragments(rows(y=1), uri, mode="append")), read_version=1, max_retries=0
    )

    landed = LanceDataset.commit(uri, LanceOperation.Append(staged), read_version=1, max_retries=0)

    assert landed.version == 3
    assert landed.count_rows() == 6


def test_the_same_plain_transaction_committed_twice_doubles_its_rows(uri: str) -> None:
    transaction = Transaction(1, LanceOperation.Append(write_fragments(rows(x=1), uri, mode="append")), uuid="once")

    LanceDataset.commit(uri, transaction, max_retries=0)
    landed = LanceDataset.commit(uri, transaction, max_retries=0)

    assert landed.count_rows() == 6


def test_the_guard_is_asked_with_a_dict_of_version_and_staged_manifest_path(
    storage: Storage, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Any] = []
    publish = ExactHead.create_table_version

    def record(self: ExactHead, request: Any) -> Any:
        requests.append(request)
        return publish(self, request)

    monkeypatch.setattr(ExactHead, "create_table_version", record)
    dataset = lance.dataset(uri, version=1)
    staged = LanceOperation.Append(write_fragments(rows(x=1), dataset, mode="append"))
    commit_exact(storage, PATH, dataset, Transaction(1, staged))

    (request,) = requests
    assert isinstance(request, dict)
    assert int(request["version"]) == 2
    final = manifest_path(PATH, 2)
    assert request["manifest_path"].startswith(f"{storage.store_path(final)}-".lstrip("/"))
    assert lance.dataset(uri).version == 2
    assert storage.list(f"{PATH}/_versions") == sorted(
        [final, manifest_path(PATH, 1), f"{PATH}/_versions/latest_version_hint.json"]
    )


def test_a_transactions_own_uuid_is_read_back_from_its_version(storage: Storage, uri: str) -> None:
    dataset = lance.dataset(uri, version=1)
    staged = LanceOperation.Append(write_fragments(rows(x=1), dataset, mode="append"))

    commit_exact(storage, PATH, dataset, Transaction(1, staged, uuid="mine"))

    assert lance.dataset(uri).read_transaction(2).uuid == "mine"


def test_an_overwrite_drops_all_indices(uri: str) -> None:
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    assert len(lance.dataset(uri).describe_indices()) == 1

    staged = write_fragments(rows(x=1), uri, mode="overwrite")
    landed = LanceDataset.commit(uri, LanceOperation.Overwrite(SCHEMA, staged), read_version=2, max_retries=0)

    assert landed.describe_indices() == []


def test_a_merge_insert_under_the_guard_lands_at_the_next_version(storage: Storage, uri: str) -> None:
    dataset, guard = open_guarded(storage, PATH, 1)

    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.use_index(False).conflict_retries(0).execute(rows(a=10, x=1))

    assert not guard.lost
    assert lance.dataset(uri).version == 2
    assert lance.dataset(uri).count_rows() == 5


@pytest.mark.parametrize("landed", ["another row", "the same row"])
def test_a_merge_insert_under_the_guard_is_refused_when_head_moved(storage: Storage, uri: str, landed: str) -> None:
    dataset, guard = open_guarded(storage, PATH, 1)
    foreign = rows(y=1) if landed == "another row" else rows(x=2)
    lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(foreign)

    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the text is the next assertion's
        merge.use_index(False).conflict_retries(0).execute(rows(x=1))

    assert guard.lost or str(caught.value).startswith("Too many concurrent writers")
    assert lance.dataset(uri).version == 2
    assert lance.dataset(uri).count_rows() == 5


def test_a_raw_rewrite_of_a_compaction_plan_is_one_version_and_keeps_row_ids(storage: Storage, uri: str) -> None:
    dataset = lance.dataset(uri, version=1)
    before = ids_by_row_id(dataset)

    done = [task.execute(dataset) for task in Compaction.plan(dataset, {"target_rows_per_fragment": 100}).tasks]
    assert lance.dataset(uri).version == 1
    groups = [LanceOperation.RewriteGroup(one.original_fragments, one.new_fragments) for one in done]
    landed = commit_exact(storage, PATH, dataset, Transaction(1, LanceOperation.Rewrite(groups, []), uuid="fold"))

    after = lance.dataset(uri)
    assert (landed.version, after.version) == (2, 2)
    assert len(after.get_fragments()) == 1
    assert ids_by_row_id(after) == before
    after.validate()


def test_deleting_in_a_fragment_does_not_move_head(uri: str) -> None:
    dataset = lance.dataset(uri)
    first, second = dataset.get_fragments()

    assert first.delete("id = 'a'").num_deletions == 1
    assert first.delete("id = 'nobody'").num_deletions == 0
    assert second.delete("true") is None

    assert lance.dataset(uri).version == 1
    assert lance.dataset(uri).count_rows() == 4


def test_a_branch_starts_at_its_parents_version_and_is_addressed_below_tree(uri: str) -> None:
    lance.write_dataset(rows(x=1), uri, mode="append")

    lance.dataset(uri).create_branch("dev", (None, 2))

    branch = lance.dataset(f"{uri}/tree/dev")
    assert branch.version == 2
    assert branch.count_rows() == 5
    listed = lance.dataset(uri).branches.list()["dev"]
    assert (listed["parent_branch"], listed["parent_version"]) == (None, 2)


def test_fragment_metadata_comes_back_equal_from_json(uri: str) -> None:
    lance.dataset(uri).delete("id = 'a'")
    committed = [fragment.metadata for fragment in lance.dataset(uri).get_fragments()]
    staged = write_fragments(rows(x=1), uri, mode="append")

    for metadata in (*committed, *staged):
        assert FragmentMetadata.from_json(json.dumps(metadata.to_json())) == metadata
    assert committed[0].deletion_file is not None
    assert committed[0].row_id_meta is not None
    assert staged[0].row_id_meta is None


def named_by(uri: str, above: int = 0) -> dict[str, set[str]]:
    """What versions of a dataset refer to, by kind."""
    found: dict[str, set[str]] = {}
    for row in lance.dataset(uri).tracked_files(min_version=above + 1).read_all().to_pylist():
        found.setdefault(row["type"], set()).add(row["path"])
    return found


def test_every_file_that_a_version_refers_to_is_told_by_name(storage: Storage, uri: str) -> None:
    lance.dataset(uri).create_scalar_index("v", "BTREE")
    lance.dataset(uri).delete("id = 'a'")
    there = {path.removeprefix(f"{PATH}/") for path in storage.list(PATH)} - {"_versions/latest_version_hint.json"}

    named = named_by(uri)
    assert set().union(*named.values()) == there
    assert named.keys() == {"manifest", "data file", "deletion file", "transaction file", "index file"}

    newest = named_by(uri, above=2)
    assert newest["manifest"] == {f"_versions/{2**64 - 1 - 3:020d}.manifest"}
    assert newest["data file"] == named["data file"]


def test_a_line_names_files_of_those_it_descends_from_but_not_their_indexes(uri: str) -> None:
    lance.dataset(uri).create_scalar_index("v", "BTREE")
    lance.dataset(uri).create_branch("dev", (None, 2))
    line = f"{uri}/tree/dev"

    assert [index.name for index in lance.dataset(line).describe_indices()] == ["v_idx"]
    assert named_by(line)["data file"] == named_by(uri)["data file"]
    assert "index file" not in named_by(line)

    lance.dataset(line).create_scalar_index("id", "BTREE")
    assert len(named_by(line)["index file"]) == len(named_by(uri)["index file"])


def test_lances_own_cleanup_would_take_what_just_another_line_refers_to(uri: str) -> None:
    """Why cleanup asks the versions of all lines itself."""
    staged = write_fragments(rows(x=1), uri, mode="append")
    lance.dataset(uri).create_branch("dev", (None, 1))
    adopted = json.loads(json.dumps(staged[0].to_json()))
    adopted["files"][0]["base_id"] = 0
    append = LanceOperation.Append([FragmentMetadata.from_json(json.dumps(adopted))])
    LanceDataset.commit(f"{uri}/tree/dev", append, read_version=1)

    doomed = lance.dataset(uri).explain_cleanup_old_versions(
        older_than=timedelta(days=36_500),
        delete_unverified=True,
        error_if_tagged_old_versions=False,
        include_files=True,
    )
    assert [file.path.rsplit("/", 1)[-1] for file in doomed.candidate_files] == [staged[0].files[0].path]
    assert lance.dataset(f"{uri}/tree/dev").count_rows() == 5
