"""Facts about the login node: Slurm's commands, file systems, Python. Leaves no changes."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import statistics
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from slurm_jobs.base.files import create_once, write_bytes_atomic
from slurm_jobs.base.machine import mount_of, user_name
from slurm_jobs.base.processes.programs import ask_together
from slurm_jobs.base.python_packages import installed_packages
from slurm_jobs.formats.node_records.doctor_facts import FolderFacts
from slurm_jobs.nodes.doctor.site_facts import (
    MeasuredFolder,
    MeasuredPython,
    ProgramAnswer,
    SlurmFacts,
)
from slurm_jobs.nodes.doctor.slurm_settings import NEEDED
from slurm_jobs.schedulers.job_rows import SQUEUE_FORMAT
from slurm_jobs.schedulers.slurm_environment import query_environment

T = TypeVar("T")
LIMIT_S = 15.0
"""For each round of Slurm's commands, and for each file system: the user is waiting."""
_MOST_BYTES = 4_000_000
_NUM_WRITES = 5
_NUM_OPENED = 200
_DISTRIBUTION = "slurm-jobs"
_MOUNTS = Path("/proc/self/mountinfo")


def ask_slurm() -> SlurmFacts:
    """Return the answers of Slurm's commands, which may take `LIMIT_S` in each of three rounds.

    The first is the version, the second the config, and the third all others together. The limit
    also holds if Slurm's daemons hang.
    """
    user = user_name()
    others = {
        "partitions": ["scontrol", "-a", "show", "partition", "-o"],
        "nodes": ["sinfo", "--all", "--noheader", "-o", "%R|%a|%D|%T|%P"],
        "queue": ["squeue", "--all", "--me", "-o", SQUEUE_FORMAT],
        "accounts": ["sacct", "-X", "-n", "-P", "-S", "now-1hours", "--format", "JobID"],
        "association": [
            *("sacctmgr", "-nP", "show", "assoc", "where", f"user={user}"),
            "format=Account,Partition",
        ],
    }
    version = _asked({"version": ["sbatch", "--version"]})
    before_s = time.time()
    # Not in parallel with the others: its time is compared with a clock.
    config = _asked({"config": ["scontrol", "show", "config"]})
    after_s = time.time()
    if config["config"].text:
        rest = _asked(others)
    else:  # the controller is unreachable, and each would wait for it
        rest = {
            name: ProgramAnswer(problem="not asked: the controller does not answer")
            for name in others
        }
    return SlurmFacts(
        missing=tuple(name for name in NEEDED if shutil.which(name) is None),
        answers={**version, **config, **rest},
        asked_unix_s=(before_s, after_s),
    )


def _asked(commands: dict[str, list[str]]) -> dict[str, ProgramAnswer]:
    answers = ask_together(
        commands, limit_s=LIMIT_S, max_bytes=_MOST_BYTES, env=query_environment(os.environ)
    )
    return {name: ProgramAnswer(text=a.text, problem=a.problem) for name, a in answers.items()}


def measure_folder(purpose: str, folder: Path) -> MeasuredFolder:
    """Test a folder, or its nearest existing parent; one that hangs is abandoned."""
    late = f"its file system did not answer within {LIMIT_S:g} s"
    facts = FolderFacts(path=str(folder))
    dead = MeasuredFolder(purpose=purpose, folder=facts, late=late)
    measured = _within(lambda: _measured_folder(purpose, facts), LIMIT_S, dead)
    if measured is dead or not measured.folder.kind:
        return measured
    # Not within the limit of the file system, because a slow `quota` is no dead file system.
    return replace(measured, quota=_quota(_nearest_existing(folder), measured.folder.kind))


def _within(call: Callable[[], T], limit_s: float, late: T) -> T:
    """Return the result of `call`, or `late`: a call into a dead file system never returns."""
    results: list[T | Exception] = []

    def work() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not results:
        return late
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _measured_folder(purpose: str, facts: FolderFacts) -> MeasuredFolder:
    place = _nearest_existing(Path(facts.path))
    try:
        mount, status = mount_of(_MOUNTS.read_text(), place.resolve()), os.statvfs(place)
    except OSError as error:
        return MeasuredFolder(purpose=purpose, folder=replace(facts, problem=str(error)))
    write_s, problem, link_problem = None, "", ""
    try:
        with tempfile.TemporaryDirectory(
            prefix=".slurm-jobs-doctor-", dir=place, ignore_cleanup_errors=True
        ) as scratch:
            write_s = _durable_write_s(Path(scratch))
            link_problem = _link_problem(Path(scratch) / "entry")
    except OSError as error:
        problem = error.strerror or str(error)
    return MeasuredFolder(
        purpose=purpose,
        folder=replace(
            facts,
            kind=mount.kind,
            source=mount.source,
            free_bytes=status.f_bavail * status.f_frsize,
            total_bytes=status.f_blocks * status.f_frsize,
            problem=problem,
        ),
        free_files=status.f_favail if status.f_files else None,
        link_problem=link_problem,
        write_s=write_s,
    )


def _nearest_existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _quota(place: Path, kind: str) -> ProgramAnswer:
    """Return the answer of the program that knows the quota on a file system of this kind."""
    command = ["quota", "-w"]
    if kind == "lustre":
        command = ["lfs", "quota", "-q", "-u", user_name(), str(place)]
    if shutil.which(command[0]) is None:
        return ProgramAnswer(problem=f"there is no `{command[0]}` here")
    return _asked({"quota": command})["quota"]


def _durable_write_s(folder: Path) -> float:
    times = []
    for number in range(_NUM_WRITES):
        start_s = time.monotonic()
        write_bytes_atomic(folder / f"small-{number}", b"x" * 1024)
        times.append(time.monotonic() - start_s)
    return statistics.median(times)


def _link_problem(path: Path) -> str:
    """Return why an entry of the ledger cannot be made exactly once; empty if it can."""
    try:
        if not create_once(path, b"1"):
            return "a new name was refused"
        if create_once(path, b"2"):
            return "a second link to a name was not refused"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def measure_python(pythons: Sequence[str]) -> MeasuredPython:
    """Return facts about this Python, its packages, and the time to read its files."""
    requires, requires_python = None, ""
    with suppress(importlib.metadata.PackageNotFoundError):  # not installed as a distribution
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
        requires = tuple(distribution.requires or ())
        requires_python = distribution.metadata["Requires-Python"] or ""
    late: tuple[float | None, int] = (None, 0)
    open_s, num_opened = _within(_time_opening, LIMIT_S, late)
    return MeasuredPython(
        version=platform.python_version(),
        executable=sys.executable,
        packages=installed_packages(sys.path),
        requires=requires,
        requires_python=requires_python,
        open_s=open_s,
        num_opened=num_opened,
        stage_pythons={path: shutil.which(path) is not None for path in pythons},
    )


def _time_opening() -> tuple[float | None, int]:
    """Return the mean time to open and read a module's file, and the number of files.

    Each is a request to a file server. This process has not read these files, because it imports
    bytecode instead; other processes of this machine may have.
    """
    folder = Path(sysconfig.get_paths()["purelib"])
    paths = list(islice(folder.glob("*/*.py"), _NUM_OPENED))
    if not paths:
        return None, 0
    start_s = time.monotonic()
    for path in paths:
        path.read_bytes()
    return (time.monotonic() - start_s) / len(paths), len(paths)
