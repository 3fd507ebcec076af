"""A trial of `tune` makes the steps that the training would make, and leaves nothing but times."""

import pytest

from pipeline.training.measuring import run
from pipeline.training.ranks import leave_ranks
from slurm_jobs.common.timings import read_steps, steps_path
from tests.contexts import make_context
from tests.pipeline.training.conftest import TINY_MODEL, parent, reserve_port

TRAIN = {
    "device": "cpu",
    "model": TINY_MODEL,
    "strategy": "single",
    "num_steps": 6,
    "global_batch_size": 8,
    "num_lanes": 4,
    "num_compute_threads": 1,
    "checkpoint": {"every_min": None},
}


@pytest.fixture
def measured(demo_data, tmp_path):
    """Makes a trial in this process; its records, and what it said."""

    def measure(num_kept_steps: int = 0):
        root = tmp_path / f"trial-{num_kept_steps}"
        with reserve_port() as port:
            context = make_context(
                "train",
                root,
                main_port=port.getsockname()[1],
                parents=(parent("consolidate", demo_data),),
            )
            try:
                said = run({"train": TRAIN, "num_kept_steps": num_kept_steps}, context)
            finally:
                leave_ranks()
        return read_steps(steps_path(context.timing_dir, 0)).steps, said, context

    return measure


def test_a_trial_learns_what_the_training_learns_and_keeps_none_of_it(measured, make_train_run):
    whole = make_train_run()
    whole.run_here()
    steps, said, context = measured()
    assert steps["loss"].tolist() == whole.losses()
    assert said["num_steps"] == 6
    names = {path.name for path in context.output_dir.iterdir()}
    assert names.isdisjoint({"model", "checkpoints", "generations.jsonl"})


def test_without_its_data_path_a_trial_uses_the_first_batches_again_and_again(measured):
    plain, _, _ = measured()
    kept, _, _ = measured(num_kept_steps=2)
    tokens = plain["num_tokens"].tolist()
    assert kept["num_tokens"].tolist() == tokens[:2] * 3
    assert kept["data_wait_s"].max() < 0.01
