"""Stacks of a rank: which place they name, and how a process writes them."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_jobs.formats.records.heartbeat import stacks_path
from slurm_jobs.worker.hangs import describe_cause
from slurm_jobs.worker.stacks import (
    _COLLECTIVES,
    _DEVICE_WAITS,
    _LOOP,
    _LOOP_PHASES,
    PHASES,
    RankStacks,
    parse_stacks,
    read_stacks,
    request_stacks,
)
from tests.slurm_jobs.worker.rank_stacks import CODE, SITE, stacks


def test_the_files_and_functions_that_name_a_phase_exist() -> None:
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    roots = {"pipeline": Path(__file__).parents[3], "torch": Path(torch.origin).parents[1]}
    named = [part for part, _ in PHASES]
    named += [*_COLLECTIVES, *_DEVICE_WAITS, _LOOP]
    parts = [part.lstrip("/") for part in named]
    missing = [part for part in parts if not [*roots[part.split("/")[0]].glob(f"{part}*")]]
    assert not missing
    loop = (roots["pipeline"] / _LOOP).read_text()
    assert not [name for name in _LOOP_PHASES if f"def {name}(" not in loop]


NAPPING = ("nap", "run")


def _plain(*frames: str) -> tuple[str, ...]:
    """A function's stack: calls, innermost first, each `FILE:LINE FUNCTION`."""
    lines = []
    for frame in (*frames, f"{CODE}/slurm_jobs/worker/call.py:9 call_function"):
        place, _, function = frame.partition(" ")
        file, _, line = place.rpartition(":")
        lines.append(f'  File "{file}", line {line} in {function}')
    return tuple(lines)


LIB, OWN = "/usr/lib/python3.11", "/runs/r/code/0a1b/user/forks.py"


@pytest.mark.parametrize(
    ("main", "text"),
    [
        (_plain(f"{OWN}:7 nap"), "was at nap (forks.py:7)"),
        (
            _plain(
                f"{LIB}/multiprocessing/popen_fork.py:27 poll",
                f"{LIB}/multiprocessing/process.py:149 join",
                f"{OWN}:9 term",
            ),
            "was at term (forks.py:9), in join",
        ),
        (
            _plain(f"{LIB}/threading.py:320 wait", f"{OWN}:9 run"),
            "was at run (forks.py:9), in wait",
        ),
        (_plain(f"{SITE}/joblib/parallel.py:7 get"), "was at get (joblib/parallel.py:7)"),
    ],
)
def test_a_plain_function_is_named_by_its_own_line_and_the_call(
    main: tuple[str, ...], text: str
) -> None:
    assert describe_cause({0: stacks(main)}) == (0, text)


def test_a_line_that_is_still_being_written_is_left_out() -> None:
    request = "main thread 0x01\n\n--- stacks of process 9 at 2026-11-26 19:38:10, state S\n"
    frames = "".join(f'  File "stage.py", line {9 + n} in {f}\n' for n, f in enumerate(NAPPING))
    text = f"{request}Current thread 0x01 (most recent call first):\n{frames}"
    whole = parse_stacks(text).main
    assert [str(frame) for frame in whole] == ["nap (stage.py:9)", "run (stage.py:10)"]
    for end in range(len(text)):
        part = parse_stacks(text[:end]).main
        assert part == whole[: len(part)]


HANGS = """
import ctypes, sys, time
from pathlib import Path
from slurm_jobs.worker.stacks import register_stacks
register_stacks(Path(sys.argv[1]), 4)
print("ready", flush=True)
def hangs_here():
    if sys.argv[2] == "lock":
        ctypes.PyDLL(None).sleep(600)  # keeps the interpreter lock, as a driver that hangs may
    time.sleep(600)
hangs_here()
"""


def _is_partial(answer: RankStacks) -> bool:
    return not answer.main or answer.main[-1].function != "<module>"


@pytest.mark.parametrize("how", ["sleep", "lock"])
def test_a_process_writes_its_stacks_whatever_its_main_thread_is_in(
    tmp_path: Path, how: str
) -> None:
    command = [sys.executable, "-c", HANGS, str(tmp_path), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            for _ in range(2):  # the second answer counts
                request_stacks(tmp_path, 4, process.pid)
                end_s = time.monotonic() + 120
                answer = read_stacks(tmp_path, 4)
                while _is_partial(answer) and time.monotonic() < end_s:
                    time.sleep(0.02)
                    answer = read_stacks(tmp_path, 4)
            assert process.poll() is None
        finally:
            process.kill()
    assert [frame.function for frame in answer.main] == ["hangs_here", "<module>"]
    assert answer.state
    assert stacks_path(tmp_path, 4).stat().st_mode & 0o077 in {0, 0o044}


def test_a_process_that_has_not_registered_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        request_stacks(tmp_path, 0, process.pid)
        assert not stacks_path(tmp_path, 0).exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
