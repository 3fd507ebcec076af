"""Overrides of a spec with a matrix, of all combinations or of one."""

import pytest

from tests.slurm_jobs.spec.conftest import Check
from tests.slurm_jobs.spec.matrix_specs import SWEEP


def test_an_override_reaches_all_combinations_and_may_change_the_axes(check: Check) -> None:
    (line,) = check(SWEEP, overrides=("stages.train.resources.nodes=x",))
    assert line.startswith("--set stages.train.resources.nodes=x: stages.train.resources.nodes: ")
    assert check(SWEEP, overrides=("stages.train.matrix.task=[c]",)) == []


def test_an_override_may_name_one_combination(check: Check) -> None:
    assert check(SWEEP, overrides=("stages.train-a-2.resources.mem_gb=2",)) == []
    (line,) = check(SWEEP, overrides=("stages.train-c-2.resources.mem_gb=2",))
    assert "there is no stage `train-c-2`; did you mean `train-b-2`?" in line


@pytest.mark.parametrize("matrix", ["{task: [c, d]}", "[{task: c}]", "null"])
def test_an_override_gives_no_single_combination_another_matrix(check: Check, matrix: str) -> None:
    override = f"stages.train-a-2.matrix={matrix}"
    (line,) = check(SWEEP, overrides=(override,))
    assert line.startswith(f"--set {override}: ")
    assert line.endswith("`train-a-2` is one combination; set stages.train.matrix")
