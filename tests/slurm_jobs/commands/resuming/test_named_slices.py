"""Slices that `--again` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.resuming.named_slices import slices_named
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import PlannedStage
from slurm_jobs.spec.profile import LOCAL


@pytest.fixture
def stages(tmp_path: Path) -> tuple[PlannedStage, ...]:
    file = tmp_path / "again.yaml"
    a = "{shell: x, matrix: {n: [2, 9]}, array: {num_slices: '${matrix.n}'}}"
    file.write_text(f"name: s\ncluster: local\nstages: {{a: {a}, z: {{shell: x}}}}\n")
    return make_plan(load(file).spec, LOCAL).stages


def test_again_accepts_the_name_of_a_combination_or_of_its_matrix_stage(
    stages: tuple[PlannedStage, ...],
) -> None:
    assert slices_named(["a-2"], stages) == {"a-2": {0, 1}}
    assert slices_named(["a", "z"], stages) == {"a-2": {0, 1}, "a-9": set(range(9)), "z": {0}}
    assert slices_named(["a:1", "a-9:7"], stages) == {"a-2": {1}, "a-9": {1, 7}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:0-3", "`a-2` has the slices 0 to 1: a-2:0-1"),
        ("b", "no stage `b` (stages: a-2, a-9, z)"),
        (":0", "no stage ``"),
    ],
)
def test_again_of_what_is_not_there_is_refused(
    stages: tuple[PlannedStage, ...], text: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        slices_named([text], stages)
    assert str(caught.value).startswith(f"--again {text}: {said}")
