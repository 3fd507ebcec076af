"""Arrow files that are laid out first, filled in any blocks, and mapped."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.disk_format.columns import ColumnsWriter, map_columns, rows_type

TYPES = {"key": np.dtype("<i8"), "count": np.dtype("<i4"), "xxh3": np.dtype("<u8")}


def make_rows(num_rows: int) -> np.ndarray:
    rows = np.zeros(num_rows, dtype=rows_type(TYPES))
    for name, dtype in TYPES.items():
        rows[name] = np.random.default_rng(3).integers(1, 2**31 - 1, num_rows).astype(dtype)
    return rows


def write(path: Path, rows: np.ndarray, block: int) -> dict[str, str]:
    with path.open("wb") as stream:
        writer = ColumnsWriter(stream, TYPES, len(rows))
        for start in range(0, len(rows), block):
            writer.append(rows[start : start + block])
        checksums = writer.finish()
    assert path.stat().st_size == writer.num_bytes
    return checksums


@pytest.mark.parametrize("num_rows", [0, 1, 7, 1000, 100_003])
@pytest.mark.parametrize("block", [1, 4096, 1_000_000])
def test_columns_are_read_back_from_any_blocks(tmp_path: Path, num_rows: int, block: int) -> None:
    rows = make_rows(min(num_rows, 3000 * block))
    checksums = write(tmp_path / "a.arrow", rows, block)
    for name, column in map_columns(tmp_path / "a.arrow", TYPES).items():
        assert column.dtype == TYPES[name]
        assert np.array_equal(column, rows[name])
        assert not column.flags.writeable
        assert checksums[name] == xxhash.xxh3_64_hexdigest(rows[name].tobytes())


def test_file_is_the_one_that_arrow_would_have_written(tmp_path: Path) -> None:
    rows = make_rows(5000)
    write(tmp_path / "ours.arrow", rows, 512)
    table = pa.table({name: np.ascontiguousarray(rows[name]) for name in TYPES})
    stream = io.BytesIO()
    with pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    assert (tmp_path / "ours.arrow").read_bytes() == stream.getvalue()


@given(st.integers(0, 300), st.integers(1, 50))
def test_any_number_of_rows_is_a_whole_file(num_rows: int, block: int) -> None:
    rows, stream = make_rows(num_rows), io.BytesIO()
    writer = ColumnsWriter(stream, TYPES, num_rows)
    for start in range(0, num_rows, block):
        writer.append(rows[start : start + block])
    writer.finish()
    table = pa.ipc.open_file(pa.BufferReader(stream.getvalue())).read_all()
    assert table.num_rows == num_rows
    assert all(np.array_equal(table[name].to_numpy(), rows[name]) for name in TYPES)


def test_mapped_columns_outlive_their_file(tmp_path: Path) -> None:
    rows = make_rows(1000)
    write(tmp_path / "a.arrow", rows, 100)
    columns = map_columns(tmp_path / "a.arrow", TYPES)
    (tmp_path / "a.arrow").unlink()
    assert np.array_equal(columns["key"], rows["key"])


@pytest.mark.parametrize("data", [b"", b"ARROW1", b"x" * 5000])
def test_what_is_no_arrow_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises((ValueError, OSError)):
        map_columns(tmp_path / "a.arrow", TYPES)


def test_types_that_arrow_lacks_are_refused_as_any_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write(path, make_rows(3), 3)
    data = path.read_bytes()
    footer = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    refused = 0
    for place in range(footer, len(data) - 10):
        path.unlink()  # what is mapped must not change
        path.write_bytes(data[:place] + b"\x7f" + data[place + 1 :])
        try:
            map_columns(path, TYPES)
        except (ValueError, OSError):
            refused += 1
    assert refused


def test_other_columns_are_refused_by_name_and_type(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", make_rows(3), 3)
    with pytest.raises(ValueError, match=r"count: int32.*expected 1 of .*count: int64"):
        map_columns(tmp_path / "a.arrow", {**TYPES, "count": np.dtype("<i8")})
