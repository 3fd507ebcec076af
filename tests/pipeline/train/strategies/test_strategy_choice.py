"""Strategies that do not go with the number of ranks."""

import pytest

from slurm_jobs.base.errors import StageConfigError


@pytest.mark.slow
def test_single_strategy_refuses_several_ranks(make_train_run):
    run = make_train_run(strategy="single")
    ends = run.finish(run.start())
    assert {code for code, _ in ends} == {StageConfigError.exit_code}
    assert "strategy: fsdp2" in ends[0][1]
