"""Batch scripts: sbatch options and the shell lines around the supervisor. PURE.

Everything that comes from the spec is quoted for the shell. A failing set-up line ends the job, and
the job's log names the line. `exec` makes the supervisor the batch process, so that it receives
`--signal=B:` and its exit code becomes the job's.
"""

from __future__ import annotations

import math
import shlex
from typing import Any

from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL
from slurm_jobs.base.redact import hidden_text
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.run_folder.orders import JobOrder
from slurm_jobs.schedulers.protocol import JobDependencies

STOP_SIGNAL_NAME = STOP_SIGNAL.name.removeprefix("SIG")


def dependency_text(dependencies: JobDependencies) -> str | None:
    """Format dependencies for Slurm: `afterok:12:13_2,afterany:14`; None if there are none."""
    parts = []
    for kind, jobs in sorted(dependencies.items()):
        if jobs:
            parts.append(":".join([kind, *(job.job_id for job in jobs)]))
    return ",".join(parts) or None


def time_limit_text(timeout_min: float) -> str:
    """Format a time limit as `MM:SS`, rounded up to a second."""
    seconds = math.ceil(timeout_min * 60)
    return f"{seconds // 60}:{seconds % 60:02d}"


def mem_text(mem_gb: float) -> str:
    """Format memory in megabytes, rounded up."""
    return f"{math.ceil(mem_gb * 1024)}M"


def array_text(order: JobOrder) -> str | None:
    """Format array elements and throttle for Slurm."""
    if not order.is_array:
        return None
    throttle = f"%{order.max_running}" if order.max_running is not None else ""
    return ranges_text(order.array_indices) + throttle


def gpu_options(resources: JobResources) -> dict[str, Any]:
    """Return the options that request GPUs of one or several types.

    One type is part of the GPU request. Several types become a constraint on node features, so that
    all nodes of a job have the same type, whichever is free first. Their GPUs need not have a gres
    type of that name. A constraint of the user is added to each type, in the form that sbatch's
    manual calls matching OR: `[(a100&ib)|(v100&ib)]`.
    """
    if not resources.gpus_per_node:
        return {}
    if len(resources.gpu) == 1:
        return {"gpus-per-node": f"{resources.gpu[0]}:{resources.gpus_per_node}"}
    options: dict[str, Any] = {"gpus-per-node": resources.gpus_per_node}
    user_constraint = resources.slurm.get("constraint")
    if resources.gpu_kept:
        options["constraint"] = with_own_constraint(resources.gpu_kept, user_constraint)
    elif resources.gpu:
        kinds = [with_own_constraint(kind, user_constraint) for kind in resources.gpu]
        kinds = [f"({kind})" for kind in kinds] if user_constraint else kinds
        options["constraint"] = f"[{'|'.join(kinds)}]"
    return options


def with_own_constraint(kind: str, own: object) -> str:
    """Return a constraint that requires a GPU type and the user's own constraint."""
    return f"{kind}&{own}" if own else kind


def sbatch_options(order: JobOrder, dependencies: JobDependencies) -> dict[str, Any]:
    """Return sbatch options by long name; those of the profile and the stage override others."""
    log_name = "slurm-%A_%a.log" if order.is_array else "slurm-%j.log"
    options: dict[str, Any] = {
        "job-name": order.job_name,
        "array": array_text(order),
        "chdir": order.spec_dir,
        "cpus-per-task": order.resources.cpus_per_task,
        "dependency": dependency_text(dependencies),
        "error": None,
        # A job that can never start ends, so that `afterany` dependencies on it are met.
        "kill-on-invalid-dep": "yes" if any(dependencies.values()) else None,
        "mem": mem_text(order.resources.mem_gb) if order.resources.mem_gb is not None else None,
        "nodes": order.resources.nodes,
        "ntasks-per-node": order.resources.tasks_per_node,
        "open-mode": "append",
        "output": f"{order.log_dir.replace('%', '%%')}/{log_name}",
        "requeue": True,  # Slurm requeues a preempted job, or one whose node failed.
        "signal": f"B:{STOP_SIGNAL_NAME}@{order.resources.lead_s}",
        "time": time_limit_text(order.resources.timeout_min),
    }
    options.update(chosen_options(order.resources))
    if options.get("no-requeue"):
        del options["requeue"]
    return {
        key: value for key, value in options.items() if value is not None and value is not False
    }


def chosen_options(resources: JobResources) -> dict[str, Any]:
    """Return the options that the profile and the stage choose, without those of every job."""
    chosen = {key.replace("_", "-"): value for key, value in resources.slurm.items()}
    return {**chosen, **gpu_options(resources)}


def setup_lines(order: JobOrder) -> list[str]:
    """Return the environment and set-up lines; the first line that fails ends the job.

    The stop signal is ignored until the supervisor handles it, because Slurm may send it up to a
    minute early: at once, if the time limit is short. It would end the job before it has begun.
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in order.environment.items()]
    lines = [f"trap '' {STOP_SIGNAL_NAME}", "umask 077", "set -eo pipefail", *exports]
    if order.setup:
        # The empty line is needed because the user's last line may end in a backslash.
        lines += [*_watch_lines(order), *order.setup, "", "trap - ERR EXIT", "exec {_log}>&-"]
    return [*lines, "set +eo pipefail"]


def _watch_lines(order: JobOrder) -> list[str]:
    """Return traps that log the set-up line in which the job ended.

    Nothing is inserted between the user's lines, because several of them may form one command. If a
    function or a sourced file fails, bash exits at once and the calling line is in BASH_LINENO.
    After a signal `$?` is 0 and therefore not printed. A set-up with its own EXIT trap replaces
    ours.
    """
    setup = "\n".join(order.setup)
    command = ": $BASH_COMMAND" if hidden_text(setup) == setup else ""
    where = "${_at:+ line $((_at - _before))}${_code:+, exit code $_code}"
    at_exit = (
        "\n  _code=$? _at=${BASH_LINENO[@]: -2:1}\n"
        "  _code=${_code#0} _at=${_at:-$_failed}\n"
        f'  printf "%s\\n" "the job ended in set-up{where}{command}" >&$_log\n'
    )
    return [
        "exec {_log}>&2",  # the set-up may redirect its own output
        f"trap {shlex.quote(at_exit)} EXIT",
        "trap '_failed=$LINENO' ERR",
        "_failed= _before=$LINENO",
    ]


def supervisor_command(order: JobOrder) -> str:
    """Return the command of the batch process; any Python 3 runs it, see `run/snapshot.py`."""
    words = [order.python, order.start_script, "task", order.run_dir, order.token]
    return "exec " + shlex.join(words)
