"""Real processes that take turns; what holds a turn waits on its standard input, not on a clock."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_jobs.common.errors import RunFailedError
from slurm_jobs.run.ledger import append_entry, read_ledger
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.turns import OTHER_HOST_PATIENCE_S, open_command, refuse_if_lost, submitting

HOLDER = """
import sys
from pathlib import Path
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.turns import submitting
with submitting(RunPaths(Path(sys.argv[1]))):
    print("inside", flush=True)
    sys.stdin.read()
"""

CROWD = """
import sys
from pathlib import Path
from slurm_jobs.common.errors import RunFailedError
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.turns import submitting
paths = RunPaths(Path(sys.argv[1]))
print("ready", flush=True)
while sys.stdin.readline():
    try:
        with submitting(paths):
            print("inside", flush=True)
            sys.stdin.readline()
    except RunFailedError:
        print("away", flush=True)
        sys.stdin.readline()
    print("out", flush=True)
"""


def start(script: str, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def holder(paths: RunPaths) -> Iterator[subprocess.Popen[str]]:
    """A process that is inside."""
    with start(HOLDER, paths.run_dir) as process:
        try:
            assert line_of(process) == "inside"
            yield process
        finally:
            process.kill()


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "run")


def test_a_second_command_is_turned_away_while_the_first_lives(paths: RunPaths) -> None:
    with holder(paths) as first:
        for _ in range(2):  # being turned away opens no way in
            with pytest.raises(RunFailedError, match=f"pid {first.pid} "), submitting(paths):
                pytest.fail("two were inside")
        first.communicate("")
        assert first.returncode == 0
        with submitting(paths):
            pass


def test_who_is_turned_away_is_told_what_to_type(paths: RunPaths) -> None:
    with holder(paths), pytest.raises(RunFailedError) as turned_away, submitting(paths):
        pass
    assert str(turned_away.value).endswith(
        f"\nonce it has ended: slurm-jobs status {paths.run_dir}"
    )


def test_a_second_command_is_let_in_after_the_first_was_killed(paths: RunPaths) -> None:
    with holder(paths) as first:
        first.kill()
        first.wait()
        with submitting(paths):
            pass
    kinds = [entry.kind for entry in read_ledger(paths.ledger_dir)]
    assert kinds == ["begin", "begin", "end"]


def test_a_command_that_raises_gives_its_turn_back(paths: RunPaths) -> None:
    with pytest.raises(KeyboardInterrupt), submitting(paths):
        raise KeyboardInterrupt
    with submitting(paths):
        pass


def test_another_process_that_got_the_pid_of_a_dead_command_keeps_nobody_out(
    paths: RunPaths,
) -> None:
    who = {"pid": os.getpid(), "host": socket.gethostname(), "process_start": "1"}
    append_entry(paths.ledger_dir, "begin", "dead", who)
    with submitting(paths):
        pass


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [
        (0.0, pytest.raises(RunFailedError, match="on elsewhere")),
        (OTHER_HOST_PATIENCE_S - 5, pytest.raises(RunFailedError, match="on elsewhere")),
        (OTHER_HOST_PATIENCE_S + 1, nullcontext()),
    ],
)
def test_a_command_on_another_host_counts_as_dead_after_patience_alone(
    paths: RunPaths,
    monkeypatch: pytest.MonkeyPatch,
    age_s: float,
    expected: AbstractContextManager[object],
) -> None:
    # The pid is one that lives here: of another host that says nothing.
    who = {"pid": os.getpid(), "host": "elsewhere", "process_start": None}
    append_entry(paths.ledger_dir, "begin", "there", who)
    later = SimpleNamespace(
        time=lambda: time.time() + age_s, strftime=time.strftime, localtime=time.localtime
    )
    monkeypatch.setattr("slurm_jobs.run.turns.time", later)
    with expected, submitting(paths):
        pass


def test_a_command_on_another_host_lives_as_long_as_it_submits(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = {"pid": os.getpid(), "host": "elsewhere", "process_start": None}
    append_entry(paths.ledger_dir, "begin", "there", who)
    append_entry(paths.ledger_dir, "submitted", "job", {"job_id": "7"})
    began_s, acted_s = (e.values["time_unix_s"] for e in read_ledger(paths.ledger_dir))
    middle_s = (began_s + acted_s) / 2 + OTHER_HOST_PATIENCE_S  # too long since the one alone
    assert began_s + OTHER_HOST_PATIENCE_S < middle_s < acted_s + OTHER_HOST_PATIENCE_S
    clock = SimpleNamespace(time=lambda: middle_s, strftime=time.strftime, localtime=time.localtime)
    monkeypatch.setattr("slurm_jobs.run.turns.time", clock)
    assert open_command(read_ledger(paths.ledger_dir)) is not None
    with pytest.raises(RunFailedError, match=r"it counts as dead at \d\d:\d\d:\d\d"):
        submitting(paths).__enter__()


@pytest.mark.parametrize(
    ("host", "silent_s", "expected"),
    [
        ("elsewhere", OTHER_HOST_PATIENCE_S, pytest.raises(RunFailedError, match="for dead")),
        ("elsewhere", OTHER_HOST_PATIENCE_S / 2, nullcontext()),  # it was turned away
        (socket.gethostname(), OTHER_HOST_PATIENCE_S, nullcontext()),  # it saw that this one lives
    ],
)
def test_a_turn_is_lost_to_who_began_elsewhere_after_patience(
    paths: RunPaths,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    silent_s: float,
    expected: AbstractContextManager[object],
) -> None:
    with submitting(paths) as turn:
        refuse_if_lost(turn, turn.begin)
        newest = append_entry(paths.ledger_dir, "submitted", "job", {"job_id": "7"})
        sign_s = newest.values["time_unix_s"]
        clock = SimpleNamespace(time=lambda: sign_s + silent_s)
        monkeypatch.setattr("slurm_jobs.run.ledger.time", clock)
        who = {"pid": 7, "host": host, "process_start": "1"}
        append_entry(paths.ledger_dir, "begin", "there", who)
        with expected:
            refuse_if_lost(turn, newest)


def test_of_many_commands_that_begin_at_once_exactly_one_gets_in(paths: RunPaths) -> None:
    crowd = [start(CROWD, paths.run_dir) for _ in range(6)]
    assert [line_of(process) for process in crowd] == ["ready"] * 6
    for _ in range(5):
        say_to_all(crowd)
        # Whoever is inside stays there until all have answered.
        answers = [line_of(process) for process in crowd]
        assert sorted(answers) == ["away"] * 5 + ["inside"]
        say_to_all(crowd)
        assert [line_of(process) for process in crowd] == ["out"] * 6
    for process in crowd:
        process.communicate(timeout=30)
        assert process.returncode == 0


def say_to_all(crowd: list[subprocess.Popen[str]]) -> None:
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
