from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.blob import BlobType, blob_field
from lance.dataset import LanceDataset, LanceOperation
from lance.fragment import write_fragments
from omnigraph_engine.schema.arrow import table_schema
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import accept_initial
from omnigraph_engine.tables.blobs import logical_schema, stored_schema, to_stored

ACCEPTED = accept_initial(
    parse_catalog("node Photo { name: String @key  data: Blob?  thumb: Blob }\nnode Tag { n: I32? }")
)
LOGICAL = table_schema(ACCEPTED, ACCEPTED.catalog.nodes["Photo"])
WITHOUT_BLOB = table_schema(ACCEPTED, ACCEPTED.catalog.nodes["Tag"])
LARGE = b"x" * 300_000  # beyond what Lance keeps inline
FLAGS = {"data_storage_version": "2.2", "enable_stable_row_ids": True}


def _photos(data: list[bytes | None]) -> pa.RecordBatch:
    names = pa.array([f"p{at}" for at in range(len(data))], pa.string())
    blobs = pa.array(data, pa.large_binary())
    return pa.RecordBatch.from_arrays([names, blobs, names, blobs.fill_null(b"-")], schema=LOGICAL)


def _append(uri: str, batch: pa.RecordBatch) -> LanceDataset:
    version = lance.dataset(uri).version
    fragments = write_fragments(pa.RecordBatchReader.from_batches(batch.schema, [batch]), uri, mode="append", **FLAGS)
    return LanceDataset.commit(uri, LanceOperation.Append(fragments), read_version=version)


def _scan(dataset: LanceDataset) -> pa.Table:
    return dataset.scanner(blob_handling="all_binary").to_table()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "photos")
    schema = stored_schema(LOGICAL)
    lance.write_dataset(schema.empty_table(), path, schema=schema, **FLAGS)
    return path


def test_bytes_come_back_as_written_with_null_and_empty_kept_apart(uri: str) -> None:
    data = [b"a", None, b"", LARGE]

    table = _scan(_append(uri, to_stored(_photos(data))))

    assert table["data"].type == pa.large_binary()
    assert table["data"].to_pylist() == data
    assert table["thumb"].to_pylist() == [b"a", b"-", b"", LARGE]


def test_a_slice_of_a_batch_stores_its_own_rows(uri: str) -> None:
    table = _scan(_append(uri, to_stored(_photos([b"a", None, b"", b"z"]).slice(1, 2))))

    assert table["data"].to_pylist() == [None, b""]


def test_rows_that_were_scanned_can_be_stored_again(uri: str) -> None:
    rows = _scan(_append(uri, to_stored(_photos([b"a", None, LARGE])))).combine_chunks().to_batches()[0]

    again = _append(uri, to_stored(rows, stored_schema(LOGICAL)))

    assert _scan(again)["data"].to_pylist() == [b"a", None, LARGE] * 2


def test_a_table_with_the_longer_blob_shape_of_pylance_takes_the_same_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "photos")
    stored = stored_schema(LOGICAL)
    longer = stored.set(stored.get_field_index("data"), blob_field("data"))
    lance.write_dataset(longer.empty_table(), path, schema=longer, **FLAGS)
    logical = logical_schema(lance.dataset(path).schema)

    batch = to_stored(_photos([b"a", None, b""]), stored_schema(logical))

    assert _scan(_append(path, batch))["data"].to_pylist() == [b"a", None, b""]


def test_the_stored_field_keeps_nullability_and_metadata_but_not_the_marker(uri: str) -> None:
    field = lance.dataset(uri).schema.field("thumb")

    assert isinstance(field.type, BlobType)
    assert [child.name for child in field.type.storage_type] == ["data", "uri"]
    assert not field.nullable
    stable_id = str(ACCEPTED.property_ids["Photo", "thumb"]).encode()
    assert field.metadata == {b"omnigraph.stable_property_id": stable_id}


def test_the_logical_schema_is_found_again_from_the_stored_one(uri: str) -> None:
    assert logical_schema(lance.dataset(uri).schema).equals(LOGICAL, check_metadata=True)


def test_what_has_no_blob_passes_through_as_the_same_object() -> None:
    row = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([1], pa.int32())], schema=WITHOUT_BLOB)

    assert stored_schema(WITHOUT_BLOB) is WITHOUT_BLOB
    assert logical_schema(WITHOUT_BLOB) is WITHOUT_BLOB
    assert to_stored(row) is row


def test_a_batch_without_rows_is_stored_as_no_rows(uri: str) -> None:
    assert _scan(_append(uri, to_stored(_photos([])))).num_rows == 0
