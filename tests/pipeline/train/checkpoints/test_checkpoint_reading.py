"""Checkpoints of strangers: nothing that stands in one is run, and nothing is taken on trust."""

from __future__ import annotations

import os
import pathlib
import pickle
import random
import tracemalloc
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex

from pipeline.train.checkpoints.checkpoint_reading import (
    MAX_METADATA_BYTES,
    METADATA_NAME,
    PlainPlanner,
    PlainReader,
)
from pipeline.train.checkpoints.generator_state import rng_state
from slurm_jobs.base.errors import StageConfigError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

VALUES = {
    "weights": torch.arange(6.0).reshape(2, 3).bfloat16(),
    "packed": torch.arange(4, dtype=torch.uint8),
    "own": {"rng": rng_state(torch.device("cpu")), "words": {"a": 1, "b": (None, 2.5, "x")}},
}


class Calls:
    """Calls a function when it is unpickled."""

    def __init__(self, function: object, *args: object) -> None:
        self.call = (function, args)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


def save(values: dict[str, object], folder: Path) -> Path:
    dcp.save(values, checkpoint_id=folder)
    return folder


@pytest.fixture
def saved(tmp_path):
    return save(VALUES, tmp_path / "saved")


def load(places: dict[str, object], folder: Path) -> dict[str, object]:
    dcp.load(places, storage_reader=PlainReader(folder), planner=PlainPlanner())
    return places


def test_what_a_training_saves_is_read_back(saved):
    places = {
        "weights": torch.zeros(2, 3).bfloat16(),
        "packed": torch.zeros(4, dtype=torch.uint8),
        "own": {"rng": rng_state(torch.device("cpu")), "words": {"a": 0, "b": ()}},
    }
    random.random()
    loaded = load(places, saved)
    assert torch.equal(loaded["weights"], VALUES["weights"])
    assert torch.equal(loaded["packed"], VALUES["packed"])
    assert loaded["own"]["words"] == VALUES["own"]["words"]
    assert loaded["own"]["rng"]["python"] == VALUES["own"]["rng"]["python"]
    assert torch.equal(loaded["own"]["rng"]["numpy"], VALUES["own"]["rng"]["numpy"])


def test_a_description_is_read_as_torch_reads_it(saved):
    expected = dcp.FileSystemReader(saved).read_metadata()
    actual = PlainReader(saved).read_metadata()
    assert actual.state_dict_metadata == expected.state_dict_metadata
    assert actual.storage_data == expected.storage_data
    assert actual.version == expected.version


def test_a_description_that_runs_a_program_is_refused(saved, tmp_path):
    made = tmp_path / "made"
    (saved / METADATA_NAME).write_bytes(pickle.dumps(Calls(os.mkdir, str(made))))
    with pytest.raises(StageConfigError, match=r"\.metadata is not read: "):
        PlainReader(saved).read_metadata()
    assert not made.exists()


def test_a_description_changes_no_class_of_the_process(saved):
    """A pickle may set attributes of a class that it names: all paths would have this text."""
    path = f"{pathlib.PosixPath.__module__}\nPosixPath\n".encode()
    attack = b"\x80\x04c" + path + b"(N}\x8c\x04_str\x8c\x08/forged/stb."
    (saved / METADATA_NAME).write_bytes(attack)
    with pytest.raises(StageConfigError, match=r"\.metadata is not read: "):
        PlainReader(saved).read_metadata()
    assert str(Path("/a")) == "/a"


GREEDY = {
    "index of the memo in C": b"\x80\x04]r\x00\x00\x00\x08.",
    "bytearray": b"\x80\x05\x96" + (1 << 31).to_bytes(8, "little") + b".",
    "bytes": b"\x80\x04\x8e" + (1 << 31).to_bytes(8, "little") + b".",
    "text": b"\x80\x04\x8d" + (1 << 31).to_bytes(8, "little") + b".",
    "number": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "frame": b"\x80\x04\x95" + (1 << 31).to_bytes(8, "little") + b".",
}
"""Descriptions of a few bytes that state 2 GiB."""


@pytest.mark.parametrize("content", GREEDY.values(), ids=GREEDY)
def test_a_description_reserves_no_more_memory_than_it_has_bytes(saved, content):
    (saved / METADATA_NAME).write_bytes(content)
    tracemalloc.start()
    with pytest.raises(StageConfigError, match=r"\.metadata is not read: "):
        PlainReader(saved).read_metadata()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def describe(**changes: object) -> bytes:
    """A description of one value in one file."""
    place = {"relative_path": "__0_0.distcp", "offset": 0, "length": 10, **changes}
    return pickle.dumps(
        Metadata(
            {"a": BytesStorageMetadata()}, storage_data={MetadataIndex("a"): _StorageInfo(**place)}
        )
    )


FORGED_PLACES = {
    "file outside": {"relative_path": "../secret"},
    "whole path": {"relative_path": "/dev/zero"},
    "pipe": {"relative_path": "__9_9.distcp"},
    "file that is not there": {"relative_path": "__8_8.distcp"},
    "compressed file": {"transform_descriptors": ["stream.zstd/1"]},
    "negative offset": {"offset": -1},
    "text as an offset": {"offset": "0"},
    "endless value": {"length": 1 << 40},
    "number beyond 64 bits": {"length": 1 << 80},
}


@pytest.mark.parametrize("changes", FORGED_PLACES.values(), ids=FORGED_PLACES)
def test_a_value_is_read_from_the_files_of_the_checkpoint_alone(saved, changes):
    os.mkfifo(saved / "__9_9.distcp")
    (saved.parent / "secret").write_text("secret")
    (saved / METADATA_NAME).write_bytes(describe())
    PlainReader(saved).read_metadata()
    (saved / METADATA_NAME).write_bytes(describe(**changes))
    with pytest.raises(StageConfigError, match=r"\.metadata is not read: "):
        PlainReader(saved).read_metadata()


@pytest.mark.parametrize("thing", ["a pipe", "a file of a terabyte"])
def test_a_description_that_cannot_be_read_whole_is_not_opened(saved, thing):
    path = saved / METADATA_NAME
    path.unlink()
    if thing == "a pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 1000 * MAX_METADATA_BYTES)
    with pytest.raises(StageConfigError, match=r"\.metadata is not read: it is not a file of "):
        PlainReader(saved).read_metadata()


def test_damaged_descriptions_are_refused_or_are_descriptions(saved):
    path = saved / METADATA_NAME
    content, chance = path.read_bytes(), random.Random(7)
    for _ in range(300):
        damaged = bytearray(content[: chance.randrange(len(content) + 1)])
        if damaged and chance.random() < 0.8:
            damaged = bytearray(content)
            for _ in range(chance.randrange(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            metadata = PlainReader(saved).read_metadata()
        except StageConfigError:
            continue
        assert type(metadata) is Metadata


@pytest.mark.parametrize("thing", ["a program", "a class of torch", "a list without end"])
def test_a_value_that_runs_something_is_refused_and_not_run(tmp_path, thing):
    made = tmp_path / "made"
    things = {
        "a program": Calls(os.mkdir, str(made)),
        "a class of torch": torch.nn.Linear(1, 1),
        "a list without end": Calls(bytearray, 1 << 50),
    }
    folder = save({"own": {"words": things[thing]}}, tmp_path / "saved")
    made.rmdir() if made.exists() else None
    with pytest.raises(dcp.api.CheckpointException, match="is not read: "):
        load({"own": {"words": 0}}, folder)
    assert not made.exists()
