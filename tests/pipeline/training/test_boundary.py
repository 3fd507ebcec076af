"""What the ranks agree on between steps; the other ranks are a fake."""

import math

import pytest

from pipeline.training.boundary import Boundary
from slurm_jobs.common.stage_config.checkpoint import CheckpointConfig


class FakeRanks:
    """A group in which the other rank has nothing to add but `others`."""

    num_ranks = 2

    def __init__(self, rank=0, others=(0.0,) * 6):
        self.rank, self.others = rank, others

    def sums(self, values):
        return [mine + other for mine, other in zip(values, self.others, strict=True)]


def boundary(config, *, ranks=None, stop=False, ended=False, clock=lambda: 0.0, may_overflow=False):
    return Boundary(
        ranks or FakeRanks(),
        config,
        10,
        lambda: ended,
        may_overflow=may_overflow,
        is_stop_requested=lambda: stop,
        read_clock_s=clock,
    )


def test_stop_of_another_rank_saves_and_stops_here():
    config = CheckpointConfig(every_min=None)
    others = (1.5, 0.0, 0.0, 1.0, 0.0, 0.0)
    verdict = boundary(config, ranks=FakeRanks(others=others)).agree(3, 2.0, 1.0)
    assert (verdict.loss, verdict.save, verdict.stop) == (3.5, True, True)
    assert verdict.must_end


@pytest.mark.parametrize(
    ("local_loss", "grad_norm"), [(math.nan, 1.0), (2.0, math.inf), (2.0, math.nan)]
)
def test_a_loss_or_a_gradient_that_is_not_finite_forbids_to_save(local_loss, grad_norm):
    verdict = boundary(CheckpointConfig(every_min=None, every_steps=1), stop=True).agree(
        3, local_loss, grad_norm
    )
    assert (verdict.is_finite, verdict.save) == (False, False)


def test_a_fault_of_another_rank_forbids_to_save_here():
    config = CheckpointConfig(every_min=None, every_steps=1)
    faulty = FakeRanks(others=(0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    verdict = boundary(config, ranks=faulty).agree(3, 2.0, 1.0)
    assert (verdict.is_finite, verdict.save) == (False, False)


def test_an_overflow_of_another_rank_under_fp16_is_skipped_here_and_may_be_saved():
    config = CheckpointConfig(every_min=None, every_steps=1)
    asked = boundary(
        config, ranks=FakeRanks(others=(0.0, 0.0, 1.0, 0.0, 0.0, 0.0)), may_overflow=True
    )
    verdict = asked.agree(3, 2.0, 1.0)
    assert (verdict.is_finite, verdict.skip, verdict.save) == (True, True, True)


@pytest.mark.parametrize("local_loss", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_is_skipped_under_fp16_like_an_overflow(local_loss):
    config = CheckpointConfig(every_min=None, every_steps=1)
    verdict = boundary(config, may_overflow=True).agree(3, local_loss, 1.0)
    assert (verdict.is_finite, verdict.skip, verdict.save) == (True, True, True)


def test_last_step_saves_and_does_not_stop():
    verdict = boundary(CheckpointConfig(every_min=None), stop=True).agree(10, 0.0, 1.0)
    assert (verdict.save, verdict.must_end, verdict.stop) == (True, True, False)


def test_only_the_clock_of_rank_0_counts():
    times = iter([0.0, 30.0, 61.0, 61.0, 70.0])
    asked = boundary(CheckpointConfig(every_min=1.0), clock=lambda: next(times))
    assert [asked.agree(step, 0.0, 1.0).save for step in (1, 2, 3)] == [False, True, False]
    late = boundary(CheckpointConfig(every_min=1.0), ranks=FakeRanks(rank=1), clock=lambda: 0.0)
    assert not late.agree(1, 0.0, 1.0).save


def test_checkpoints_by_steps():
    asked = boundary(CheckpointConfig(every_min=None, every_steps=3))
    assert [step for step in range(1, 10) if asked.agree(step, 0.0, 1.0).save] == [3, 6, 9]


@pytest.mark.parametrize("ended_here", [False, True])
@pytest.mark.parametrize("ended_there", [False, True])
def test_an_upload_has_ended_when_it_has_on_every_rank(ended_here, ended_there):
    other = FakeRanks(others=(0.0, 0.0, 0.0, 0.0, 0.0, float(ended_there)))
    asked = boundary(CheckpointConfig(every_min=None), ranks=other, ended=ended_here)
    verdict = asked.agree(3, 2.0, 1.0)
    assert verdict.upload_ended == (ended_here and ended_there)
    assert not verdict.must_end
