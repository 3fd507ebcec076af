"""Answers of training samples that do not fit the levels."""

from __future__ import annotations

import pytest

from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.train.chain_config import LEVELS, config_of


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        (LEVELS[:2], r"sample \d+ has 3 learned answers, but there are 2 levels"),
        (
            [{**LEVELS[0], "classes": ["red", "blue"]}, *LEVELS[1:]],
            r"sample \d+, level colour: the answer 'green' is not one of .*`levels\.0\.classes`",
        ),
    ],
)
def test_sample_that_does_not_fit_the_levels_is_named(chains, make_train_run, levels, words):
    run = make_train_run(**config_of(chains, num_steps=1, levels=levels))
    with pytest.raises(StageConfigError, match=words) as raised:  # no attempt reads another one
        run.run_here()
    assert raised.value.__suppress_context__  # one traceback in the log
