"""NumPy's state in old checkpoints: restored, and refused where it is forged."""

# ruff: noqa: NPY002 - libraries draw from this generator

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from pipeline.train.checkpoints.checkpoint_reading import PlainPlanner, PlainReader
from pipeline.train.checkpoints.generator_state import rng_state, set_rng_state
from pipeline.train.checkpoints.training_state import TrainingState
from slurm_jobs.base.errors import StageConfigError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

KEYS = np.random.RandomState(3).get_state()[1]
DATA = KEYS.tobytes()
U4 = np.dtype("u4")


@pytest.fixture(autouse=True)
def generators():
    """Leaves the process's generators as they were."""
    before = rng_state(torch.device("cpu"))
    yield
    set_rng_state(before)


class Pickled:
    """A call and a state, as a pickle has them."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def __reduce__(self) -> tuple[object, ...]:
        return self.parts


def array(*state: object) -> Pickled:
    return Pickled(np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), state)


def load_old(numpy_state: object, folder):
    """Save NumPy's state as older checkpoints have it, and restore it."""
    name = "rank-00000"
    dcp.save({"rng": {name: {"numpy": numpy_state}}}, checkpoint_id=folder)
    reader = PlainReader(folder)
    stored = reader.read_metadata().state_dict_metadata
    model = torch.nn.Linear(1, 1)
    state = TrainingState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    places = {"rng": state.places(stored, 0, same_ranks=True)["rng"]}
    dcp.load(places, storage_reader=reader, planner=PlainPlanner())
    set_rng_state(places["rng"][name])


@pytest.mark.parametrize("num_drawn", [0, 1, 5])
def test_the_state_in_an_old_checkpoint_is_restored(tmp_path, num_drawn):
    generator = np.random.RandomState(3)
    for _ in range(num_drawn):
        generator.randn()
    state = generator.get_state()
    load_old(state, tmp_path / "old")
    assert np.random.bytes(4000) == generator.bytes(4000)
    assert np.random.randn() == generator.randn()


WITH_POINTERS = Pickled(np.dtype, ("u4", False, True), (3, "|", None, None, None, -1, -1, 63))
POINTERS = Pickled(np.dtype, ("O",))
IN_DISGUISE = Pickled(np.dtype, ("u4", False, True), (3, "|", (POINTERS, ()), None, None, 8, 8, 63))
"""Called `u4`, and then made one of pointers, which NumPy follows wherever they lead."""
ADDRESSES = b"\x41" * 8 * 624
FORGED_ARRAYS = {
    "pointers": array(1, (624,), np.dtype("O"), False, [1] * 624),
    "addresses": Pickled(np.ndarray, ((624,), POINTERS, ADDRESSES)),
    "addresses in disguise": Pickled(np.ndarray, ((624,), IN_DISGUISE, ADDRESSES)),
    "addresses as a state": array(1, (624,), IN_DISGUISE, False, ADDRESSES),
    "a dtype with pointers": array(1, (624,), WITH_POINTERS, False, DATA * 2),
    "another dtype": array(1, (624,), np.dtype("f4"), False, DATA),
    "big-endian words": array(1, (624,), np.dtype(">u4"), False, DATA),
    "a shorter array": array(1, (623,), U4, False, DATA[:-4]),
    "another shape": array(1, (624, 1), U4, False, DATA),
    "too few bytes": array(1, (624,), U4, False, DATA[:-1]),
    "text as data": array(1, (624,), U4, False, "x" * 2496),
    "no array": [1] * 624,
    "numbers": KEYS.tolist(),
}


@pytest.mark.parametrize("forged", FORGED_ARRAYS.values(), ids=FORGED_ARRAYS)
def test_another_array_in_an_old_checkpoint_is_refused(tmp_path, forged):
    before = np.random.get_state()[1].tolist()
    with pytest.raises((StageConfigError, dcp.api.CheckpointException), match="not written by "):
        load_old(("MT19937", forged, 624, 0, 0.0), tmp_path / "old")
    assert np.random.get_state()[1].tolist() == before


@pytest.mark.parametrize("position", [-1, 625, 10**6, 2**31, 2**70, "0", None])
def test_a_position_outside_of_the_words_is_refused(tmp_path, position):
    """NumPy reads the word at this position, wherever that is."""
    with pytest.raises(StageConfigError, match="the generator `numpy` in the checkpoint is not "):
        load_old(("MT19937", KEYS, position, 0, 0.0), tmp_path / "old")
