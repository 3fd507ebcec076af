"""`watch`, as a person at a terminal sees it, here and on a real Slurm."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import COMMAND, Driver, wait_for, words_of
from tests.end_to_end.test_on_slurm import submit_with_an_sbatch_that_times_out

SPEC = """
name: watched
cluster: CLUSTER
stages:
  first:
    run: user_stages:work
    array: {num_slices: 3}
    resources: {RESOURCES}
    config: {CONFIG}
  second: {run: "user_stages:work", after: first, resources: {RESOURCES}}
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[[0-9;]*[34][0-7][0-9;]*m")


def _write(driver: Driver, config: str) -> str:
    cluster, resources = ("local", "") if driver.cluster is None else ("auto", "slurm: CPU")
    text = SPEC.replace("CLUSTER", cluster).replace("CONFIG", config)
    driver.write(
        "spec.yaml", text.replace("RESOURCES", resources).replace("CPU", "{partition: cpu}")
    )
    return "spec.yaml"


@dataclass(frozen=True)
class Terminal:
    """`watch` on a terminal of its own, and what it has drawn there."""

    watcher: subprocess.Popen[bytes]
    reader: subprocess.Popen[bytes]
    screen: Path

    def drawn(self) -> str:
        return self.screen.read_bytes().decode(errors="replace")

    def end(self) -> int:
        """Exit code of `watch`, once all that it drew has been read."""
        code = self.watcher.wait(timeout=60)
        self.reader.wait(timeout=10)
        return code


def _watch_at_a_terminal(local: Driver, run_dir: Path, columns: int) -> Terminal:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}}
    watcher = subprocess.Popen(
        [*COMMAND, "watch", str(run_dir)],
        cwd=local.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    screen = local.folder / "screen"
    with screen.open("wb") as stream:
        # It ends with an error, which is how Linux tells that nobody writes any more.
        reader = subprocess.Popen(["cat"], stdin=ours, stdout=stream, stderr=subprocess.DEVNULL)
    os.close(ours)
    return Terminal(watcher, reader, screen)


@pytest.mark.parametrize("columns", [60, 200])
def test_a_terminal_shows_grid_and_failure_with_the_exit_code_of_status(
    local: Driver, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    run_dir = local.submit(_write(local, 'fail: {"1": 9}, sleep_s: 1'))
    terminal = _watch_at_a_terminal(local, run_dir, columns)
    assert terminal.end() == 1
    local.run("status", str(run_dir), check=1)
    drawn = terminal.drawn()
    assert not COLOURS.search(drawn)
    lines = ESCAPES.sub("", drawn).replace("\r", "\n").splitlines()
    assert "0 CFC" in [line.strip() for line in lines]
    assert any(line.startswith("last failure: first slice 1 failed") for line in lines)
    assert any("slice 1 fails on purpose" in line for line in lines)


def test_an_interrupt_ends_the_watching_and_not_the_run(local: Driver) -> None:
    run_dir = local.submit(_write(local, "hang: [2]"))
    terminal = _watch_at_a_terminal(local, run_dir, 100)
    wait_for(lambda: "first: 3 slices" in terminal.drawn(), "the grid")
    terminal.watcher.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "no longer watching; the run continues" in terminal.drawn()
    wait_for(lambda: local.status(run_dir)["status"] == "running", "the run at work")
    local.run("cancel", str(run_dir), "--yes")


@pytest.mark.slow
@pytest.mark.cluster
def test_a_run_is_watched_and_resumed_while_accounting_is_down(
    on_slurm: Driver, cluster: Cluster
) -> None:
    run_dir = on_slurm.submit(_write(on_slurm, 'fail: {"1": 1}'))
    cluster.stop_daemon("slurmdbd")
    watched = on_slurm.run("watch", str(run_dir), check=1)
    assert "could not be queried: sacct" in watched.stdout
    assert "slice 1 fails on purpose" in watched.stdout
    assert words_of(on_slurm.status(run_dir)) == {"first": "failed", "second": "stranded"}
    resumed = on_slurm.json("resume", str(run_dir))
    assert [problem.partition(":")[0] for problem in resumed["problems"]] == ["sacct"]
    assert [(job["stage"], job["slices"]) for job in resumed["jobs"]] == [
        ("first", "1"),
        ("second", "0"),
    ]
    on_slurm.run("watch", str(run_dir), check=0)
    listed = on_slurm.json("runs", "--dir", str(run_dir.parent))["runs"]
    assert [(run["status"], run["num_completed"]) for run in listed] == [("completed", 4)]
    for index in (0, 2):
        log = (run_dir / f"data/first/log-{index}").read_text()
        assert log.count("begins") == 1


@pytest.mark.cluster
def test_a_lost_job_is_found_in_the_queue_while_the_accounts_are_down(
    on_slurm: Driver, cluster: Cluster
) -> None:
    code, run_dir = submit_with_an_sbatch_that_times_out(on_slurm, cluster, blind=True)
    assert code == 3
    cluster.stop_daemon("slurmdbd")
    result = on_slurm.json("resume", str(run_dir))
    assert (list(result["adopted"]), result["jobs"]) == (["a"], [])
    on_slurm.run("watch", str(run_dir), check=0)
    assert (run_dir / "data/a/log-0").read_text().count("begins") == 1
