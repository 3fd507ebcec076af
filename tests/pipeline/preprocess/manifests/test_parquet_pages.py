"""The size of dictionaries in Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.preprocess.manifests.parquet_pages import UNKNOWN_BYTES, dictionary_bytes


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
