"""Options of sbatch: which have a key of their own, and where the others belong. PURE."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from slurm_jobs.spec.flow_text import flow_text

OWN_SLURM_KEYS = {
    "array": "array.num_slices and array.max_running",
    "chdir": "nothing: jobs start in the spec's folder",
    "clusters": "nothing: the jobs of a run depend on each other, so they share one cluster",
    "cpus-per-task": "resources.cpus_per_task",
    "dependency": "after",
    "error": "nothing: logs go to the run folder",
    "gpus": "resources.gpus_per_node and resources.gpu",
    "gpus-per-node": "resources.gpus_per_node and resources.gpu",
    "gpus-per-task": "resources.gpus_per_node and resources.gpu",
    "help": "nothing: see `sbatch --help`",
    "job-name": "nothing: the job's name carries the run's token",
    "kill-on-invalid-dep": "nothing: what can never start ends, as its `afterany` needs",
    "mem": "resources.mem_gb",
    "nodes": "resources.nodes",
    "ntasks": "resources.tasks_per_node",
    "ntasks-per-node": "resources.tasks_per_node",
    "open-mode": "nothing: logs are appended to",
    "output": "nothing: logs go to the run folder",
    "parsable": "nothing: slurm-jobs reads sbatch's answer itself",
    "signal": "resources.signal_lead_s",
    "test-only": "the verb `plan`, which submits nothing",
    "time": "resources.timeout_min",
    "wait": "the verb `run`, which follows the jobs to the end",
    "wrap": "shell",
}
"""Options of sbatch that have a key of their own, and which."""

FORMS = {
    "resources.cpus_per_task": "cpus_per_task: 8",
    "resources.gpus_per_node and resources.gpu": "gpus_per_node: 4, gpu: a100",
    "resources.mem_gb": "mem_gb: 64",
    "resources.nodes": "nodes: 2",
    "resources.signal_lead_s": "signal_lead_s: 120",
    "resources.tasks_per_node": "tasks_per_node: 4",
    "resources.timeout_min": "timeout_min: 720",
}
"""How those of a stage's resources are written, in YAML."""

_NAMES = """
    account acctg-freq batch bb bbf begin cluster-constraint comment constraint container
    container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu deadline delay-boot
    distribution exclude exclusive export export-file extra extra-node-info get-user-env gid
    gpu-bind gpu-freq gres gres-flags hint hold ignore-pbs input licenses mail-type mail-user
    mcs-label mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile
    nodelist ntasks-per-core ntasks-per-gpu ntasks-per-socket overcommit oversubscribe partition
    power prefer priority profile propagate qos quiet reboot requeue reservation resv-ports
    segment sockets-per-node spread-job switches thread-spec threads-per-core tmp tres-bind
    tres-per-task uid use-min-nodes verbose wait-all-nodes wckey
"""
_OTHERS = frozenset(_NAMES.split())
"""The rest of them (Slurm 24.11), for hints alone: `slurm:` takes any name."""


def own_key(key: str) -> str | None:
    """What an option of sbatch is called here, if it has a key of its own; `_` or `-` in it."""
    return OWN_SLURM_KEYS.get(key.replace("_", "-"))


def option_hint(key: str, known: Sequence[str], value: Any) -> str:
    """What to do with an unknown `key` that is an option of sbatch, or nearly one; or nothing."""
    place = _place_of_options(known)
    if place is None:
        return ""
    option = key.replace("_", "-")
    is_gpus = option == "gres" and str(value).startswith("gpu")
    own = own_key("gpus" if is_gpus else key)
    if own is not None:
        form = f" (`{FORMS[own]}`)" if own in FORMS else ""
        return f"; sbatch's `{key}` has a key of its own: {own}{form}"
    if option in _OTHERS:
        is_plain = isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 60)
        form = f": write `slurm: {flow_text({key: value})}`" if is_plain else ""
        return f"; `{key}` belongs under `{place}`{form}"
    # What is nearer to a key that is known here is left to the caller.
    near = difflib.get_close_matches(option[:100], sorted({*known, *_OTHERS}), n=1, cutoff=0.75)
    is_option = bool(near) and near[0] in _OTHERS
    return f"; did you mean `{near[0]}`, under `{place}`?" if is_option else ""


def _place_of_options(known: Sequence[str]) -> str | None:
    """Where options of sbatch belong, beside the keys `known` or below one of them."""
    if "slurm" in known:
        return "slurm:"
    return "resources.slurm:" if "resources" in known else None
