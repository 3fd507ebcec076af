"""Drives the command `slurm-jobs` as a user does, on this machine or on the test cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from slurm_jobs.base.processes.process_table import living_process
from slurm_jobs.base.processes.python_commands import module_command
from slurm_jobs.run.observe import status_of
from slurm_jobs.run.polling import GOING
from tests.cluster.cluster import Cluster

T = TypeVar("T")
COMMAND = tuple(module_command("slurm_jobs"))
ASK_AGAIN_S = 5.0
"""Interval between two questions to the command while something runs."""


def wait_for(look: Callable[[], T | None], what: str, *, timeout_s: float = 120.0) -> T:
    """Poll until `look` finds something, and return that."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s:.0f} s in vain for {what}")
        time.sleep(0.02)


@dataclass(frozen=True)
class Driver:
    """A user's folder, and the command in it."""

    folder: Path
    cluster: Cluster | None = None
    command: tuple[str, ...] = COMMAND

    def run(self, *words: str, check: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a verb; `check` is the exit code that is expected (None: any)."""
        argv = [*self.command, *words]
        if self.cluster is not None:
            done = self.cluster.run_as_user(argv, cwd=self.folder, timeout_s=900, check=False)
        else:
            done = subprocess.run(
                argv, cwd=self.folder, capture_output=True, text=True, timeout=900, check=False
            )
        if check is not None and done.returncode != check:
            pytest.fail(
                f"slurm-jobs {' '.join(words)}: exit code {done.returncode}, expected {check}\n"
                f"{done.stdout}\n{done.stderr}"
            )
        return done

    def json(self, *words: str, check: int | None = 0) -> Any:
        """Run a verb with --json and return its result."""
        return json.loads(self.run(*words, "--json", check=check).stdout)

    def submit(self, spec: str, *words: str) -> Path:
        """Submit, and return the run folder."""
        return Path(self.json("submit", spec, *words)["run_dir"])

    def submit_text(self, text: str, *words: str) -> Path:
        """Submit a spec, written to spec.yaml, and return the run folder."""
        self.write("spec.yaml", text)
        return self.submit("spec.yaml", *words)

    def submit_stages(self, stages: str, *words: str) -> Path:
        """Submit a spec of these stages, lines of YAML, and return the run folder."""
        cluster = "local" if self.cluster is None else "auto"
        return self.submit_text(f"name: test\ncluster: {cluster}\nstages:\n{stages}", *words)

    def status(self, run_dir: Path) -> Any:
        """The status as JSON, asked for anew, whatever the exit code."""
        return self.json("status", str(run_dir), "--fresh", check=None)

    def wait(self, run_dir: Path, *, timeout_s: float = 240.0) -> Any:
        """Wait until nothing of the run runs or waits, and return the status."""

        status: Any = None
        asked_s = time.monotonic()

        def over() -> Any:
            nonlocal status, asked_s
            if self._works(run_dir) and time.monotonic() - asked_s < ASK_AGAIN_S:
                time.sleep(0.1)
                return None
            status = self.status(run_dir)
            asked_s = time.monotonic()
            if status["status"] not in GOING and not status["problems"]:
                return status
            time.sleep(0.3)
            return None

        try:
            return wait_for(over, f"the end of {run_dir.name}", timeout_s=timeout_s)
        except pytest.fail.Exception as error:
            queue = self.cluster.squeue() if self.cluster is not None else []
            pytest.fail(f"{error}: {json.dumps(status, indent=1)}\n{queue}")

    def _works(self, run_dir: Path) -> bool:
        """Whether something runs that may be the run's, without the half second of the command."""
        if self.cluster is None:
            return status_of(run_dir).status in GOING
        return any(row["state"] == "RUNNING" for row in self.cluster.squeue())

    def write(self, name: str, text: str) -> Path:
        """Put a file of the user's into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if self.cluster is not None:
            for owned in (path, path.parent):
                shutil.chown(owned, self.cluster.config.user)
        return path


def stage_of(status: Any, name: str) -> Any:
    """One stage of a status."""
    return next(stage for stage in status["stages"] if stage["name"] == name)


def words_of(status: Any) -> dict[str, str]:
    """Status of each stage."""
    return {stage["name"]: stage["status"] for stage in status["stages"]}


def rank_pid(run_dir: Path, stage: str, label: str, rank: int) -> int | None:
    """Pid of a rank's process, once it has started."""
    path = run_dir / "tasks" / stage / label / f"rank-{rank:05d}.started.json"
    if not path.exists():
        return None
    pid: int = json.loads(path.read_text())["pid"]
    return pid


def kill(pid: int) -> None:
    """SIGKILL."""
    os.kill(pid, signal.SIGKILL)


def runner_pid(run_dir: Path) -> int:
    """Pid of the local runner of a run."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        is_runner = any(b"slurm_jobs.schedulers.local_runner" in word for word in words)
        if is_runner and str(run_dir).encode() in words:
            return int(path.parent.name)
    pytest.fail(f"no runner of {run_dir.name}")


def is_alive(pid: int) -> bool:
    """Whether a process lives; one that has ended and was not waited for does not."""
    return living_process(pid) is not None


def files_below(folder: Path) -> dict[str, bytes]:
    """Contents of all files by relative name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def processes_naming(text: str) -> list[str]:
    """Command lines of live processes that contain `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found
