"""A training whose epochs have too few rows for one step is found by `check`, not by the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, TRAINING, write_processor
from tests.slurm_jobs.spec.conftest import Check, Notes


def _spec(folder: Path, num_rows: int, config: str, *, held_out: str = "") -> str:
    write_processor(folder)
    for number in range(num_rows):
        (folder / f"{number}.png").write_bytes(b"GIF89a")
    rows = "".join(f"{number}.png,words\n" for number in range(num_rows))
    (folder / "m.csv").write_text(f"image,text\n{rows},no picture\n")
    return SPEC.format(name="m.csv") + held_out + TRAINING.format(config=config)


@pytest.mark.parametrize(
    ("config", "is_refused"),
    [
        ("num_epochs: 1\n      global_batch_size: 10", False),
        ("num_epochs: 1\n      global_batch_size: 20", True),
        ("num_epochs: 2\n      global_batch_size: 20", False),
        ("num_epochs: 1\n      global_batch_size: 16\n      batching: {kind: packed}", True),
        ("num_steps: 5\n      global_batch_size: 20", False),
        ("phases: [{name: a, num_epochs: 1}]\n      global_batch_size: 20", True),
    ],
)
def test_fewer_rows_than_one_step_has_are_refused(
    check: Check, tmp_path: Path, config: str, is_refused: bool
) -> None:
    lines = check(_spec(tmp_path, 10, f"num_lanes: 2\n      {config}"))
    assert any("10 rows in 1 epoch do not fill one step" in line for line in lines) == is_refused
    assert len(lines) == is_refused


@pytest.mark.parametrize(("batch", "is_noted"), [(2, False), (4, True)])
def test_rows_that_may_not_fill_a_packed_step_are_noted(
    notes: Notes, tmp_path: Path, batch: int, is_noted: bool
) -> None:
    config = f"num_epochs: 1\n      num_lanes: 2\n      global_batch_size: {batch}"
    lines = notes(_spec(tmp_path, 10, f"{config}\n      batching: {{kind: packed}}"))
    words = "10 rows in 1 epoch, packed, may not fill one step"
    assert any(words in line for line in lines) == is_noted


@pytest.mark.parametrize(("share", "is_refused"), [(0.1, False), (0.3, True)])
def test_rows_that_are_held_out_fill_no_step(
    check: Check, tmp_path: Path, share: float, is_refused: bool
) -> None:
    config = "num_lanes: 2\n      num_epochs: 1\n      global_batch_size: 8"
    text = _spec(tmp_path, 10, config, held_out=f"      held_out: {{share: {share}}}\n")
    lines = check(text)
    words = "7 rows, which held_out.share 0.3 leaves of 10, in 1 epoch do not fill one step of 8"
    assert any(words in line for line in lines) == is_refused
    assert len(lines) == is_refused
