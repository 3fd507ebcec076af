"""Functions of `pipeline` called in another Python: real processes, real signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import FileError, InputError, RunFailedError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.base.processes.process_table import living_process
from slurm_jobs.commands.data_sets import stage_python as calls
from slurm_jobs.commands.data_sets.stage_python import (
    StagePython,
    call_entry_point,
    own_python,
    stage_python,
)
from slurm_jobs.run_folder.orders import order_to_json
from slurm_jobs.run_folder.paths import RunPaths
from tests.cluster.processes import is_readable
from tests.slurm_jobs.run.fabricate import make_run, submit
from tests.slurm_jobs.worker.orders import order

ROOT = Path(__file__).resolve().parents[4]
FUNCTIONS = """
import os, signal, sys, time
from slurm_jobs.base.errors import StageError

def echo(arguments, report):
    for done in range(3):
        report(done + 1, 3, "things")
        time.sleep(0.11)
    print("a library prints")
    return {"got": arguments, "slurm_jobs": sys.modules["slurm_jobs"].__file__, "path": sys.path}

def refuse(arguments, report):
    raise StageError("the data set is not finished")

def lack(arguments, report):
    import a_package_that_nobody_has

def cannot_read(arguments, report):
    open("/nowhere/at/all")

def crash(arguments, report):
    raise RuntimeError("a mistake of ours")

def die(arguments, report):
    os.kill(os.getpid(), signal.SIGKILL)

def wait(arguments, report):
    with open(arguments["started"], "w") as stream:
        stream.write(str(os.getpid()))
    signal.pause()
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Our `slurm_jobs`, and a `pipeline` of the test's own beside it."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "slurm_jobs").symlink_to(ROOT / "slurm_jobs")
    (folder / "pipeline").mkdir()
    (folder / "pipeline" / "__init__.py").write_text("")
    (folder / "pipeline" / "tried.py").write_text(FUNCTIONS)
    (folder / "numpy.py").write_text("raise ImportError('a neighbour in site-packages')")
    monkeypatch.setattr(calls, "_PACKAGE_DIR", folder / "slurm_jobs")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


def call(name: str, **arguments: Any) -> Any:
    return call_entry_point(f"pipeline.tried:{name}", arguments, python=own_python())


def test_result_and_progress_come_back_and_prints_do_not_mix_in(packages: Path) -> None:
    said: list[tuple[int, int, str]] = []
    result = call_entry_point(
        "pipeline.tried:echo",
        {"a": [1, "ü"]},
        python=own_python(),
        on_progress=lambda *words: said.append(words),
    )
    assert result["got"] == {"a": [1, "ü"]}
    assert said == [(1, 3, "things"), (2, 3, "things"), (3, 3, "things")]


def test_our_packages_are_loaded_by_path_and_their_neighbours_are_not(packages: Path) -> None:
    """In a wheel's site-packages lie packages of another Python."""
    result = call("echo")
    assert result["slurm_jobs"] == str(packages / "slurm_jobs" / "__init__.py")
    assert str(packages) not in result["path"]


def test_package_of_that_name_elsewhere_is_not_taken(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    for name in ("pipeline", "slurm_jobs"):
        (other / name).mkdir(parents=True)
        (other / name / "__init__.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.setenv("PYTHONPATH", str(other))
    assert call("echo")["got"] == {}


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("refuse", RunFailedError, "^the data set is not finished$"),
        ("lack", InputError, r"lacks a package: .*a_package_that_nobody_has.* -m pip install"),
        ("cannot_read", FileError, "/nowhere/at/all"),
        ("crash", FileError, r"ended without an answer \(exit code 1\)(.|\n)*a mistake of ours"),
        ("die", FileError, r"signal SIGKILL: probably out of memory"),
    ],
)
def test_each_exit_without_a_result_raises_its_error(
    packages: Path, name: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(name)


def test_a_missing_or_wrong_python_is_refused_with_its_origin(packages: Path) -> None:
    gone = StagePython(program="/nowhere/python", whose="the Python of stage `c`")
    with pytest.raises(InputError, match=r"/nowhere/python: No such file .*stage `c`.*--python"):
        call_entry_point("pipeline.tried:echo", {}, python=gone)
    other = StagePython(program="/bin/false", whose="the Python of stage `c`")
    with pytest.raises(FileError, match=r"/bin/false .*ended without an answer \(exit code 1\)"):
        call_entry_point("pipeline.tried:echo", {}, python=other)


def script(path: Path, text: str) -> StagePython:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return StagePython(program=str(path), whose="the Python of stage `c`")


def test_words_of_a_script_that_starts_python_are_no_answers(
    packages: Path, tmp_path: Path
) -> None:
    greeting = 'echo "module loaded"\necho 5'
    python = script(tmp_path / "python", f'{greeting}\nexec {sys.executable} "$@"')
    assert call_entry_point("pipeline.tried:echo", {"a": 1}, python=python)["got"] == {"a": 1}


@pytest.mark.parametrize("words", ["no Python at all", '{"result": {"half', "5", "[1]"])
def test_a_program_with_unexpected_output_is_refused_with_the_output(
    packages: Path, tmp_path: Path, words: str
) -> None:
    python = script(tmp_path / "python", f"printf '%s' '{words}'")
    with pytest.raises(FileError, match=rf"ended without an answer(.|\n)*{re.escape(words)}$"):
        call_entry_point("pipeline.tried:echo", {}, python=python)


def is_alive(pid: int) -> bool:
    return living_process(pid) is not None


def read_pid(fifo: Path) -> int:
    """Blocks until the process has written it."""
    return int(fifo.read_text())


def test_interrupt_ends_the_process_too(packages: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    pids: list[int] = []

    def interrupt_when_it_waits() -> None:
        pids.append(read_pid(fifo))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    helper = threading.Thread(target=interrupt_when_it_waits)
    helper.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call("wait", started=str(fifo))
    finally:
        helper.join()
        signal.signal(signal.SIGINT, before)
    assert not is_alive(pids[0])


def test_process_ends_when_its_caller_is_killed(packages: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    code = (
        "import sys; from pathlib import Path\n"
        "from slurm_jobs.commands.data_sets import stage_python as e\n"
        f"e._PACKAGE_DIR = Path({str(packages / 'slurm_jobs')!r})\n"
        f"e.call_entry_point('pipeline.tried:wait', {{'started': {str(fifo)!r}}},"
        " python=e.own_python())"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    handle = os.pidfd_open(read_pid(fifo))
    caller.kill()
    caller.wait()
    try:
        assert is_readable(handle, 60.0), "the process survives its caller"
    finally:
        os.close(handle)


def submit_with(paths: RunPaths, *programs: str) -> None:
    """A job of stage `c` for each of these Pythons, one after the other."""
    for number, program in enumerate(programs, start=1):
        token = submit(paths, "c", 2, str(number))
        made = replace(order(paths.run_dir), token=token, python=program)
        paths.job_dir(token).mkdir(parents=True)
        write_json_atomic(paths.job_json(token), order_to_json(made))


def test_anothers_run_does_not_say_which_python_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = make_run(tmp_path / "r", {"c": 2})
    submit_with(paths, "/evil/python")
    assert stage_python(paths, "c").program == "/evil/python"
    looking_uid = paths.run_dir.stat().st_uid + 1
    monkeypatch.setattr("os.getuid", lambda: looking_uid)
    with pytest.raises(
        InputError, match=r"names the Python /evil/python, .* with --python: `python3`"
    ):
        stage_python(paths, "c")
    own = make_run(tmp_path / "same", {"c": 2})
    submit_with(own, sys.executable)
    assert stage_python(own, "c").program == sys.executable


def test_python_is_that_of_the_newest_job_of_the_stage(tmp_path: Path) -> None:
    paths = make_run(tmp_path / "r", {"c": 2, "never": 1})
    submit_with(paths, "/old/python", "/new/python")
    found = stage_python(paths, "c")
    assert found == StagePython(program="/new/python", whose="the Python of stage `c`")
    assert stage_python(paths, "never").program == sys.executable
