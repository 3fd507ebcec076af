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

from pipeline.train.memory.host_memory import cgroup_limits
from slurm_jobs.base.machine import Mount, mount_of
from slurm_jobs.base.processes.process_sessions import dies_with_parent
from slurm_jobs.base.processes.programs import ask_together
from slurm_jobs.formats.node_records.doctor_facts import FolderFacts, ProgramFacts

PROGRAM_LIMIT_S = 15.0
HUB = "https://huggingface.co"
HUB_LIMIT_S = 8.0
_MOST_BYTES = 200_000
_NO_LIMIT = 1 << 60
"""Version 1 of control groups reports no limit as a number of about this size."""
_MOUNTS = Path("/proc/self/mountinfo")
_SHM = "/dev/shm"  # noqa: S108 - its size is read, and nothing is written


def folder_facts(folder: Path) -> FolderFacts:
    """Return file system and free space of a folder, and whether it is writable."""
    problem, mount = "", Mount("", "")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):  # the kernel does not report it
            mount = mount_of(_MOUNTS.read_text(), folder.resolve())
        status = os.statvfs(folder)
    except OSError as error:
        return FolderFacts(path=str(folder), problem=_os_error_text(error))
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"x" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        problem = _os_error_text(error)
    return FolderFacts(
        path=str(folder),
        kind=mount.kind,
        source=mount.source,
        free_bytes=status.f_bavail * status.f_frsize,
        total_bytes=status.f_blocks * status.f_frsize,
        problem=problem,
    )


def _os_error_text(error: OSError) -> str:
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
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shm_bytes = 0
    with suppress(OSError):
        status = os.statvfs(_SHM)
        shm_bytes = status.f_bavail * status.f_frsize
    groups = cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return {
        "open_files": None if files == resource.RLIM_INFINITY else files,
        "locked_bytes": None if locked == resource.RLIM_INFINITY else locked,
        "shm_bytes": shm_bytes,
        "memory_bytes": min((size for _, size in groups if size < _NO_LIMIT), default=None),
    }


def has_infiniband(cards: Path = Path("/sys/class/infiniband")) -> bool:
    """Check whether the node has an InfiniBand card, whatever its name."""
    return cards.is_dir() and any(cards.iterdir())


def reach_hub(environment: Mapping[str, str]) -> tuple[float | None, str]:
    """Return the seconds that the model hub took to answer, or None and why it did not."""
    answers: list[tuple[float | None, str]] = []
    url = environment.get("HF_ENDPOINT") or HUB
    if not url.startswith(("https://", "http://")):
        return None, f"HF_ENDPOINT is {url}, which is not an address"

    def request() -> None:
        start_s = time.monotonic()
        try:
            head = urllib.request.Request(url, method="HEAD")  # noqa: S310 - http and https alone
            with urllib.request.urlopen(head, timeout=HUB_LIMIT_S / 2):  # noqa: S310 - see above
                pass
        except urllib.error.HTTPError:  # it answered, even if only with a refusal
            pass
        except (OSError, ValueError) as error:
            answers.append((None, f"{url}: {getattr(error, 'reason', error)}"))
            return
        answers.append((time.monotonic() - start_s, ""))

    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(HUB_LIMIT_S)  # a name look-up has no time limit
    return answers[0] if answers else (None, f"{url}: no answer in {HUB_LIMIT_S:g} s")


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


def nccl_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables of NCCL and the model hub on this node; never tokens."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_ENDPOINT", "TORCH_HOME")
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith("NCCL_") or name in names
    }
