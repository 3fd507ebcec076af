"""Damaged shards, indexes and records: an error of ours with the file, or what was written."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.sample_members import pack_sample, unpack_sample, view_npy
from pipeline.data.disk_format.tar_format import scan_members
from pipeline.tools.verify import run
from slurm_jobs.base.errors import DamagedFileError, SlurmJobsError, StageError
from slurm_jobs.base.files import read_json
from slurm_jobs.formats.timings.step_records import (
    STEP_FIELDS,
    pack_step,
    read_spans,
    read_steps,
    steps_header,
)
from slurm_jobs.formats.timings.system_readings import read_system
from tests.fuzz.budget import bounded, examples

FILES = ("shards/shard-000000.tar", "shards/shard-000001.tar", "index.arrow", "dataset.json")
NUMBERS = st.sampled_from([0, 1, -1, 7, 2**31 - 1, -(2**31), 2**62, -(2**63), 2**64 - 1])


@contextmanager
def instead(path: Path, content: bytes) -> Iterator[None]:
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def mutated(data: st.DataObject, content: bytes) -> bytes:
    """Some bytes changed, put in, taken out, or a number of 4 or 8 bytes in their place; or cut."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(changed) - 1)))
        how = data.draw(st.integers(0, 4))
        if how == 0:
            changed[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
        elif how == 1:
            changed[at : at + data.draw(st.integers(0, 600))] = data.draw(st.binary(max_size=40))
        elif how == 2:
            changed[at : at + 8] = (data.draw(NUMBERS) % 2**64).to_bytes(8, "little")
        elif how == 3:
            changed[at : at + 4] = (data.draw(NUMBERS) % 2**32).to_bytes(4, "little")
        else:
            del changed[at:]
    return bytes(changed)


def contents(folder: Path) -> list[tuple[bytes, ...]]:
    dataset = open_dataset(folder)
    samples = (dataset.sample(number) for number in range(len(dataset)))
    return [
        (
            s.key.encode(),
            s.input_ids.tobytes(),
            s.labels.tobytes(),
            *(i.tobytes() for i in s.images),
        )
        for s in samples
    ]


def require_honest(sound: Path, folder: Path, name: str) -> None:
    """Read all and verify all: the truth, or an error of ours that names file or folder."""
    said = str(folder)
    with bounded(memory=True):
        try:
            found = contents(folder)
        except SlurmJobsError as error:
            found, said = [], str(error)
    assert str(folder) in said
    with bounded(memory=True):
        assert not found or found == contents(sound)
        arguments = {"folder": str(folder), "num_threads": 1, "num_tasks": 1}
        result = run(arguments, lambda _done, _total, _unit: None)
    is_whole = (sound / name).read_bytes() == (folder / name).read_bytes()
    assert not (is_whole and result["problems"])
    assert result["problems"] or found == contents(sound)  # what changed means nothing to anyone
    assert all(problem["file"] for problem in result["problems"])


@examples(120)
@given(st.data())
def test_a_mutated_file_of_a_data_set_is_reported_or_harmless(sound, damaged, data) -> None:
    name = data.draw(st.sampled_from(FILES))
    content = mutated(data, (sound / name).read_bytes())
    with instead(damaged / name, content):
        require_honest(sound, damaged, name)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_block_is_reported(sound: Path, damaged: Path, name: str) -> None:
    content = (sound / name).read_bytes()
    step = max(512, len(content) // 24 // 512 * 512)
    for size in [0, 1, 7, 8, 511, *range(512, len(content), step), len(content) - 1]:
        with instead(damaged / name, content[:size]):
            require_honest(sound, damaged, name)


@pytest.mark.parametrize(
    "column", ["shard", "offset", "num_bytes", "num_tokens", "num_images", "key"]
)
@pytest.mark.parametrize("number", [-1, 2**31 - 1, -(2**31), 2, 513])
def test_a_wrong_number_in_the_index_is_reported(sound, damaged, column: str, number: int) -> None:
    index = open_dataset(sound).index
    values = getattr(index, column)
    content = bytearray((sound / "index.arrow").read_bytes())
    at = bytes(content).find(values.tobytes())
    assert at > 0
    content[at : at + values.dtype.itemsize] = np.array([number], values.dtype).tobytes()
    if bytes(content) != (sound / "index.arrow").read_bytes():
        with instead(damaged / "index.arrow", bytes(content)):
            require_honest(sound, damaged, "index.arrow")


def a_sample() -> bytes:
    tokens = np.arange(12, dtype=np.int32).reshape(2, 6)
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "PNG")
    return pack_sample(
        key="000000003",
        input_ids=tokens[0],
        labels=tokens[1],
        images=[stream.getvalue()],
        image_suffix="png",
        meta={"row": 3},
    )


SAMPLE = a_sample()


@examples(250)
@given(st.data())
def test_the_bytes_of_a_sample_are_one_or_a_value_error(data: st.DataObject) -> None:
    """Checksums are compared first; reading without them must not crash either."""
    is_any = data.draw(st.booleans())
    content = data.draw(st.binary(max_size=2000)) if is_any else mutated(data, SAMPLE)
    with bounded(memory=True):
        try:
            list(scan_members(memoryview(content)))
            sample = unpack_sample(memoryview(content))
            dict(sample.meta)
        except (ValueError, OSError):
            return
        assert sample.input_ids.shape == sample.labels.shape


@examples(150)
@given(
    st.one_of(
        st.text(max_size=60), st.sampled_from(["(" * 300, "[" * 99999, "9" * 9999, "-" * 9999])
    )
)
def test_any_header_of_an_array_is_one_or_a_value_error(header: str) -> None:
    text = header.encode("latin1", errors="replace")[:65000]
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(64)
    with bounded(memory=True), suppress(ValueError):
        view_npy(memoryview(data))


STEPS = steps_header({"rank": 0, "num_ranks": 1}) + b"".join(
    pack_step({name: float(number + 1) if code[0] == "f" else number for name, code in STEP_FIELDS})
    for number in range(3)
)
DEEP = st.sampled_from([b"[" * 100_000 + b"\n", b'{"a":' * 50_000 + b"\n", b"9" * 9000 + b"\n"])


@examples(150)
@given(st.data())
@pytest.mark.parametrize("read", [read_steps, read_spans, read_system])
def test_records_are_read_or_a_value_error_names_their_file(tmp_path_factory, read, data) -> None:
    kind = data.draw(st.integers(0, 2))
    content = mutated(data, STEPS) if kind == 0 else data.draw(DEEP if kind == 1 else st.binary())
    path = tmp_path_factory.getbasetemp() / "records"
    path.write_bytes(content)
    said = str(path)
    with bounded(memory=True):
        try:
            read(path)
        except ValueError as error:
            said = str(error)
    assert str(path) in said


def test_json_nested_without_end_is_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(DamagedFileError, match=r"x\.json"):
        read_json(path)


def test_a_very_deeply_nested_dataset_json_is_reported_as_damaged(sound, damaged) -> None:
    with instead(damaged / "dataset.json", b"[" * 100_000):
        with pytest.raises(StageError, match=r"dataset\.json: damaged"):
            open_dataset(damaged)
        require_honest(sound, damaged, "dataset.json")


@pytest.mark.parametrize("header", ["-" * 9999, "(" * 300, "[" * 60_000])
def test_a_header_of_an_array_beyond_pythons_parser_is_a_value_error(header: str) -> None:
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(64)
    with pytest.raises(ValueError, match="damaged header"):
        view_npy(memoryview(data))


@pytest.mark.parametrize("read", [read_steps, read_system])
def test_a_header_of_records_nested_without_end_names_the_file(tmp_path: Path, read) -> None:
    path = tmp_path / "rank-0.steps"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(ValueError, match=r"rank-0\.steps"):
        read(path)


def test_a_span_nested_without_end_is_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "spans"
    path.write_bytes(b"[" * 100_000 + b"\n")
    assert read_spans(path) == ([], 1)
