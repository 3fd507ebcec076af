"""squeue and sacct are programs of the test's own, so that questions can be counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.run.kept_answers import FRESH_S, INCOMPLETE_FRESH_S
from slurm_jobs.run.observe import answers, status_of
from slurm_jobs.run_folder.ledger import append_entry, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_run
from tests.slurm_jobs.run.fabricate import end, make_run, submit, submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import (
    ACCOUNTS_OFF,
    DATABASE_DOWN,
    FakeSlurm,
    account_row,
    make_fake_slurm,
    queue_row,
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("squeue", "".join(queue_row(f"1_{index}", "RUNNING") for index in range(3)))
    return fake


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run whose array of three runs as job 1."""
    return submitted_run(tmp_path / "r", 3)


class Clock:
    """The time that the cache goes by: it stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1763651000.0

    def time(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr("slurm_jobs.run.kept_answers.time", stopped)
    return stopped


def num_questions(slurm: FakeSlurm) -> int:
    assert len(slurm.calls("squeue")) == len(slurm.calls("sacct"))
    return len(slurm.calls("squeue"))


def test_several_looks_within_some_seconds_cost_one_question(
    slurm: FakeSlurm, paths: RunPaths, clock: Clock
) -> None:
    """submitit#1759: polling trips a site's limit of requests."""
    first = status_of(paths.run_dir, fresh=False)
    assert first.status == "running"
    assert status_of(paths.run_dir, fresh=False) == first
    assert num_questions(slurm) == 1
    clock.now_s += FRESH_S
    status_of(paths.run_dir, fresh=False)
    assert num_questions(slurm) == 2


def test_commands_that_only_read_use_the_answer_of_a_fresh_query(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    status_of(paths.run_dir, fresh=False)
    status_of(paths.run_dir)
    assert num_questions(slurm) == 2
    status_of(paths.run_dir, fresh=False)
    assert num_questions(slurm) == 2


def _submit_more(paths: RunPaths) -> None:
    submit(paths, "a", 3, "2")


def _cancel(paths: RunPaths) -> None:
    append_entry(paths.ledger_dir, "cancelled", "t-a-1", {})


@pytest.mark.parametrize("act", [_submit_more, _cancel])
def test_an_answer_from_before_a_submission_or_a_cancellation_is_not_used(
    slurm: FakeSlurm, paths: RunPaths, act: Callable[[RunPaths], None]
) -> None:
    status_of(paths.run_dir, fresh=False)
    act(paths)
    slurm.says("squeue", queue_row("2_0", "PENDING"))
    status_of(paths.run_dir, fresh=False)
    assert num_questions(slurm) == 2


def test_an_answer_that_lacks_a_source_is_soon_requested_again(
    slurm: FakeSlurm, paths: RunPaths, clock: Clock
) -> None:
    slurm.says("sacct", "", errors=DATABASE_DOWN, exit_code=1)
    assert status_of(paths.run_dir, fresh=False).problems
    clock.now_s += INCOMPLETE_FRESH_S
    slurm.says("sacct", "")
    assert not status_of(paths.run_dir, fresh=False).problems
    assert INCOMPLETE_FRESH_S < FRESH_S


def test_records_are_read_again_even_with_a_cached_answer(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    status_of(paths.run_dir, fresh=False)
    end(paths, "a", [1])
    status = status_of(paths.run_dir, fresh=False)
    assert [s.status for s in status.stage("a").slices] == ["running", "completed", "running"]
    assert num_questions(slurm) == 1


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"scope": 1}', b"\xff\xfe", b"null"])
def test_a_cache_that_cannot_be_read_costs_a_question_and_nothing_else(
    slurm: FakeSlurm, paths: RunPaths, garbage: bytes
) -> None:
    paths.scheduler_answer.write_bytes(garbage)
    assert status_of(paths.run_dir, fresh=False).status == "running"
    assert num_questions(slurm) == 1
    assert status_of(paths.run_dir, fresh=False).status == "running"
    assert num_questions(slurm) == 1


def test_a_cache_that_cannot_be_written_costs_a_question_and_nothing_else(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    paths.scheduler_answer.mkdir()  # root may write into a read-only folder, but not replace this
    (paths.scheduler_answer / "x").touch()
    for _ in range(2):
        assert status_of(paths.run_dir, fresh=False).status == "running"
    assert num_questions(slurm) == 2
    assert list(paths.run_dir.glob(".*.tmp")) == []


def test_an_answer_from_the_future_of_another_clock_is_not_used(
    slurm: FakeSlurm, paths: RunPaths, clock: Clock
) -> None:
    status_of(paths.run_dir, fresh=False)
    clock.now_s -= 60
    status_of(paths.run_dir, fresh=False)
    assert num_questions(slurm) == 2


def test_the_cache_keeps_the_whole_answer_of_slurm(slurm: FakeSlurm, paths: RunPaths) -> None:
    slurm.says("squeue", queue_row("1_0", "PENDING", "Priority", start="1763660000"))
    slurm.says(
        "sacct",
        account_row("1_1", "RUNNING") + account_row("1_2", "FAILED", ExitCode="3:9", ReqMem="4G"),
    )
    runs = {paths.run_dir: read_run(paths.run_dir)}
    assert answers(runs, fresh=True) == answers(runs, fresh=False)
    assert num_questions(slurm) == 1


def test_a_run_that_its_records_prove_complete_is_not_asked_about(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    end(paths, "a", [0, 1, 2])
    status = status_of(paths.run_dir)
    assert (status.status, status.asked_unix_s) == ("completed", None)
    assert num_questions(slurm) == 0


def test_any_number_of_runs_share_one_question_and_keep_their_part(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    made = [make_run(tmp_path / f"r{number}", {"a": 1}) for number in range(1, 6)]
    for number, paths in enumerate(made, start=1):
        submit(paths, "a", 1, str(number))
    slurm.says("squeue", queue_row("2", "RUNNING"))
    slurm.says("sacct", account_row("3", "FAILED"))
    runs = {paths.run_dir: read_run(paths.run_dir) for paths in made}
    found = answers(runs, fresh=False)
    assert [[key.job_id for key in answer.tasks] for answer in found.values()] == [
        [],
        ["2"],
        ["3"],
        [],
        [],
    ]
    assert num_questions(slurm) == 1
    assert status_of(made[2].run_dir, fresh=False).status == "failed"
    assert num_questions(slurm) == 1


def test_runs_whose_jobs_share_an_id_each_get_their_own_tasks(
    slurm: FakeSlurm, paths: RunPaths, tmp_path: Path
) -> None:
    """Submitted on two clusters that share a file system."""
    other = make_run(tmp_path / "other", {"a": 3})
    append_entry(other.ledger_dir, "intent", "t", {**_intent(paths), "job_name": "words.a.there"})
    append_entry(other.ledger_dir, "submitted", "t", {"job_id": "1"})
    runs = {made.run_dir: read_run(made.run_dir) for made in (paths, other)}
    found = answers(runs, fresh=True)
    assert [len(answer.tasks) for answer in found.values()] == [3, 0]
    assert num_questions(slurm) == 1


def _intent(paths: RunPaths) -> dict[str, Any]:
    return dict(read_ledger(paths.ledger_dir)[0].values)


def test_squeue_and_the_records_still_serve_without_accounting(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    paths = submitted_run(tmp_path / "r", 4)
    end(paths, "a", [0])
    end(paths, "a", [1], "failed", reason="it broke")
    slurm.says("squeue", queue_row("1_2", "RUNNING"))
    slurm.says("sacct", "", errors=ACCOUNTS_OFF, exit_code=1)
    status = status_of(paths.run_dir, fresh=False)
    words = [part.status for part in status.stage("a").slices]
    assert words == ["completed", "failed", "running", "unknown"]
    assert not status.problems
    assert len(status.notes) == 1


def test_an_array_that_was_longer_is_not_proven_complete_by_its_old_end(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    end(paths, "a", [0, 1, 2])
    (stage,) = read_json(paths.plan(1))["stages"]
    write_json_atomic(paths.plan(2), {"stages": [{**stage, "num_slices": 1, "is_array": False}]})
    submit(paths, "a", 1, "2")
    slurm.says("squeue", queue_row("2", "RUNNING"))
    assert status_of(paths.run_dir).status == "running"
