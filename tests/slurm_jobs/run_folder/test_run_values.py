"""Names of stages: one stage, or all combinations of a matrix."""

from __future__ import annotations

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.run_folder.run_values import stages_named

ORIGINS = {"clean": "", "fit-1": "fit", "fit-2": "fit"}


@pytest.mark.parametrize(
    ("name", "stages"),
    [("clean", ["clean"]), ("fit-2", ["fit-2"]), ("fit", ["fit-1", "fit-2"])],
)
def test_a_name_means_a_stage_or_all_combinations_of_one(name: str, stages: list[str]) -> None:
    assert stages_named(name, ORIGINS) == stages


@pytest.mark.parametrize(
    ("name", "hint"), [("claen", "; did you mean `clean`?"), ("fitt", "; did you mean `fit`?")]
)
def test_an_unknown_stage_is_refused_with_the_nearest_and_all_names(name: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        stages_named(name, ORIGINS, where="--again x: ")
    assert str(caught.value) == (
        f"--again x: no stage `{name}`{hint} (stages: clean, fit-1, fit-2)"
    )
