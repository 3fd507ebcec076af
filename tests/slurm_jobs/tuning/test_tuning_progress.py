"""Progress of a tuning is a function of its trials."""

from slurm_jobs.tuning.search import progress_of
from tests.slurm_jobs.tuning.simulated import facts, simulate_tuning
from tests.slurm_jobs.tuning.speeds import flat


def test_the_progress_after_the_same_trials_is_the_same():
    _, trials = simulate_tuning(facts(), flat)
    assert progress_of(facts(), trials) == progress_of(facts(), trials)
