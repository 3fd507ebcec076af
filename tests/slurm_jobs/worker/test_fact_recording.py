"""Facts of a node in a process of its own, and the time that a rank's process took to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.base.processes.process_table import living_process
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.formats.timings.step_records import PROCESS_EXIT_SPAN, read_spans, spans_path
from slurm_jobs.worker import fact_recording
from slurm_jobs.worker.fact_recording import end_noting, facts_path, note_exit, start_noting
from tests.contexts import make_context
from tests.end_to_end.driver import wait_for

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def context(tmp_path: Path) -> TaskContext:
    run_dir = tmp_path / "run"
    made = make_context("s", run_dir, run_dir=run_dir)
    facts_path(made).parent.mkdir(parents=True)
    return made


def hanging_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvidia-smi that writes its pid, and hangs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    (folder / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return tmp_path / "pid"


def pid_in(path: Path) -> int | None:
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else None


def is_gone(pid: int) -> bool:
    return living_process(pid) is None


def test_facts_are_noted_in_a_process_of_its_own(context: TaskContext) -> None:
    pid = start_noting(context)
    assert pid is not None
    wait_for(facts_path(context).exists, "the facts")
    assert json.loads(facts_path(context).read_text())["node_name"] == "node-0"
    end_noting(pid, context)
    wait_for(lambda: is_gone(pid), "its end")


def test_noting_that_hangs_is_ended_with_what_it_had_started(
    context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = hanging_nvidia_smi(tmp_path, monkeypatch)
    pid = start_noting(context)
    assert pid is not None
    hanging = wait_for(lambda: pid_in(pid_file), "nvidia-smi")
    (facts_path(context).parent / ".node-00000.json.abc.tmp").touch()  # as if killed in a write
    (facts_path(context).parent / ".node-00001.json.abc.tmp").touch()  # another keeper's
    end_noting(pid, context)
    wait_for(lambda: is_gone(hanging), "the end of nvidia-smi")
    left = {path.name for path in facts_path(context).parent.iterdir()}
    assert left == {"node-00000.json", ".node-00001.json.abc.tmp"}


def test_a_rank_that_ends_at_once_has_its_node_noted_all_the_same(context: TaskContext) -> None:
    pid = start_noting(context)
    assert pid is not None
    end_noting(pid, context)
    assert facts_path(context).exists()


def test_facts_that_never_come_are_not_waited_for_without_end(
    context: TaskContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_recording, "FACTS_PATIENCE_S", 0.1)
    child = subprocess.Popen(["sleep", "1000"])
    end_noting(child.pid, context)
    assert is_gone(child.pid)
    child.wait()


def test_noting_dies_with_its_keeper(
    context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = hanging_nvidia_smi(tmp_path, monkeypatch)
    code = (
        "import os, sys, time\nfrom tests.contexts import make_context\n"
        "from pathlib import Path\nfrom slurm_jobs.worker.rank import start_noting\n"
        "root = Path(sys.argv[1])\n"
        "print(start_noting(make_context('s', root, run_dir=root)), flush=True)\ntime.sleep(1000)"
    )
    keeper = subprocess.Popen(
        [sys.executable, "-c", code, str(context.run_dir)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert keeper.stdout is not None
    noting_pid = int(keeper.stdout.readline())
    hanging = wait_for(lambda: pid_in(pid_file), "nvidia-smi")
    keeper.kill()
    keeper.wait()
    keeper.stdout.close()
    wait_for(lambda: is_gone(noting_pid) and is_gone(hanging), "the end of both")


def test_facts_that_cannot_be_written_are_logged_and_harm_no_task(
    context: TaskContext, capfd: pytest.CaptureFixture[str]
) -> None:
    facts_path(context).parent.rmdir()
    pid = start_noting(context)
    assert pid is not None
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert "facts of this node not noted: FileNotFoundError" in capfd.readouterr().err


def test_a_node_that_cannot_fork_any_more_notes_nothing(
    context: TaskContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert start_noting(context) is None


def test_a_signal_meant_for_the_rank_is_not_passed_on_twice(
    context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = hanging_nvidia_smi(tmp_path, monkeypatch)
    signals = (signal.SIGTERM,)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # as the keeper does
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # it has none; the test run has one
    try:
        pid = start_noting(context)
    finally:
        signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    assert pid is not None
    wait_for(lambda: pid_in(pid_file), "nvidia-smi")
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


ENDED_UNIX_S = 1_700_000_000.0


@pytest.fixture
def ended_context(tmp_path: Path) -> TaskContext:
    """Of a rank that timed one span, five seconds before its process ended."""
    ended_context = make_context("train", tmp_path)
    ended_context.timing_dir.mkdir(parents=True, exist_ok=True)
    line = b'{"name": "export", "start_unix_s": 1.0, "duration_s": 1.0}\n'
    wrote(spans_path(ended_context.timing_dir, 0), 5.0, line)
    return ended_context


def wrote(path: Path, before_end_s: float, content: bytes = b"") -> Path:
    path.write_bytes(content)
    os.utime(path, (ENDED_UNIX_S - before_end_s,) * 2)
    return path


def spans_of(ended_context: TaskContext) -> list[dict[str, object]]:
    spans, num_damaged = read_spans(spans_path(ended_context.timing_dir, 0))
    assert num_damaged == 0
    return spans


def test_a_process_ends_from_when_its_function_returned(
    ended_context: TaskContext, tmp_path: Path
) -> None:
    result = wrote(tmp_path / "result.json", 3.0)
    note_exit(ended_context, [result, tmp_path / "no-error.json"], ENDED_UNIX_S)
    assert spans_of(ended_context)[1:] == [
        {"name": PROCESS_EXIT_SPAN, "start_unix_s": ENDED_UNIX_S - 3.0, "duration_s": 3.0}
    ]


def test_what_stopped_and_returned_nothing_ends_from_its_last_span(
    ended_context: TaskContext,
) -> None:
    note_exit(ended_context, [], ENDED_UNIX_S)
    assert spans_of(ended_context)[-1]["duration_s"] == 5.0


def test_a_file_from_after_the_end_by_another_clock_makes_no_time_negative(
    ended_context: TaskContext, tmp_path: Path
) -> None:
    note_exit(ended_context, [wrote(tmp_path / "result.json", -60.0)], ENDED_UNIX_S)
    assert spans_of(ended_context)[-1]["duration_s"] == 0.0


def test_a_stage_that_times_nothing_gets_no_span(tmp_path: Path) -> None:
    ended_context = make_context("own", tmp_path)
    note_exit(ended_context, [], ENDED_UNIX_S)
    assert not spans_path(ended_context.timing_dir, 0).exists()
