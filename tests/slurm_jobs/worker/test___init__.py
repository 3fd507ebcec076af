"""The end of the compute node's processes, each in a process of its own."""

import errno
import os
import subprocess
import sys

import pytest

from slurm_jobs.worker import main

CODE = """
import atexit, os
from slurm_jobs.worker import call, main, rank, stacks, supervisor

supervisor.supervise = rank.keep_rank = call.run_stage = lambda *_: 7
numbers = (*rank.FORWARDED, stacks.REQUEST_SIGNAL)
atexit.register(lambda: [os.kill(os.getpid(), number) for number in numbers])
main(WORDS)
"""


@pytest.mark.parametrize("words", [["task", "run", "token"], ["rank", "run"], ["call", "run"]])
def test_a_signal_that_comes_while_a_process_ends_does_not_change_how(words: list[str]) -> None:
    command = [sys.executable, "-c", CODE.replace("WORDS", str(words))]
    assert subprocess.run(command, check=False).returncode == 7


@pytest.mark.parametrize(
    ("verb", "module", "function"),
    [
        ("task", "supervisor", "supervise"),
        ("rank", "rank", "keep_rank"),
        ("call", "call", "run_stage"),
    ],
)
@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free space on its file system"),
        (errno.EDQUOT, "your quota is used up"),
        (errno.EROFS, "mounted read-only"),
        (errno.ESTALE, "check whether it exists"),
        (errno.EACCES, "give yourself the rights"),
        (errno.EIO, "check its file system"),
    ],
)
def test_a_run_file_that_cannot_be_written_is_one_line_in_the_jobs_log(  # noqa: PLR0917 - parametrised
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    module: str,
    function: str,
    number: int,
    remedy: str,
) -> None:
    def fail(*_words: object) -> int:
        raise OSError(number, os.strerror(number), "/r/completions/a/s00000.json")

    monkeypatch.setattr(f"slurm_jobs.worker.{module}.{function}", fail)
    monkeypatch.setattr("signal.pthread_sigmask", lambda *_words: set())  # of the test's process
    with pytest.raises(SystemExit) as ended:
        main([verb, "/r"])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"/r/completions/a/s00000.json: {os.strerror(number)}; " in line
    assert remedy in line
    assert "slurm-jobs resume" in line
