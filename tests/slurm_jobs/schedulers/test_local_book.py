import fcntl
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.schedulers import local
from slurm_jobs.schedulers.local import LocalBook

VALUES = {"token": "t", "job_name": "n", "dependencies": {}, "max_running": 2, "num_cpus": 1}
RUNNER = """
import sys
from pathlib import Path
from slurm_jobs.schedulers.local import LocalBook
with LocalBook(Path(sys.argv[1])).runner_lock(wait=True) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def book(tmp_path: Path) -> LocalBook:
    return LocalBook(tmp_path / "local")


def states(book: LocalBook, *task_ids: str) -> list[str | None]:
    found = [book.state(task_id) for task_id in task_ids]
    return [task and task.state for task in found]


def test_jobs_are_numbered_in_the_order_in_which_they_were_queued(book: LocalBook) -> None:
    first, second = book.add_job(VALUES, None), book.add_job(VALUES, (0, 2))
    assert (first.job_id, first.task_ids) == ("1", ("1",))
    assert (second.job_id, second.task_ids) == ("2", ("2_0", "2_2"))
    assert book.jobs() == [first, second]
    assert states(book, "1", "2_0", "2_2", "2_1") == ["PENDING", "PENDING", "PENDING", None]


def test_a_job_that_another_command_queued_meanwhile_keeps_its_number(
    book: LocalBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_once, others = local.create_once, []

    def slow(path: Path, data: bytes) -> bool:
        if not others:
            others.append(path)
            assert create_once(path, b"another's")
        return create_once(path, data)

    monkeypatch.setattr(local, "create_once", slow)
    assert book.add_job(VALUES, None).job_id == "2"
    assert others[0].read_bytes() == b"another's"


def test_states_use_only_words_that_an_earlier_runner_knows(
    book: LocalBook,
) -> None:
    """It reads them with `TaskAccounting(**values)`, as that class was then."""
    book.add_job(VALUES, (0, 1))
    book.write_state(TaskAccounting(job_id="1_0", state="RUNNING", source="local"))
    for path in book.states_dir.iterdir():
        assert "job_name" not in json.loads(path.read_text())
    task = book.state("1_0")
    assert task is not None
    assert (task.state, task.job_name) == ("RUNNING", "")


def test_a_state_that_a_quicker_runner_wrote_is_kept(
    book: LocalBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_once = local.create_once

    def with_a_quick_runner(path: Path, data: bytes) -> bool:
        made = create_once(path, data)
        if path.parent == book.jobs_dir:  # the job can be seen now, its states are not yet written
            book.write_state(TaskAccounting(job_id="1_0", state="RUNNING", source="local"))
        return made

    monkeypatch.setattr(local, "create_once", with_a_quick_runner)
    book.add_job(VALUES, (0, 1))
    assert states(book, "1_0", "1_1") == ["RUNNING", "PENDING"]


def test_a_state_reads_back_as_it_was_written(book: LocalBook) -> None:
    book.create()
    values: dict[str, Any] = {"exit_code": 3, "end_unix_s": 2.5, "reason": "Dependency"}
    task = TaskAccounting(job_id="4_1", state="FAILED", source="local", **values)
    book.write_state(task)
    assert book.state("4_1") == task


def test_requests_are_taken_once_and_each_kind_separately(book: LocalBook) -> None:
    book.request("cancel", "12_3")
    book.request("cancel", "12_3")
    book.request("cancel", "7")
    book.request("requeue", "12_3")
    assert sorted(book.take_requests("cancel")) == ["12_3", "7"]
    assert book.take_requests("cancel") == []
    assert book.take_requests("requeue") == ["12_3"]


def test_a_runner_counts_while_its_process_lives_and_no_longer(book: LocalBook) -> None:
    assert not book.has_runner()
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", RUNNER, str(book.folder)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "True\n"
        assert book.has_runner()
        assert book.has_runner()  # asking takes nothing from it
        with book.runner_lock(wait=False) as is_idle:
            assert not is_idle
        runner.kill()
    assert not book.has_runner()


def test_who_only_looks_whether_a_runner_lives_is_taken_for_none(
    book: LocalBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.create()
    book.lock_file.touch()
    looker = book.lock_file.open()
    fcntl.flock(looker, fcntl.LOCK_SH)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        looker.close()

    monkeypatch.setattr("slurm_jobs.schedulers.local.time", SimpleNamespace(sleep=sleep))
    with book.runner_lock(wait=False) as is_idle:
        assert is_idle
        assert book.has_runner()
    assert len(waits) == 1


def test_asking_for_a_runner_leaves_no_lock_behind(book: LocalBook) -> None:
    assert not book.has_runner()
    with book.runner_lock(wait=False) as is_idle:
        assert is_idle
