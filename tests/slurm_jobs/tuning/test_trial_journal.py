"""Trials of a tuning on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.tuning.trial_journal import JOURNAL_DIR, next_number, read_trials


@pytest.mark.parametrize("text", ["", "[]", "null", "3", '{"number": 1}', '{"changes": ["a"]}'])
def test_a_file_that_is_no_trial_costs_itself_alone(tmp_path: Path, text: str) -> None:
    folder = tmp_path / JOURNAL_DIR
    folder.mkdir()
    (folder / "0004.json").write_text(text)
    (folder / "0001 (copy).json").write_text(text)
    assert read_trials(tmp_path) == []
    assert next_number(tmp_path) == 5
