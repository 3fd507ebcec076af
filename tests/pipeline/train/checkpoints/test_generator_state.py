"""The states of the random number generators: bit-exact, and forged."""

# ruff: noqa: NPY002 - libraries draw from this generator

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
import torch

from pipeline.train.checkpoints.generator_state import rng_state, set_rng_state
from slurm_jobs.base.errors import StageConfigError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def generators():
    """Leaves the process's generators as they were."""
    before = rng_state(CPU)
    yield
    set_rng_state(before)


def draw() -> tuple[object, ...]:
    """Draws of every kind, enough of them that new words are made."""
    normal = [np.random.randn() for _ in range(3)]
    return (
        *(normal, np.random.bytes(4000), np.random.permutation(5).tolist()),
        *(random.random(), random.gauss(0, 1)),
        torch.rand(700).tolist(),
    )


@pytest.mark.parametrize("num_drawn", [0, 1, 2])
def test_draws_go_on_where_the_state_was_taken(num_drawn):
    for _ in range(num_drawn):
        draw()
    state = rng_state(CPU)
    expected = draw()
    draw()
    set_rng_state(state)
    assert draw() == expected


@pytest.mark.parametrize("position", [-1, 625, 2**31 - 1])
def test_a_position_in_the_tensor_of_numpys_state_is_compared(position):
    state = rng_state(CPU)
    forged = bytearray(state["numpy"].numpy().tobytes())
    struct.pack_into("<i", forged, 4 * 624, position)
    with pytest.raises(StageConfigError, match="the generator `numpy` in the checkpoint is not "):
        set_rng_state({"numpy": torch.frombuffer(forged, dtype=torch.uint8)})


@pytest.mark.parametrize(("left", "position"), [(624, 624), (624, 2), (-5, 0), (1, 2**32), (0, 0)])
def test_a_position_in_torchs_state_is_compared(left, position):
    """PyTorch would read up to 623 words from behind the state."""
    forged = bytearray(rng_state(CPU)["cpu"].numpy().tobytes())
    struct.pack_into("<i", forged, 8, left)
    struct.pack_into("<Q", forged, 16, position)
    with pytest.raises(StageConfigError, match="the generator `cpu` in the checkpoint is not "):
        set_rng_state({"cpu": torch.frombuffer(forged, dtype=torch.uint8)})


def test_states_of_torch_have_positions_that_are_accepted():
    for _ in range(1300):
        set_rng_state({"cpu": rng_state(CPU)["cpu"]})
        torch.rand(1)


@pytest.mark.parametrize("state", [(3, (1,) * 5, None), (3, (0,) * 624 + (625,), None), 5, "x"])
def test_a_state_that_is_none_of_pythons_is_refused(state):
    with pytest.raises(StageConfigError, match="the generator `python` in the checkpoint is not "):
        set_rng_state({"python": state})


def test_the_state_of_a_gpus_generator_is_saved_only_for_training_on_a_gpu(monkeypatch):
    """There is no GPU here: the answer is made up."""
    asked: list[torch.device] = []

    def get_rng_state(device: torch.device) -> torch.Tensor:
        asked.append(device)
        return torch.zeros(16, dtype=torch.uint8)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", get_rng_state)
    assert "cuda" not in rng_state(torch.device("cpu"))
    assert asked == []
    assert "cuda" in rng_state(gpu := torch.device("cuda", 1))
    assert asked == [gpu]
