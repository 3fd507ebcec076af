"""The login node's time over files, with the verb's own answering thread at the other end."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.nodes.doctor.clock_exchange import ClockQuestion, signal_was_sent
from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.commands.node_checks import doctor_runs
from slurm_jobs.commands.node_checks.doctor_runs import Answering
from slurm_jobs.run_folder.paths import RunPaths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = RunPaths(tmp_path).output_dir("doctor")
    made.mkdir(parents=True)
    return made


def test_a_question_is_answered_with_bounds_that_hold_the_truth(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[RunPaths] = []
    monkeypatch.setattr(doctor_runs, "signal_job", signalled.append)
    answering = Answering(tmp_path, 2)
    questions = [ClockQuestion(folder, rank, patience_s=10.0) for rank in range(2)]
    for question in questions:
        question.wait()
        assert question.clock is not None
        assert question.clock.least_s <= 0 <= question.clock.most_s  # it is the same clock
        assert question.both_ways_s is not None
    assert signal_was_sent(folder, 10.0) == (True, "")
    answering.end()
    assert [paths.run_dir for paths in signalled] == [tmp_path]


def test_a_signal_that_could_not_be_sent_is_reported_and_not_waited_for(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_paths: RunPaths) -> None:
        message = "scancel: no such job"
        raise SchedulerError(message)

    monkeypatch.setattr(doctor_runs, "signal_job", refuse)
    answering = Answering(tmp_path, 1)
    ClockQuestion(folder, 0, patience_s=10.0).wait()
    assert signal_was_sent(folder, 10.0) == (
        None,
        "it could not be sent: scancel: no such job",
    )
    answering.end()


def test_silence_is_no_answer(folder: Path) -> None:
    question = ClockQuestion(folder, 0, patience_s=0.1)
    question.wait()
    assert question.clock is None
    sent, why = signal_was_sent(folder, 0.1)
    assert (sent, "sent none" in why) == (None, True)
