"""What forked children of a process with our signal handlers do with a signal."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.processes.stop_requests import RELAY_SIGNAL

ROOT = Path(__file__).resolve().parents[4]
BEGIN = """
import json, multiprocessing, os, pathlib, signal, subprocess, sys, threading, time
from slurm_jobs.base.processes import signal_handlers
from slurm_jobs.base.processes.stop_requests import RELAY_SIGNAL, STOP_SIGNAL
from slurm_jobs.base.processes.stop_requests import install_stop_handler, stop_requested

def forked(function, *arguments):
    "Return what a function returns in a forked child."
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.write(writing, json.dumps(function(*arguments)).encode())
        os._exit(0)
    os.close(writing)
    assert ended(pid) == 0
    return json.loads(os.read(reading, 4096))

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def actions(*numbers, pid="self"):
    "What the kernel does with signals of a process."
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    masks = {"blocked": "SigBlk", "ignored": "SigIgn", "caught": "SigCgt"}
    found = []
    for number in numbers:
        words = [word for word, name in masks.items() if int(fields[name], 16) >> number - 1 & 1]
        found.append(" ".join(words) or "default")
    return found

ALL = (signal.SIGTERM, RELAY_SIGNAL, STOP_SIGNAL)
install_stop_handler()
"""
IN_PARENT, IN_CHILDREN = ["caught", "caught", "ignored"], ["default", "default", "ignored"]


def said(script: str, *words: str, before: str = "") -> Any:
    """Return the last line that a script prints in its own process, which must end in time."""
    done = subprocess.run(
        [sys.executable, "-c", before + BEGIN + script, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


def test_terminate_ends_a_forked_process_however_early_it_comes() -> None:
    script = """
fork, codes = multiprocessing.get_context("fork"), set()
for _ in range(100):
    child = fork.Process(target=signal.pause)
    child.start()
    child.terminate()
    child.join()
    codes.add(child.exitcode)
print(json.dumps([*codes, stop_requested()]))
"""
    assert said(script) == [-15, False]


def test_a_signal_that_comes_within_the_fork_ends_the_child() -> None:
    before = """
import os, signal
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
"""
    script = """
pid = os.fork()
if not pid:
    signal.pause()
print(json.dumps([ended(pid), stop_requested()]))
"""
    assert said(script, before=before) == [-15, False]


@pytest.mark.parametrize("depth", [1, 3])
def test_children_at_any_depth_end_on_sigterm_and_ignore_the_stop_signal(depth: int) -> None:
    script = """
def nested(depth):
    return forked(nested, depth - 1) if depth else actions(*ALL)

print(json.dumps([nested(int(sys.argv[1])), actions(*ALL)]))
"""
    assert said(script, str(depth)) == [
        ["default", "default", "ignored"],
        ["caught", "caught", "ignored"],
    ]


def test_a_child_forked_in_a_thread_has_the_default_actions_too() -> None:
    script = """
found = []
thread = threading.Thread(target=lambda: found.append(forked(actions, *ALL)))
thread.start()
thread.join()
print(json.dumps(found + [actions(*ALL)]))
"""
    assert said(script) == [IN_CHILDREN, IN_PARENT]


def test_a_handler_of_the_stage_stays_in_its_children() -> None:
    script = """
got = []
signal.signal(signal.SIGTERM, lambda number, _: got.append(int(number)))
signal.signal(signal.SIGQUIT, lambda number, _: got.append(int(number)))

def child():
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGQUIT)
    return got

print(json.dumps([forked(child), forked(actions, STOP_SIGNAL)]))
"""
    before = """
from slurm_jobs.base.processes import signal_handlers
import signal, sys
signal_handlers.write_stacks_on(signal.SIGQUIT, sys.stdout)
"""
    assert said(script, before=before) == [[15, 3], ["ignored"]]


def test_signals_that_the_stage_blocks_stay_blocked_after_a_fork() -> None:
    script = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print(json.dumps([forked(actions, *ALL), actions(*ALL)]))
"""
    assert said(script) == [
        ["blocked", "default", "ignored"],
        ["blocked caught", "caught", "ignored"],
    ]


@pytest.mark.parametrize("prepare", ["None", "list"])
def test_an_executed_program_starts_with_the_default_actions(prepare: str) -> None:
    script = f"""
child = subprocess.Popen(["sleep", "60"], preexec_fn={prepare})
while b"sleep" not in pathlib.Path(f"/proc/{{child.pid}}/cmdline").read_bytes():
    time.sleep(0.01)
found = actions(*ALL, pid=child.pid)
child.terminate()
print(json.dumps([found, child.wait()]))
"""
    assert said(script) == [IN_CHILDREN, -15]


def test_a_child_writes_neither_to_its_parents_stacks_nor_to_its_pipe(
    tmp_path: Path,
) -> None:
    script = """
found = actions(signal.SIGQUIT)  # ignored in a test run in the background
stacks = open(sys.argv[1], "wb", buffering=0)
signal_handlers.write_stacks_on(signal.SIGQUIT, stacks)
reading, writing = os.pipe2(os.O_NONBLOCK)
signal_handlers.wake_by(writing)

def child():
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    return actions(signal.SIGQUIT)

assert forked(child) == found
try:
    woken = list(os.read(reading, 9))
except BlockingIOError:
    woken = []
os.kill(os.getpid(), RELAY_SIGNAL)
print(json.dumps([woken, list(os.read(reading, 9)), stacks.tell(), stop_requested()]))
"""
    assert said(script, str(tmp_path / "stacks")) == [[], [RELAY_SIGNAL], 0, True]


def test_handlers_of_a_block_are_neither_left_behind_nor_inherited() -> None:
    script = """
hup = signal.SIGHUP
signal.signal(hup, signal.SIG_DFL)  # nohup ignores it
with signal_handlers.handling([signal.SIGTERM, hup], lambda *_: None):
    with signal_handlers.handling([hup], lambda *_: None):
        within = forked(actions, signal.SIGTERM, hup)
    found = [within, forked(actions, signal.SIGTERM, hup), actions(hup)]
found += [forked(actions, *ALL, hup), actions(*ALL, hup)]
os.kill(os.getpid(), signal.SIGTERM)
print(json.dumps([*found, stop_requested()]))
"""
    assert said(script) == [
        ["default", "default"],
        ["default", "default"],
        ["caught"],
        [*IN_CHILDREN, "default"],
        [*IN_PARENT, "default"],
        True,
    ]


def test_every_handler_of_ours_is_installed_by_this_module() -> None:
    elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ("slurm_jobs", "pipeline")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "signal_handlers.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _catches(ast.unparse(node))
    ]
    assert elsewhere == []


def _catches(call: str) -> bool:
    """Whether a call catches a signal; ignoring one may be meant for children, too."""
    if call.startswith("signal.signal("):
        return not call.endswith(("signal.SIG_IGN)", "signal.SIG_DFL)"))
    return call.startswith(("signal.set_wakeup_fd(", "faulthandler.register("))


def test_a_request_for_stacks_does_not_end_a_process_that_exits() -> None:
    script = """
import faulthandler
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal_handlers.write_stacks_on(signal.SIGQUIT, sys.stderr)
found = actions(signal.SIGQUIT)
faulthandler.unregister(signal.SIGQUIT)  # Python does this as it shuts down
print(json.dumps(found + actions(signal.SIGQUIT)))
"""
    assert said(script) == ["caught", "ignored"]
