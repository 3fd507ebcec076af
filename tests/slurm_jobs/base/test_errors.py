"""Texts of errors and problems are bounded, whatever they quote."""

import pytest

from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.base.errors import Problem, SpecError, StageConfigError
from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS

HUGE = "/9j/4AAQSkZJRgABAQ" * 50_000


@pytest.mark.parametrize(
    "error",
    [
        SampleRejectedError(reason="missing_image", message=f"{HUGE}: no such file"),
        StageConfigError(f"{HUGE}: no such file"),
        SpecError([Problem(file="a.yaml", line=3, column=1, message=f"{HUGE}: no such file")]),
    ],
)
def test_the_text_of_every_error_keeps_beginning_and_end(error: Exception) -> None:
    text = str(error)
    assert len(text) < MAX_LINE_CHARS + 50
    assert text.endswith("no such file")
    assert "characters left out" in text


def test_a_changed_problem_is_truncated_again() -> None:
    problem = Problem(file="a.yaml", line=3, column=1, message="no such file")
    changed = problem.changed(message=f"{HUGE}: no such file", line=0)
    assert len(changed.message) < MAX_LINE_CHARS + 50
    assert (changed.file, changed.line, changed.column) == ("a.yaml", 0, 1)
