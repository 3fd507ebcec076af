"""Whatever another program does, the asker gets an answer in time."""

import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_jobs.base.processes.process_table import living_process
from slurm_jobs.base.processes.programs import CommandAnswer, ask_together
from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL


def ask(command: Sequence[str], *, limit_s: float = 60.0, max_bytes: int = 1000) -> CommandAnswer:
    return ask_together({"it": command}, limit_s=limit_s, max_bytes=max_bytes)["it"]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_what_a_program_says_is_its_answer() -> None:
    assert ask(python("print('fine')")) == CommandAnswer(output=b"fine\n")


def test_a_program_that_is_missing_or_fails_is_named_with_the_reason() -> None:
    assert ask(["no-such-program"]).problem == "no-such-program: No such file or directory"
    failed = ask(python("import sys; print('half'); sys.exit('it\\nbroke')"))
    assert (failed.output, failed.problem) == (b"half\n", f"{sys.executable}: it")
    assert ask(python("raise SystemExit(3)")).problem.endswith("exit code 3")


def test_a_program_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    looks = itertools.count()  # the first sets the end, the second lets it read what is said

    def now_s() -> float:
        return 1e9 if next(looks) >= 2 and begun.exists() else 0.0  # time is up once it hangs

    monkeypatch.setattr("slurm_jobs.base.processes.programs.time", SimpleNamespace(monotonic=now_s))
    script = f"sleep 1000 & echo $$ $! > {tmp_path}/pids; touch {begun}; echo begun; wait"
    answer = ask(["sh", "-c", script])
    assert answer == CommandAnswer(output=b"begun\n", problem="sh: no answer in 60 s")
    for pid in (tmp_path / "pids").read_text().split():
        assert is_gone(int(pid)), pid


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:  # init takes in what lost its parent a moment later
        if living_process(pid) is None:
            return True
        time.sleep(0.01)
    return False


def test_an_answer_that_is_too_long_is_cut_and_its_program_ended() -> None:
    answer = ask(python("while True: print('x' * 999)"), max_bytes=5000)
    assert answer.is_cut
    assert len(answer.output) == 5000
    assert answer.problem == ""


def test_much_noise_on_standard_error_does_not_hold_a_program_up() -> None:
    answer = ask(python("import sys; sys.stderr.write('e' * 10**6); print('fine')"))
    assert answer == CommandAnswer(output=b"fine\n")


def test_programs_that_close_their_output_and_stay_are_late() -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(1000)"
    assert "no answer" in ask(python(code), limit_s=1.0).problem


def test_programs_are_asked_side_by_side(tmp_path: Path) -> None:
    # Each waits for the other one: one after the other they would never end.
    os.mkfifo(tmp_path / "fifo")
    commands = {
        mode: [
            *python(f"import sys; open(sys.argv[1], {mode!r}); print('met')"),
            f"{tmp_path}/fifo",
        ]
        for mode in ("r", "w")
    }
    answers = ask_together(commands, limit_s=60, max_bytes=100)
    assert {name: answer.text for name, answer in answers.items()} == {"r": "met\n", "w": "met\n"}


def test_a_program_killed_from_outside_is_no_answer() -> None:
    code = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    assert ask(python(code)).problem.endswith("exit code -9")


def test_a_program_does_not_hear_that_the_job_is_to_stop() -> None:
    """Slurm sends the signal to all processes of a job; importing torch ended by it in `doctor`."""
    code = f"import os; os.kill(os.getpid(), {int(STOP_SIGNAL)}); print('said')"
    assert ask(python(code)).text == "said\n"
    assert STOP_SIGNAL not in signal.pthread_sigmask(signal.SIG_BLOCK, ())  # of this thread
