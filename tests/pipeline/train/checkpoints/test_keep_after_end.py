"""Which checkpoints a complete training lists for removal."""

import pytest

from pipeline.train.checkpoints.keep_after_end import not_kept_after_end
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig

PHASES = [{"name": "one", "num_steps": 1}, {"name": "two", "num_steps": 1}]


def listed(output_dir, keep, **length):
    values = {"checkpoint": {"keep_after_end": keep}, **length}
    return not_kept_after_end(build_config(TrainConfig, values), output_dir)


@pytest.mark.parametrize(
    ("keep", "steps"), [(None, []), (0, [30, 20, 3]), (1, [20, 3]), (2, [3]), (9, [])]
)
def test_the_newest_are_kept_and_nothing_else_is_listed(tmp_path, keep, steps):
    for name in ("step-00000020", "step-00000030", "step-00000003", ".step-00000040.2.tmp"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    expected = [f"checkpoints/step-{step:08d}" for step in steps]
    assert listed(tmp_path, keep, num_steps=30) == expected


def test_each_phase_keeps_its_own(tmp_path):
    for name in ("0-one", "1-two"):
        for step in (1, 2):
            (tmp_path / f"phases/{name}/checkpoints/step-{step:08d}").mkdir(parents=True)
    kept_one = [f"phases/{name}/checkpoints/step-00000001" for name in ("0-one", "1-two")]
    assert listed(tmp_path, 1, phases=PHASES) == kept_one
    assert len(listed(tmp_path, 0, phases=PHASES)) == 4
