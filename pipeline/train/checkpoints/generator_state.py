"""States of the random number generators of one process: saved, checked and restored.

A forged state makes a generator read outside of its memory, because NumPy and PyTorch follow the
position in it: the positions are compared with the lengths first.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from pipeline.train.checkpoints.old_numpy_state import NUM_WORDS, OldArray
from slurm_jobs.base.errors import StageConfigError

_NUMPY = struct.Struct(f"<{NUM_WORDS}I2id")
"""Words, position, whether there is a second Gaussian value, and that value."""
_TORCH_POSITION = struct.Struct("<Qi4xQ")
"""Seed, number of draws before new words are made, flag, and position (CPUGeneratorImpl.cpp)."""


def rng_state(device: torch.device) -> dict[str, Any]:
    """Return this process's generator states by name: uint8 tensors on the host; Python's a tuple.

    A GPU's is included if `device` is one; reading it takes some hundred MB of its memory.
    """
    _, words, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 - libraries use it
    packed = _NUMPY.pack(*words, position, has_gauss, gauss)
    states = {
        "cpu": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": torch.frombuffer(bytearray(packed), dtype=torch.uint8),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_rng_state(states: Mapping[str, Any]) -> None:
    """Restore the generators in `states`.

    Raises:
        StageConfigError: a state is not one that the generator could have had.
    """
    setters: dict[str, Callable[[Any], None]] = {
        "cpu": _set_torch_state,
        "python": random.setstate,
        "numpy": _set_numpy_state,
        "cuda": torch.cuda.set_rng_state,
    }
    for name, value in states.items():
        if name == "cuda" and not torch.cuda.is_available():
            continue
        try:
            setters[name](value)
        except (ValueError, TypeError, RuntimeError, OverflowError, struct.error) as error:
            message = (
                f"the state of the generator `{name}` in the checkpoint is not valid ({error}); it "
                "was not written by this training: continue from one of your own checkpoints"
            )
            raise StageConfigError(message) from error


def _set_numpy_state(state: torch.Tensor | tuple[Any, ...]) -> None:
    if isinstance(state, torch.Tensor):
        *words, position, has_gauss, gauss = _NUMPY.unpack(state.numpy().tobytes())
    else:
        name, array, position, has_gauss, gauss = state
        if name != "MT19937" or not isinstance(array, OldArray):
            message = f"an array of {NUM_WORDS} uint32 is expected"
            raise ValueError(message)
        words = array.words()
    if not (type(position) is int and 0 <= position <= NUM_WORDS and has_gauss in (0, 1)):
        message = f"its position is {position!r:.20}, and {NUM_WORDS} is the largest"
        raise ValueError(message)
    array = np.array(words, dtype=np.uint32)
    np.random.set_state(("MT19937", array, position, int(has_gauss), float(gauss)))  # noqa: NPY002


def _set_torch_state(state: torch.Tensor) -> None:
    """Restore PyTorch's generator on the host.

    PyTorch compares each of the two numbers with 624, but not their sum: up to 623 draws would be
    read from behind the state.
    """
    _, left, position = _TORCH_POSITION.unpack_from(state.numpy().tobytes())
    if not (left > 0 and left + position <= NUM_WORDS + 1):
        message = f"its position is {position} with {left} draws left"
        raise ValueError(message)
    torch.set_rng_state(state)
