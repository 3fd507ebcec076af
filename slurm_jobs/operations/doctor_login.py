"""Facts about the login node: Slurm's commands, file systems, Python. Leaves no changes."""

from __future__ import annotations

import dataclasses
import getpass
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
from itertools import islice
from pathlib import Path
from typing import TypeVar

from slurm_jobs.common.commands import ask_together
from slurm_jobs.common.doctor_records import FolderFacts
from slurm_jobs.common.files import create_once, write_bytes_atomic
from slurm_jobs.common.machine import mount_of
from slurm_jobs.common.packages import installed_packages
from slurm_jobs.doctor.judging_slurm import NEEDED
from slurm_jobs.doctor.model import Asked, FolderLook, PythonLook, SlurmFacts
from slurm_jobs.schedulers.slurm_environment import query_environment
from slurm_jobs.schedulers.slurm_output import SQUEUE_FORMAT

T = TypeVar("T")

LIMIT_S = 15.0
"""For Slurm's commands together, and for each file system: the user is waiting."""
_MOST_BYTES = 4_000_000
_NUM_WRITES = 5
_NUM_OPENED = 200
_DISTRIBUTION = "slurm-jobs"
_MOUNTS = Path("/proc/self/mountinfo")


def ask_slurm() -> SlurmFacts:
    """Return the answers of Slurm's commands, each within `LIMIT_S`.

    The limit also holds if Slurm's daemons hang.
    """
    user = getpass.getuser()
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
        rest = {name: Asked(problem="not asked: the controller is silent") for name in others}
    return SlurmFacts(
        missing=tuple(name for name in NEEDED if shutil.which(name) is None),
        answers={**version, **config, **rest},
        asked_unix_s=(before_s, after_s),
    )


def _asked(commands: dict[str, list[str]]) -> dict[str, Asked]:
    answers = ask_together(
        commands,
        limit_s=LIMIT_S,
        max_bytes=_MOST_BYTES,
        env=query_environment(os.environ),
    )
    return {name: Asked(text=a.text, problem=a.problem) for name, a in answers.items()}


def look_at_folder(purpose: str, folder: Path) -> FolderLook:
    """Test a folder, or its nearest existing parent; one that hangs is abandoned."""
    late = f"its file system did not answer within {LIMIT_S:g} s"
    dead = FolderLook(purpose=purpose, folder=FolderFacts(path=str(folder)), late=late)
    return _within(lambda: _look(purpose, folder), LIMIT_S, dead)


def _within(look: Callable[[], T], limit_s: float, late: T) -> T:
    """Return the result of `look`, or `late`: a call into a dead file system never returns."""
    found: list[T | Exception] = []

    def work() -> None:
        try:
            found.append(look())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not found:
        return late
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _look(purpose: str, folder: Path) -> FolderLook:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        mount, status = mount_of(_MOUNTS.read_text(), place.resolve()), os.statvfs(place)
    except OSError as error:
        return FolderLook(purpose=purpose, folder=FolderFacts(path=str(folder), problem=str(error)))
    facts = FolderFacts(
        path=str(folder),
        kind=mount.kind,
        source=mount.source,
        free_bytes=status.f_bavail * status.f_frsize,
        total_bytes=status.f_blocks * status.f_frsize,
    )
    links, link_problem, write_s, problem = None, "", None, ""
    try:
        links, link_problem, write_s = _try_out(place)
    except OSError as error:
        problem = error.strerror or str(error)
    return FolderLook(
        purpose=purpose,
        folder=dataclasses.replace(facts, problem=problem),
        free_files=status.f_favail if status.f_files else None,
        links=links,
        link_problem=link_problem,
        write_s=write_s,
        quota=_quota(place, mount.kind),
    )


def _try_out(place: Path) -> tuple[bool, str, float]:
    """Test hard links as the ledger makes them, and time a durable small file."""
    folder = Path(tempfile.mkdtemp(prefix=".slurm-jobs-doctor-", dir=place))
    try:
        times = []
        for number in range(_NUM_WRITES):
            start_s = time.monotonic()
            write_bytes_atomic(folder / f"small-{number}", b"x" * 1024)
            times.append(time.monotonic() - start_s)
        try:
            is_made = create_once(folder / "entry", b"1")
            links, problem = is_made and not create_once(folder / "entry", b"2"), ""
        except OSError as error:
            links, problem = False, error.strerror or str(error)
        return links, problem, statistics.median(times)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _quota(place: Path, kind: str) -> Asked:
    command = ["quota", "-w"]
    if kind == "lustre":
        command = ["lfs", "quota", "-q", "-u", getpass.getuser(), str(place)]
    if shutil.which(command[0]) is None:
        return Asked(problem=f"there is no `{command[0]}` here")
    return _asked({"quota": command})["quota"]


def look_at_python(pythons: Sequence[str]) -> PythonLook:
    """Return facts about this Python, its packages, and the time to read its files."""
    requires, requires_python = _requirements()
    late: tuple[float | None, int] = (None, 0)
    open_s, num_opened = _within(_time_opening, LIMIT_S, late)
    return PythonLook(
        version=platform.python_version(),
        executable=sys.executable,
        packages=installed_packages(sys.path),
        requires=requires,
        requires_python=requires_python,
        open_s=open_s,
        num_opened=num_opened,
        stage_pythons={path: _is_startable(path) for path in pythons},
    )


def _requirements() -> tuple[tuple[str, ...] | None, str]:
    """Return the requirements of our distribution; None if it is not installed as one."""
    try:
        found = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None, ""
    return tuple(found.requires or ()), found.metadata["Requires-Python"] or ""


def _is_startable(path: str) -> bool:
    return shutil.which(path) is not None


def _time_opening() -> tuple[float | None, int]:
    """Return the mean time to open and read a module's file, and the number of files.

    Each is a request to a file server. Only files that this process has not read; other processes
    of this machine may have.
    """
    folder = Path(sysconfig.get_paths()["purelib"])
    paths = list(islice(folder.glob("*/*.py"), _NUM_OPENED))
    if not paths:
        return None, 0
    start_s = time.monotonic()
    for path in paths:
        path.read_bytes()
    return (time.monotonic() - start_s) / len(paths), len(paths)
