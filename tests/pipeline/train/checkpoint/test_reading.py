"""Checkpoints of strangers: nothing that stands in one is run."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from pipeline.train.checkpoint_files import METADATA_NAME, PlainPlanner, PlainReader
from slurm_jobs.shared.errors import StageConfigError

VALUES = {
    "weights": torch.arange(6.0).reshape(2, 3).bfloat16(),
    "packed": torch.arange(4, dtype=torch.uint8),
    "own": {
        "python": random.Random(3).getstate(),
        "numpy": np.random.RandomState(3).get_state(),
        "words": {"a": 1, "b": (None, 2.5, "x")},
    },
}


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def save(values: dict[str, object], folder: Path) -> Path:
    dcp.save(values, checkpoint_id=folder)
    return folder


def load(places: dict[str, object], folder: Path) -> dict[str, object]:
    dcp.load(places, storage_reader=PlainReader(folder), planner=PlainPlanner())
    return places


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_a_training_saves_is_read_back(tmp_path):
    folder = save(VALUES, tmp_path / "saved")
    places = {
        "weights": torch.zeros(2, 3).bfloat16(),
        "packed": torch.zeros(4, dtype=torch.uint8),
        "own": {
            "python": random.Random(4).getstate(),
            "numpy": np.random.RandomState(4).get_state(),
            "words": {"a": 0, "b": ()},
        },
    }
    found = load(places, folder)
    assert torch.equal(found["weights"], VALUES["weights"])
    assert torch.equal(found["packed"], VALUES["packed"])
    assert found["own"]["python"] == VALUES["own"]["python"]
    assert np.array_equal(found["own"]["numpy"][1], VALUES["own"]["numpy"][1])
    assert found["own"]["words"] == VALUES["own"]["words"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("thing", ["a program", "a list"])
def test_a_description_that_is_another_thing_is_refused_and_not_run(tmp_path, thing):
    folder = save(VALUES, tmp_path / "saved")
    made = tmp_path / "made"
    content = Runs(made) if thing == "a program" else [1, 2]
    (folder / METADATA_NAME).write_bytes(pickle.dumps(content))
    with pytest.raises(StageConfigError, match=r"\.metadata is not read: "):
        PlainReader(folder).read_metadata()
    assert not made.exists()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_value_that_runs_something_is_refused_and_not_run(tmp_path):
    made = tmp_path / "made"
    folder = save({"own": {"words": Runs(made)}}, tmp_path / "saved")
    made.rmdir() if made.exists() else None
    with pytest.raises(dcp.api.CheckpointException, match="is not read: "):
        load({"own": {"words": 0}}, folder)
    assert not made.exists()
