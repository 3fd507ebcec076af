"""What the ranks agree on between steps; the other ranks are a fake."""

import pytest

from pipeline.train.loop import Boundary
from slurm_jobs.shared.configs.training_parts import CheckpointConfig


class FakeRanks:
    """A group in which the other rank has nothing to add but `others`."""

    num_ranks = 2

    def __init__(self, rank=0, others=(0.0,) * 3):
        self.rank, self.others = rank, others

    def sums(self, values):
        return [mine + other for mine, other in zip(values, self.others, strict=True)]


def boundary(config, *, ranks=None, stop=False, ended=False, clock=lambda: 0.0):
    return Boundary(
        ranks or FakeRanks(),
        config,
        10,
        lambda: ended,
        is_stop_requested=lambda: stop,
        read_clock_s=clock,
    )


def test_stop_of_another_rank_saves_and_stops_here():
    config = CheckpointConfig(every_min=None)
    agreed = boundary(config, ranks=FakeRanks(others=(1.0, 0.0, 0.0))).agree(3)
    assert (agreed.save, agreed.stop, agreed.must_end) == (True, True, True)


def test_last_step_saves_and_does_not_stop():
    agreed = boundary(CheckpointConfig(every_min=None), stop=True).agree(10)
    assert (agreed.save, agreed.must_end, agreed.stop) == (True, True, False)


def test_only_the_clock_of_rank_0_counts():
    times = iter([0.0, 30.0, 61.0, 61.0, 70.0])
    asked = boundary(CheckpointConfig(every_min=1.0), clock=lambda: next(times))
    assert [asked.agree(step).save for step in (1, 2, 3)] == [False, True, False]
    late = boundary(CheckpointConfig(every_min=1.0), ranks=FakeRanks(rank=1), clock=lambda: 0.0)
    assert not late.agree(1).save


def test_checkpoints_by_steps():
    asked = boundary(CheckpointConfig(every_min=None, every_steps=3))
    assert [step for step in range(1, 10) if asked.agree(step).save] == [3, 6, 9]


@pytest.mark.parametrize("ended_here", [False, True])
@pytest.mark.parametrize("ended_there", [False, True])
def test_an_upload_has_ended_when_it_has_on_every_rank(ended_here, ended_there):
    other = FakeRanks(others=(0.0, 0.0, float(ended_there)))
    asked = boundary(CheckpointConfig(every_min=None), ranks=other, ended=ended_here)
    agreed = asked.agree(3)
    assert agreed.upload_ended == (ended_here and ended_there)
    assert not agreed.must_end
