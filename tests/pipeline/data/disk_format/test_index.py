"""The index of a data set: mapped, and compared when it matters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.index import INDEX_TYPES
from slurm_jobs.base.errors import StageError


@pytest.fixture
def folder(dataset_dir: Path, tmp_path: Path) -> Path:
    """A copy of a data set of 23 samples, of a test's own."""
    return Path(shutil.copytree(dataset_dir, tmp_path / "set"))


def flip(path: Path, column: str, row: int, *, byte: int = 0) -> None:
    """Flip a bit of one value of the index."""
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
        value = batch.column(batch.schema.get_field_index(column))[row].as_py()
    dtype = INDEX_TYPES[column]
    values = np.array([v.as_py() for v in batch.column(column)], dtype=dtype)
    data = bytearray(path.read_bytes())
    start = bytes(data).index(values.tobytes()) + row * dtype.itemsize
    assert data[start : start + dtype.itemsize] == np.array(value, dtype=dtype).tobytes()
    data[start + byte] ^= 1
    path.write_bytes(data)


def test_columns_are_views_of_the_file_and_not_copies(dataset_dir: Path) -> None:
    index = open_dataset(dataset_dir).index
    for name in INDEX_TYPES:
        column = getattr(index, name)
        assert not column.flags.owndata
        assert not column.flags.writeable
        assert column.dtype == INDEX_TYPES[name]
        assert index.whole(name) is column


def test_arrow_reads_the_index_as_a_table(dataset_dir: Path) -> None:
    table = pa.ipc.open_file(pa.OSFile(str(dataset_dir / "index.arrow"))).read_all()
    ours = open_dataset(dataset_dir)
    assert table.num_rows == 23
    assert table["num_tokens"].to_pylist() == ours.index.num_tokens.tolist()
    assert sum(table["num_tokens"].to_pylist()) == ours.info.num_tokens


@pytest.mark.parametrize("column", ["num_tokens", "num_images", "key"])
def test_a_flipped_bit_in_a_column_is_reported_before_the_column_is_used(
    folder: Path, column: str
) -> None:
    flip(folder / "index.arrow", column, 7)
    index = open_dataset(folder).index
    with pytest.raises(StageError, match=rf"index\.arrow: the column {column} does not match"):
        index.whole(column)
    other = next(name for name in INDEX_TYPES if name != column)
    assert len(index.whole(other)) == 23


@pytest.mark.parametrize("column", ["offset", "num_bytes", "xxh3", "shard"])
def test_a_flipped_bit_in_a_row_is_reported_when_its_sample_is_read(
    folder: Path, column: str
) -> None:
    flip(folder / "index.arrow", column, 3)
    dataset = open_dataset(folder)
    with pytest.raises(StageError, match="do not match their checksum"):
        dataset.sample(3)
    assert dataset.sample(4).key


@pytest.mark.parametrize("byte", [1, 3])
def test_a_row_that_points_to_no_shard_is_refused(folder: Path, byte: int) -> None:
    flip(folder / "index.arrow", "shard", 3, byte=byte)
    with pytest.raises(
        StageError, match=r"index\.arrow: sample 3 points to shard \d+, which does not exist"
    ):
        open_dataset(folder).sample(3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.unlink(), r"index\.arrow: no index that can be mapped"),
        (lambda path: path.write_bytes(b""), r"index\.arrow: 0 bytes, expected \d+"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), r"bytes, expected \d+; copy it"),
        (lambda path: path.write_bytes(b"x" * path.stat().st_size), "no index that can be mapped"),
    ],
)
def test_index_that_is_cut_short_or_none_is_refused_at_open(
    folder: Path, change: Callable[[Path], object], words: str
) -> None:
    change(folder / "index.arrow")
    with pytest.raises(StageError, match=words):
        open_dataset(folder)


def test_index_of_another_data_set_is_refused(
    folder: Path, make_dataset: Callable[..., Path]
) -> None:
    shutil.copy(make_dataset(24, num_shards=3) / "index.arrow", folder)
    with pytest.raises(StageError, match=r"index\.arrow: \d+ bytes, expected"):
        open_dataset(folder)
    shutil.copy(make_dataset(23, num_shards=3, seed=9) / "index.arrow", folder)
    dataset = open_dataset(folder)  # as long as its own
    with pytest.raises(StageError, match="does not match its checksum"):
        dataset.index.whole("key")
    with pytest.raises(StageError, match="do not match their checksum"):
        dataset.sample(0)
