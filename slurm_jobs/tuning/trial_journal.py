"""Trials of a tuning, one file each, written once, so that a kill loses no measurement."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import create_once, dump_json, make_private_dir, read_json
from slurm_jobs.tuning.trial_model import Trial, trial_from_json, trial_to_json

JOURNAL_DIR = "trials"
"""Name in the stage's output folder."""


def read_trials(output_dir: Path) -> list[Trial]:
    """Return all finished trials by number, regardless of training and code.

    A file that cannot be read is skipped: its trial runs again.
    """
    trials = []
    for path in sorted((output_dir / JOURNAL_DIR).glob("[0-9]*.json")):
        try:
            trials.append(trial_from_json(read_json(path)))
        except (DamagedFileError, TypeError, KeyError, ValueError, AttributeError) as error:
            print(f"{path} is left out: {error}", flush=True)
    return trials


def next_number(output_dir: Path) -> int:
    """Return the next number, from 1; unreadable files count."""
    names = [p.stem for p in (output_dir / JOURNAL_DIR).glob("[0-9]*.json")]
    numbers = [int(name) for name in names if name.isdecimal()]
    return max(numbers, default=0) + 1


def add_trial(output_dir: Path, trial: Trial) -> None:
    """Write a trial durably."""
    folder = output_dir / JOURNAL_DIR
    make_private_dir(folder)
    is_new = create_once(
        folder / f"{trial.number:04d}.json", dump_json(trial_to_json(trial)).encode()
    )
    assert is_new, trial.number
