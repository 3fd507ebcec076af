"""Facts about a node that ranks run on: hardware, driver, modules, packages.

Of the environment only the variables named here are recorded. `noting` runs this next to the ranks.
"""

from __future__ import annotations

import csv
import hashlib
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import create_once, dump_json, make_private_dir, write_json_atomic
from slurm_jobs.base.machine import cpu_facts, host_facts, memory_bytes, python_facts
from slurm_jobs.base.processes.process_sessions import dies_with_parent
from slurm_jobs.base.processes.programs import ask_together
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.run_folder.paths import RunPaths

NVIDIA_LIMIT_S = 30.0
"""Time limit for nvidia-smi: without persistence mode the driver takes a second or more per GPU."""
_MAX_ANSWER_BYTES = 100_000
_MIB = 2**20

SHOWN_VARIABLES = (
    "CONDA_PREFIX",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "SLURMD_NODENAME",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_END_TIME",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_JOB_RESERVATION",
    "SLURM_JOB_START_TIME",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_RESTART_COUNT",
    "SLURM_TOPOLOGY_ADDR",
    "VIRTUAL_ENV",
)
"""Variables that describe the allocation and the environment; none of them holds a secret."""

_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version")
GPU_COMMAND = (
    "nvidia-smi",
    f"--query-gpu={','.join(_GPU_FIELDS)}",
    "--format=csv,noheader,nounits",
)
_GPU_PENDING = "nvidia-smi had not answered when the attempt ended"


def note_node(context: TaskContext, target: Path, variables: Mapping[str, str]) -> None:
    """Write the facts of this node to `target`, first without GPUs if nvidia-smi is installed.

    Raises:
        OSError: the run folder cannot be written.
    """
    facts = {
        "node_name": context.node_name,
        "node_rank": context.node_rank,
        "noted_unix_s": time.time(),
        "host": host_facts(),
        "cpu": cpu_facts(),
        "memory_bytes": memory_bytes(),
        "gpus": [],
        "gpu_problem": "",
        "modules": [name for name in variables.get("LOADEDMODULES", "").split(":") if name],
        "variables": {name: variables[name] for name in SHOWN_VARIABLES if name in variables},
        "python": _note_python(RunPaths(context.run_dir)),
        "python_on_path": shutil.which("python3") or shutil.which("python"),
    }
    if shutil.which(GPU_COMMAND[0]) is None:
        write_json_atomic(target, facts)
        return
    write_json_atomic(target, {**facts, "gpu_problem": _GPU_PENDING})
    write_json_atomic(target, {**facts, **gpu_facts()})


def _note_python(paths: RunPaths) -> str:
    """Record this Python with its packages, and return its fingerprint."""
    text = dump_json(python_facts(sys.path)).encode()
    fingerprint = hashlib.sha256(text).hexdigest()[:16]
    target = paths.python(fingerprint)
    if not target.exists():  # thousands of tasks have the same one
        make_private_dir(target.parent)
        create_once(target, text)
    return fingerprint


def gpu_facts() -> Mapping[str, Any]:
    """Return the GPUs that nvidia-smi shows here, or the reason why it does not."""
    answer = ask_together(
        {"gpus": GPU_COMMAND},
        limit_s=NVIDIA_LIMIT_S,
        max_bytes=_MAX_ANSWER_BYTES,
        prepare=dies_with_parent(signal.SIGKILL),
    )["gpus"]
    gpus = [] if answer.problem else read_gpus(answer.text)
    return {"gpus": gpus, "gpu_problem": answer.problem}


def read_gpus(text: str) -> Sequence[Mapping[str, Any]]:
    """Parse the GPUs in the output of `GPU_COMMAND`; skip lines of another form."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [
        {
            "index": index,
            "name": name,
            "uuid": uuid,
            "memory_bytes": int(memory_mib) * _MIB if memory_mib.isdecimal() else None,
            "driver_version": driver_version,
        }
        for index, name, uuid, memory_mib, driver_version in (
            row for row in rows if len(row) == len(_GPU_FIELDS)
        )
    ]
