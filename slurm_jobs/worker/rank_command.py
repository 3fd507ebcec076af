"""Command and variables of a rank's process.

Linux takes no argument or variable over 128 KiB. A longer shell command is passed to bash as a
file, and for a longer config the variable names a file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import write_bytes_atomic
from slurm_jobs.base.machine import interface_towards
from slurm_jobs.base.processes.python_commands import script_command
from slurm_jobs.formats.configs.output_references import output_dir_variable
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.schedulers.rank_variables import default_variables, marked_as_ours

MAX_WORD_BYTES = 2**17
"""Size limit of an argument, or of a variable with its name, including the final zero:
MAX_ARG_STRLEN of execve(2) with pages of 4 KiB; with larger pages Linux takes more."""


def rank_command(order: dict[str, Any], rank_context: Path) -> list[str]:
    """Return the command; write a shell command that is too long to a file next to the context.

    `nsight_command` prepends nsys if requested.

    Raises:
        OSError: the file cannot be written.
    """
    if order["shell"] is None:
        return script_command(order["start_script"], "call", rank_context)
    shell = os.fsencode(order["shell"])
    if len(shell) < MAX_WORD_BYTES:
        return ["/bin/bash", "-c", order["shell"]]
    return ["/bin/bash", str(_written(rank_context, "shell.sh", shell))]


def rank_environment(
    context: TaskContext, order: dict[str, Any], rank_context: Path
) -> dict[str, str]:
    """Return the environment of the stage's process: torch's names, and ours for shell stages.

    Raises:
        OSError: a config that is too long for a variable cannot be written.
    """
    config = json.dumps(context.config)  # ASCII: a character is a byte
    if len(f"SLURM_JOBS_CONFIG={config}") < MAX_WORD_BYTES:
        config_variable = {"SLURM_JOBS_CONFIG": config}
    else:
        path = _written(rank_context, "config.json", config.encode())
        config_variable = {"SLURM_JOBS_CONFIG_FILE": str(path)}
    variables = {
        "RANK": context.rank,
        "WORLD_SIZE": context.num_ranks,
        "LOCAL_RANK": context.local_rank,
        "LOCAL_WORLD_SIZE": context.num_local_ranks,
        "GROUP_RANK": context.node_rank,
        "MASTER_ADDR": context.main_addr,
        "MASTER_PORT": context.main_port,
        "SLURM_JOBS_RUN_DIR": context.run_dir,
        "SLURM_JOBS_STAGE": context.stage,
        "SLURM_JOBS_SLICE": context.slice_index,
        "SLURM_JOBS_NUM_SLICES": context.num_slices,
        "SLURM_JOBS_ATTEMPT": context.attempt,
        "SLURM_JOBS_OUTPUT_DIR": context.output_dir,
        "SLURM_JOBS_NODE_LOCAL_DIR": context.node_local_dir,
        **config_variable,
        "PYTHONUNBUFFERED": "1",
    }
    for parent in context.parents:
        variables[output_dir_variable(parent.stage)] = parent.output_dir
        if parent.origin:
            variables[output_dir_variable(parent.origin)] = parent.output_dir
    # The first node's own name may resolve to a loopback address there; the route to the second
    # node is more reliable.
    addresses = [address for address in (context.main_addr, order.get("second_addr")) if address]
    defaults = default_variables(
        os.environ.keys(),
        num_threads=order["cpus_per_task"],
        num_ranks=context.num_ranks,
        num_gpus=order.get("num_gpus", 0),
        flight_prefix=str(context.task_dir / "flight-"),
        interface=interface_towards(addresses) if context.num_ranks > 1 else None,
    )
    shown = {key: str(value) for key, value in variables.items()}
    return {**os.environ, **marked_as_ours(defaults), **shown}


def _written(rank_context: Path, kind: str, data: bytes) -> Path:
    """Write `rank-00003.KIND` next to `rank-00003.context.json`, and return its path."""
    path = rank_context.with_name(f"{rank_context.name.partition('.')[0]}.{kind}")
    write_bytes_atomic(path, data)
    return path
