"""A training that evaluates during its steps has rows to evaluate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, TRAINING, write_processor
from tests.slurm_jobs.spec.conftest import Check, Notes


def _spec(folder: Path, config: str, held_out: str = "") -> str:
    write_processor(folder)
    (folder / "m.csv").write_text("image,text\n" + "a.png,words\n" * 10)
    return (
        SPEC.format(name="m.csv")
        + held_out
        + TRAINING.format(config=f"num_steps: 1\n      {config}")
    )


HELD_OUT = "      held_out: {share: 0.5}\n"


@pytest.mark.parametrize(
    ("config", "held_out", "is_refused"),
    [
        ("evaluate: {every_steps: 5}", "", True),
        ("evaluate: {every_steps: 5}", HELD_OUT, False),
        ("evaluate: {every_steps: 5, manifest: m.csv}", "", False),
        ("evaluate: {every_steps: 5}\n      dataset: .", "", False),  # the data set decides
    ],
)
def test_evaluation_during_training_without_rows_is_refused(
    check: Check, tmp_path: Path, config: str, held_out: str, is_refused: bool
) -> None:
    lines = check(_spec(tmp_path, config, held_out))
    words = "stages.t.config.evaluate.every_steps: 5, and evaluate.manifest is not given: give the"
    assert any(words in line for line in lines) == is_refused
    assert len(lines) == is_refused


@pytest.mark.parametrize(
    ("keys", "noted"),
    [
        ("batch_size: 8", []),
        ("num_answers: 3", ["num_answers"]),
        ("every_steps: 5, num_answers: 3", []),
        ("image_root: ., num_samples: 5", ["image_root"]),
        ("held_out: false, num_samples: 5", ["num_samples"]),
    ],
)
def test_settings_of_an_evaluation_of_held_out_rows_are_read(
    notes: Notes, tmp_path: Path, keys: str, noted: list[str]
) -> None:
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    lines = notes(_spec(tmp_path, f"evaluate: {{{keys}}}", HELD_OUT))
    assert [line.split(" has no effect")[0].rsplit(": ")[1] for line in lines] == [
        f"stages.t.config.evaluate.{key}" for key in noted
    ]
