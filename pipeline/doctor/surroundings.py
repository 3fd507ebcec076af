"""Environment of a job on a node: folders, programs, limits, access to the model hub."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pipeline.probe.cores import cgroup_quota
from pipeline.training.host_memory import cgroup_limits
from slurm_jobs.common.commands import ask_together
from slurm_jobs.common.doctor_records import FolderFacts, ProgramFacts
from slurm_jobs.common.machine import Mount, mount_of
from slurm_jobs.common.process import dies_with_parent

PROGRAM_LIMIT_S = 15.0
HUB = "https://huggingface.co"
HUB_LIMIT_S = 8.0
_MOST_BYTES = 200_000
_NO_LIMIT = 1 << 60
"""Version 1 of control groups reports no limit as a number of about this size."""
_MOUNTS = Path("/proc/self/mountinfo")
_SHM = "/dev/shm"  # noqa: S108 - it is looked at, and nothing is written


def folder_facts(folder: Path) -> FolderFacts:
    """Return file system and free space of a folder, and whether it is writable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mount, status = _mount(folder), os.statvfs(folder)
    except OSError as error:
        return FolderFacts(path=str(folder), problem=_told(error))
    return FolderFacts(
        path=str(folder),
        kind=mount.kind,
        source=mount.source,
        free_bytes=status.f_bavail * status.f_frsize,
        total_bytes=status.f_blocks * status.f_frsize,
        problem=_write_problem(folder),
    )


def _mount(folder: Path) -> Mount:
    try:
        return mount_of(_MOUNTS.read_text(), folder.resolve())
    except OSError:  # the kernel does not report it
        return Mount("", "")


def _write_problem(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"x" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return _told(error)
    return ""


def _told(error: OSError) -> str:
    return f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")


def programs(job_id: str) -> dict[str, ProgramFacts]:
    """Return the Slurm programs of a job: `scontrol` for a requeue, `srun` for several ranks."""
    commands = {
        "scontrol": ("scontrol", "-o", "show", "job", job_id),
        "srun": ("srun", "--version"),
    }
    answers = ask_together(
        commands,
        limit_s=PROGRAM_LIMIT_S,
        max_bytes=_MOST_BYTES,
        prepare=dies_with_parent(signal.SIGKILL),
    )
    return {
        name: ProgramFacts(path=shutil.which(name) or "", problem=answer.problem)
        for name, answer in answers.items()
    }


def limits() -> dict[str, int | None]:
    """Return limits of files, locked memory, /dev/shm and the control group; None: no limit."""
    of_groups = cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return {
        "open_files": _soft(resource.RLIMIT_NOFILE),
        "locked_bytes": _soft(resource.RLIMIT_MEMLOCK),
        "shm_bytes": _shm_bytes(),
        "memory_bytes": min((size for _, size in of_groups if size < _NO_LIMIT), default=None),
    }


def _soft(kind: int) -> int | None:
    value, _ = resource.getrlimit(kind)
    return None if value == resource.RLIM_INFINITY else value


def _shm_bytes() -> int | None:
    """Return the free bytes there; 0 if it does not exist."""
    try:
        status = os.statvfs(_SHM)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def cores() -> float | None:
    """Return the cores that control groups allow; None: no limit."""
    return cgroup_quota()


def has_infiniband(cards: Path = Path("/sys/class/infiniband")) -> bool:
    """Check whether the node has an InfiniBand card, whatever its name."""
    return cards.is_dir() and any(cards.iterdir())


def reach_hub(environment: Mapping[str, str]) -> tuple[float | None, str]:
    """Return the seconds that the model hub took to answer, or None and why it did not."""
    found: list[tuple[float | None, str]] = []
    url = environment.get("HF_ENDPOINT") or HUB
    thread = threading.Thread(target=lambda: found.append(_ask_hub(url)), daemon=True)
    thread.start()
    thread.join(HUB_LIMIT_S)  # a name look-up has no time limit
    return found[0] if found else (None, f"{url}: no answer in {HUB_LIMIT_S:g} s")


def _ask_hub(url: str) -> tuple[float | None, str]:
    start_s = time.monotonic()
    if not url.startswith(("https://", "http://")):
        return None, f"HF_ENDPOINT is {url}, which is not an address"
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - http and https alone
    try:
        with urllib.request.urlopen(request, timeout=HUB_LIMIT_S / 2):  # noqa: S310 - see above
            pass
    except urllib.error.HTTPError:  # it answered, even if only with a refusal
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return None, f"{url}: {reason}"
    return time.monotonic() - start_s, ""


def gpu_numa_nodes(devices: Path = Path("/sys/bus/pci/devices")) -> tuple[int, ...]:
    """Return the NUMA node of each of NVIDIA's GPUs, in the order of their PCI addresses.

    -1 where the firmware does not say.
    """
    nodes = []
    for device in sorted(devices.glob("*")):
        with suppress(OSError, ValueError):
            is_gpu = (device / "class").read_text().startswith(("0x0300", "0x0302"))
            if is_gpu and (device / "vendor").read_text().strip() == "0x10de":
                nodes.append(int((device / "numa_node").read_text()))
    return tuple(nodes)
