"""Streams of Arrow that are cut, damaged or compressed."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.preprocess.manifest import open_manifest
from pipeline.preprocess.manifests.arrow_table import ArrowTable
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.manifests.row_options import RowOptions
from tests.pipeline.tables import captions, write_saved


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_an_arrow_stream_with_compressed_batches_is_not_unpacked(tmp_path, codec):
    table = pa.table({"image": ["a.png"] * 100, "text": ["a" * 1000] * 100})
    for compression in (None, codec):
        path = tmp_path / f"{compression}.arrow"
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(str(path), table.schema, options=options) as stream:
            stream.write_table(table)
    assert ArrowTable(tmp_path / "None.arrow", RowOptions()).piece_rows == [100]
    with pytest.raises(StageConfigError, match="its batches are compressed"):
        ArrowTable(tmp_path / f"{codec}.arrow", RowOptions())


def one_stream(folder: Path, tables: list[pa.Table]) -> Path:
    return write_saved(folder, tables) / "data-00000-of-00001.arrow"


def test_a_stream_that_is_cut_between_its_batches_is_refused(tmp_path: Path) -> None:
    file = one_stream(tmp_path / "m", [captions(14)])
    with pa.memory_map(str(file)) as source:
        pa.ipc.open_stream(source).read_next_batch()
        os.truncate(file, source.tell())
    with pytest.raises(StageConfigError, match="the stream has no end"):
        open_manifest(file.parent)


OFFSETS = struct.pack("<3i", 9, 18, 27)  # of texts of nine bytes in a record batch


@pytest.mark.parametrize(
    ("found", "damaged"),
    [(OFFSETS, struct.pack("<3i", 9, 1 << 30, 27)), (b"text", b"te\xff\xff")],
    ids=["offsets", "a column's name"],
)
def test_a_damaged_stream_ends_in_words_and_not_by_a_signal(
    tmp_path: Path, found: bytes, damaged: bytes
) -> None:
    file = one_stream(tmp_path / "m", [captions(5)])
    data = file.read_bytes()
    assert found in data
    file.write_bytes(data.replace(found, damaged))
    code = (
        "import sys, pathlib\n"
        "from pipeline.preprocess.manifest import read_manifest\n"
        "read_manifest(pathlib.Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", code, str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.search(r"StageDataError: .*\.arrow: damaged.*\n$", ended.stderr)
