"""A training as each of its phases sees it."""

import pytest

from tests.slurm_jobs.spec.checks.stages.trainings import phases
from tests.slurm_jobs.spec.conftest import Check


@pytest.mark.parametrize(
    "second",
    [
        "learn: [all], optimizer: {learning_rate: 1e-3, grad_clip_norm: null}",
        "num_microbatches: 3, batching: {kind: packed, max_tokens: 64}",
        "num_microbatches: 3, global_batch_size: 48",
        "num_microbatches: auto",
    ],
)
def test_what_a_phase_may_have_is_left_to_the_job(check: Check, second: str) -> None:
    assert check(phases(second)) == []


def test_microbatches_are_compared_with_the_phases_that_use_them(
    check: Check,
) -> None:
    text = phases("num_microbatches: 4").replace("num_microbatches: 2", "num_microbatches: 3")
    (line,) = check(text)
    assert line.startswith("11:25: stages.train.config.num_microbatches: the 8 samples of a rank")
    assert check(text.replace("num_steps: 2}", "num_steps: 2, num_microbatches: 2}")) == []


def test_adapters_that_no_phase_learns_are_sent_to_the_learn_of_a_phase(check: Check) -> None:
    text = phases("learn: [vision]").replace("  phases:", "  adapters: {}\n      phases:")
    text = text.replace("num_steps: 2}", "num_steps: 2, learn: [projector]}")
    (line,) = check(text)
    assert "add `adapters` to that of a phase (phases.1.learn), or leave adapters out" in line
    assert check(text.replace("learn: [vision]", "learn: [vision, adapters]")) == []
