"""Conflicts between keys of a training's config."""

import pytest

from tests.slurm_jobs.spec.checks.stages.trainings import CPUS, phases, train
from tests.slurm_jobs.spec.conftest import Check, check

__all__ = ["check"]


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("model.visual.*", "vision"),
        ("model.multi_modal_projector.*", "projector"),
        ("model.language_model.layers.3?.*", "language"),
    ],
)
def test_names_that_no_small_vlm_has_are_refused_with_its_own(
    check: Check, pattern: str, meant: str
) -> None:
    config = f"device: cpu, learn: ['{pattern}']"
    (line,) = check(train(CPUS, config))
    assert line.startswith(f"7:61: stages.train.config: learn has '{pattern}', and model.type is ")
    assert line.endswith(f"language. or heads.: write for example `{meant}.*`")
    assert "phases.1.learn of phase b has" in check(phases(f"learn: ['{pattern}']"))[0]
    assert check(train(CPUS, f"{config}, model: {{type: hugging_face, name: a/b}}")) == []
