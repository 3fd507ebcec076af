"""The stage that tunes, with real trial processes whose steps are invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.formats.configs.command_stages import RESULT_NAME, SAID
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.tuning import job_trials, stage
from slurm_jobs.tuning.trial_journal import read_trials
from tests.contexts import make_context

STUB = Path(__file__).parent / "measure_stub.py"


def tune(
    run_dir: Path, does: str, *, attempt: int = 1, budget_min: float = 600.0, **train: Any
) -> dict[str, Any]:
    """Run an attempt of the stage on one rank; its trials do what `measure_stub.py` says."""
    context = make_context("train", run_dir, attempt=attempt)
    record = RunPaths(run_dir).attempt("train", 0, attempt)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(record, {"node_names": ["node-0"]})
    config = {
        "train": {"num_steps": 100, "device": "cpu", **train},
        "budget_min": budget_min,
        "cpus_per_task": 2,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_trials, "_start_script", lambda: STUB)
        patch.setenv("STUB", does)
        result = stage.run(config, context)
    assert result is not None
    return result


def test_a_change_that_feeds_the_steps_is_kept_and_no_trial_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tune(tmp_path, "starves")
    assert (first["word"], first["num_kept"]) == ("faster", 1)
    assert first["times_faster"] == pytest.approx(20 / 15)
    assert first[SAID].endswith(" as fast with num_loader_threads: 4.")
    trials = read_trials(tmp_path / "train")
    assert first["num_trials"] == len(trials)
    (tmp_path / "train" / RESULT_NAME).unlink()  # as where it was killed before its result

    assert tune(tmp_path, "fails", attempt=2) == first
    assert f"continues after {len(trials)} trials of earlier attempts" in capsys.readouterr().out
    assert read_json(tmp_path / "train" / RESULT_NAME)["num_trials"] == len(trials)


def test_a_tuning_that_keeps_nothing_has_no_speed(tmp_path: Path) -> None:
    result = tune(tmp_path, "computes")
    assert (result["num_kept"], result["times_faster"], result["word"]) == (0, None, None)
    assert result[SAID].startswith("Nothing is kept: ")


@pytest.mark.parametrize(
    ("does", "budget_min", "said"),
    [
        ("fails", 600, "cannot be tried: rank 0: ValueError: no such dataset"),
        ("leaves nothing", 600, "no step of all ranks is left after the warm-up"),
        (
            "computes",
            0.01,
            "is too small: .* or `slurm-jobs resume .* --set stages.train.config.budget_min=",
        ),
    ],
)
def test_a_training_that_cannot_be_tuned_is_refused_with_its_trials_errors(
    tmp_path: Path, does: str, budget_min: float, said: str
) -> None:
    with pytest.raises(StageConfigError, match=said):
        tune(tmp_path, does, budget_min=budget_min)


def test_trials_of_another_training_do_not_count(tmp_path: Path) -> None:
    with pytest.raises(StageConfigError, match="is too small"):
        tune(tmp_path, "computes", budget_min=0.01)
    with pytest.raises(StageConfigError, match="cannot be tried"):
        tune(tmp_path, "fails", attempt=2, global_batch_size=16)
    assert len(read_trials(tmp_path / "train")) == 3
