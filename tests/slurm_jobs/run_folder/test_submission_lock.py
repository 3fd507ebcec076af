"""Real processes that take turns; what holds a turn waits on its standard input, not on a clock."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.base.errors import RunFailedError
from slurm_jobs.base.processes.process_table import process_entry
from slurm_jobs.run_folder.ledger import Entry, EntryKind, append_entry, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import (
    OTHER_HOST_PATIENCE_S,
    open_command,
    refuse_if_lost,
    submitting,
)
from tests.end_to_end.driver import wait_for

HOLDER = """
import sys
from pathlib import Path
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import submitting
with submitting(RunPaths(Path(sys.argv[1]))):
    print("inside", flush=True)
    sys.stdin.read()
"""

FIRST_THREAD_ENDS = """
import ctypes, threading
def hold():
    {}
threading.Thread(target=hold).start()
ctypes.CDLL(None).pthread_exit(None)
""".format(HOLDER.replace("\n", "\n    "))

CROWD = """
import sys
from pathlib import Path
from slurm_jobs.base.errors import RunFailedError
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import submitting
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
def holder(paths: RunPaths, script: str = HOLDER) -> Iterator[subprocess.Popen[str]]:
    """A process that is inside."""
    with start(script, paths.run_dir) as process:
        try:
            assert line_of(process) == "inside"
            yield process
        finally:
            process.kill()


def stat_letter(pid: int) -> str:
    entry = process_entry(pid)
    return entry.state if entry else ""


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "run")


def test_a_second_command_is_turned_away_while_the_first_lives(paths: RunPaths) -> None:
    with holder(paths) as first:
        for _ in range(2):  # being turned away opens no way in
            with (
                pytest.raises(RunFailedError, match=f"pid {first.pid} ") as away,
                submitting(paths),
            ):
                pytest.fail("two were inside")
            next_word = f"once it has ended: slurm-jobs status {paths.run_dir}"
            assert str(away.value).endswith(f"\n{next_word}")
        first.communicate("")
        assert first.returncode == 0
        with submitting(paths):
            pass


@pytest.mark.parametrize("is_reaped", [True, False], ids=["reaped", "zombie"])
def test_a_second_command_is_let_in_after_the_first_was_killed(
    paths: RunPaths, *, is_reaped: bool
) -> None:
    with holder(paths) as first:
        first.kill()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        if is_reaped:
            first.wait()
        assert open_command(read_ledger(paths.ledger_dir)) is None
        with submitting(paths):
            pass
    kinds = [entry.kind for entry in read_ledger(paths.ledger_dir)]
    assert kinds == ["begin", "begin", "end", "end"]  # that of the dead one, too


def test_a_command_that_raises_gives_its_turn_back(paths: RunPaths) -> None:
    with pytest.raises(KeyboardInterrupt), submitting(paths):
        raise KeyboardInterrupt
    with submitting(paths):
        pass


def test_another_process_with_the_pid_of_a_dead_command_holds_no_lock(
    paths: RunPaths,
) -> None:
    who = {"pid": os.getpid(), "host": socket.gethostname(), "process_start": "1"}
    append_entry(paths.ledger_dir, "begin", "dead", who)
    with submitting(paths):
        pass


def test_a_command_whose_first_thread_has_ended_alone_still_holds_the_lock(
    paths: RunPaths,
) -> None:
    with holder(paths, FIRST_THREAD_ENDS) as first:
        wait_for(lambda: stat_letter(first.pid) == "Z", "the end of the first thread")
        with pytest.raises(RunFailedError, match=f"pid {first.pid} "), submitting(paths):
            pytest.fail("two were inside")


class OtherHost:
    """The ledger as hosts with shifted clocks write it; the true time moves only by `pass_s`."""

    def __init__(self, paths: RunPaths, monkeypatch: pytest.MonkeyPatch, shift_s: float) -> None:
        self._paths, self._monkeypatch, self._shift_s = paths, monkeypatch, shift_s
        self._now_s = time.time()

    def pass_s(self, seconds: float) -> None:
        self._now_s += seconds

    def write(self, kind: EntryKind, token: str, **values: Any) -> Entry:
        self._set(self._now_s + self._shift_s)
        return append_entry(self._paths.ledger_dir, kind, token, values)

    def begin(self) -> Entry:
        # The pid is one that lives here, which says nothing of another host.
        return self.write("begin", "there", pid=os.getpid(), host="elsewhere", process_start=None)

    def can_begin_here(self) -> bool:
        self._set(self._now_s)
        try:
            with submitting(self._paths):
                return True
        except RunFailedError:
            return False

    def _set(self, now_s: float) -> None:
        clock = SimpleNamespace(
            time=lambda: now_s, strftime=time.strftime, localtime=time.localtime
        )
        self._monkeypatch.setattr("slurm_jobs.run_folder.ledger.time", clock)


HostOf = Callable[[float], OtherHost]


@pytest.fixture
def other_host(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> HostOf:
    """Make another host whose clock is so far ahead."""
    return lambda shift_s: OtherHost(paths, monkeypatch, shift_s)


SHIFTS = pytest.mark.parametrize("shift_s", [0.0, 600.0, -600.0, 50_000.0, -50_000.0])
"""How far the other host's clock is ahead of this one's."""


@SHIFTS
def test_a_live_command_on_another_host_is_not_taken_for_dead(
    other_host: HostOf, shift_s: float
) -> None:
    other = other_host(shift_s)
    other.begin()
    for number in range(4):  # it submits slowly, for longer than the patience in all
        other.pass_s(OTHER_HOST_PATIENCE_S - 5)
        assert not other.can_begin_here()
        other.write("submitted", f"job{number}", job_id=str(number))
        assert not other.can_begin_here()


@SHIFTS
def test_a_dead_command_on_another_host_counts_as_dead_after_patience(
    other_host: HostOf, shift_s: float
) -> None:
    other = other_host(shift_s)
    other.begin()
    other.pass_s(60)
    assert not other.can_begin_here()
    other.pass_s(OTHER_HOST_PATIENCE_S - 5)
    assert not other.can_begin_here()
    other.pass_s(5)
    assert other.can_begin_here()
    assert other.can_begin_here()  # its turn was ended; nobody waits for it again


def test_only_this_hosts_own_observation_starts_the_patience(other_host: HostOf) -> None:
    other = other_host(-OTHER_HOST_PATIENCE_S)
    other.begin()
    other.write("begin", "third", pid=1, host="a third one", process_start=None)
    other.write("end", "third")
    other.pass_s(OTHER_HOST_PATIENCE_S)
    assert not other.can_begin_here()


def test_a_command_that_died_on_another_host_last_week_is_not_waited_for(
    other_host: HostOf,
) -> None:
    other = other_host(0.0)
    other.begin()
    other.pass_s(7 * 86_400)
    assert other.can_begin_here()


def test_the_message_names_the_command_on_another_host_and_what_to_type(
    paths: RunPaths, other_host: HostOf
) -> None:
    other_host(0.0).begin()
    with pytest.raises(RunFailedError) as refused, submitting(paths):
        pass
    for words in (f"pid {os.getpid()} on elsewhere", "run the command again", "continues at once"):
        assert words in str(refused.value)


@pytest.mark.parametrize(("age_s", "is_open"), [(0.0, True), (-3 * 3600.0, False), (700.0, False)])
def test_a_command_on_another_host_is_submitting_while_its_entry_is_new(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch, age_s: float, *, is_open: bool
) -> None:
    OtherHost(paths, monkeypatch, -age_s).begin()
    monkeypatch.setattr("slurm_jobs.run_folder.ledger.time", time)
    assert (open_command(read_ledger(paths.ledger_dir)) is not None) == is_open


def test_a_turn_is_lost_only_to_a_command_that_ended_it(
    paths: RunPaths, other_host: HostOf
) -> None:
    other = other_host(50_000.0)  # by the clocks alone, silent for hours
    with submitting(paths) as turn:
        refuse_if_lost(turn, turn.begin)
        newest = append_entry(paths.ledger_dir, "submitted", "job", {"job_id": "7"})
        other.begin()
        refuse_if_lost(turn, newest)
        other.write("end", "there")
        refuse_if_lost(turn, newest)
        other.write("end", turn.begin.token, ended_by="there")
        with pytest.raises(RunFailedError, match="on elsewhere\\) took this one for dead"):
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
