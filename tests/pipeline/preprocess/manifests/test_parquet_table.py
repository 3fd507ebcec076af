"""Batches of Parquet files whose rows share large values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.preprocess.manifests.parquet_table import ParquetTable
from pipeline.preprocess.manifests.table_manifest import MAX_SHARED_BYTES
from slurm_jobs.formats.manifests.row_options import RowOptions

VALUE = bytes(7_000_000)
NUM_ROWS = 30


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
