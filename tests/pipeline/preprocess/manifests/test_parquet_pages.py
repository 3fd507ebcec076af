"""The size of dictionaries in Parquet files, and what it means for their batches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.preprocess.manifests.parquet_pages import UNKNOWN_BYTES, dictionary_bytes
from pipeline.preprocess.manifests.parquet_table import ParquetTable
from pipeline.preprocess.manifests.table_manifest import MAX_SHARED_BYTES
from slurm_jobs.formats.manifests.values import RowOptions

VALUE = bytes(7_000_000)
NUM_ROWS = 30


def first_page(path: Path) -> bytes:
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return path.read_bytes()[start:]


@pytest.mark.parametrize("num_bytes", [1, 59, 60, 8_000, 3_000_000])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_size_of_a_dictionary_is_read_from_its_header(tmp_path, num_bytes, version):
    table = pa.table({"text": ["x" * num_bytes] * 3})
    for use_dictionary in (True, False):
        pq.write_table(
            table,
            tmp_path / "a.parquet",
            compression="zstd",
            use_dictionary=use_dictionary,
            data_page_version=version,
        )
        expected = num_bytes + 4 if use_dictionary else 0
        assert dictionary_bytes(first_page(tmp_path / "a.parquet")) == expected


@pytest.mark.parametrize("header", [b"", b"\x15", b"\x15\x84\x00\x15\x02", b"\x05\x02\x04\x15\x02"])
def test_an_unusual_header_counts_as_a_large_dictionary(header):
    assert dictionary_bytes(header) == UNKNOWN_BYTES


@pytest.mark.parametrize("encoding", ["PLAIN", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY"])
def test_batches_are_short_only_where_rows_share_large_values(tmp_path, encoding):
    is_dictionary = encoding == "RLE_DICTIONARY"
    small = [bytes([row]) * 1000 for row in range(NUM_ROWS)]
    pictures = small if encoding == "PLAIN" else [VALUE] * NUM_ROWS
    pq.write_table(
        pa.table({"image": pa.array(pictures, pa.binary()), "text": ["a"] * NUM_ROWS}),
        tmp_path / "a.parquet",
        compression="zstd",
        use_dictionary=is_dictionary,
        column_encoding=None if is_dictionary else {"image": encoding},
    )
    batches = list(ParquetTable(tmp_path / "a.parquet", RowOptions()).batches(0))
    assert [value.as_py() for batch in batches for value in batch["image"]] == pictures
    assert all(batch["image"].type == pa.binary() for batch in batches)
    assert all(batch["image"].nbytes < MAX_SHARED_BYTES + 1000 for batch in batches)
    assert (len(batches) == 1) == (encoding == "PLAIN")


def test_values_that_one_row_shares_with_itself_stay_a_dictionary(tmp_path):
    pictures = pa.array([[VALUE] * NUM_ROWS], pa.list_(pa.binary()))
    pq.write_table(pa.table({"image": pictures, "text": ["a"]}), tmp_path / "a.parquet")
    (batch,) = ParquetTable(tmp_path / "a.parquet", RowOptions()).batches(0)
    assert batch["image"].nbytes < 2 * len(VALUE)
    assert len(batch.to_pylist()[0]["image"]) == NUM_ROWS
