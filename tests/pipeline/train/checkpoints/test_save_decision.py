"""The decision of all ranks to save or to stop after a step."""

from __future__ import annotations

import pytest

from pipeline.train.checkpoints.save_decision import Boundary
from slurm_jobs.formats.configs.training_parts import CheckpointConfig


class FakeRanks:
    """A group in which the other rank has nothing to add but `others`."""

    num_ranks = 2

    def __init__(self, rank=0, others=(0.0,) * 3):
        self.rank, self.others = rank, others

    def sums(self, values):
        return [mine + other for mine, other in zip(values, self.others, strict=True)]


def boundary(*, ranks=None, stop=False, ended=False, clock=lambda: 0.0, **config):
    """Of ten steps."""
    answers = {"is_stop_requested": lambda: stop, "read_clock_s": clock}
    config = CheckpointConfig(**{"every_min": None, **config})
    return Boundary(ranks or FakeRanks(), config, 10, lambda: ended, **answers)


def test_stop_of_another_rank_saves_and_stops_here_but_after_the_last_step():
    agreed = boundary(ranks=FakeRanks(others=(1.0, 0.0, 0.0))).agree(3)
    assert (agreed.save, agreed.stop, agreed.must_end) == (True, True, True)
    agreed = boundary(stop=True).agree(10)
    assert (agreed.save, agreed.must_end, agreed.stop) == (True, True, False)


def test_checkpoints_are_due_by_steps_or_by_the_clock_of_rank_0_alone():
    asked = boundary(every_steps=3)
    assert [step for step in range(1, 10) if asked.agree(step).save] == [3, 6, 9]
    times = iter([0.0, 30.0, 61.0, 61.0, 70.0])
    asked = boundary(every_min=1.0, clock=lambda: next(times))
    assert [asked.agree(step).save for step in (1, 2, 3)] == [False, True, False]
    assert not boundary(every_min=1.0, ranks=FakeRanks(rank=1)).agree(1).save


@pytest.mark.parametrize("ended_here", [False, True])
@pytest.mark.parametrize("ended_there", [False, True])
def test_an_upload_has_ended_when_it_has_on_every_rank(ended_here, ended_there):
    other = FakeRanks(others=(0.0, 0.0, float(ended_there)))
    agreed = boundary(ranks=other, ended=ended_here).agree(3)
    assert agreed.upload_ended == (ended_here and ended_there)
    assert not agreed.must_end
