"""Options of sbatch: which have a key of their own, and where the others belong. PURE."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.spec.remedies.flow_text import flow_text

OWN_SLURM_KEYS = {
    "array": "array.num_slices and array.max_running",
    "chdir": "nothing: jobs start in the spec's folder",
    "clusters": "nothing: the jobs of a run depend on each other, so they share one cluster",
    "cpus-per-gpu": "resources.cpus_per_task",
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
    "ntasks-per-gpu": "resources.tasks_per_node",
    "ntasks-per-node": "resources.tasks_per_node",
    "open-mode": "nothing: logs are appended to",
    "output": "nothing: logs go to the run folder",
    "parsable": "nothing: slurm-jobs reads sbatch's answer itself",
    "quiet": "nothing: slurm-jobs reads sbatch's answer itself",
    "signal": "resources.signal_lead_s",
    "test-only": "the verb `plan`, which submits nothing",
    "time": "resources.timeout_min",
    "usage": "nothing: see `sbatch --help`",
    "version": "nothing: `sbatch --version` prints it",
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
    account acctg-freq batch bb bbf begin cluster-constraint comment consolidate-segments
    constraint context container container-id contiguous core-spec cores-per-socket cpu-freq
    deadline delay-boot distribution exclude exclusive export export-file extra extra-node-info
    get-user-env external gid gpu-bind gpu-freq gpus-per-socket gres gres-flags hint hold
    ignore-pbs input licenses mail-type mail-user mcs-label mem-bind mem-update mem-per-cpu
    mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist ntasks-per-core
    ntasks-per-socket oom-kill-step overcommit oversubscribe partition power prefer priority
    profile propagate qos reboot requeue reservation resv-ports segment share sockets-per-node
    spread-job spread-segments stepmgr switches thread-spec threads-per-core time-min tmp
    tres-bind tres-per-task uid use-min-nodes verbose wait-all-nodes wckey
"""
_OTHERS = frozenset(_NAMES.split())
"""The rest of them. `slurm:` takes other names, too, which newer versions or the plugins of a site
have, with a note, but for those that are nearly one of these."""

_PYXIS = frozenset(
    f"container-{word}"
    for word in (
        *("entrypoint", "entrypoint-log", "env", "image", "mount-home", "mounts", "name"),
        *("readonly", "remap-root", "save", "workdir", "writable"),
    )
)
_OF_PLUGINS = _PYXIS | {f"no-{name}" for name in _PYXIS}
"""Options of the plugin pyxis, https://github.com/NVIDIA/pyxis, which need no note."""

_MEANT: Mapping[str, str] = {
    "cpus": "cpus-per-task",
    "memory": "mem",
    "queue": "partition",
    "time-limit": "time",
    "timelimit": "time",
    "walltime": "time",
}
"""Words for what sbatch calls otherwise, from Slurm's own tables and other schedulers."""

_RESOURCE = re.compile(r"\bresources\.(\w+)")
_ONE_SLIP_FROM, _TWO_SLIPS_FROM = 4, 6
"""Letters of a name in which so many are taken for slips: a shorter one is near to too much."""


def near_option(key: str) -> str:
    """The option of sbatch that `key` is meant to be, with dashes; empty if it may be right.

    One letter left out, put in, replaced or swapped with the next is a slip, two in a long name.
    The beginning of an option is meant to be it: sbatch takes `--depend` for `--dependency`.
    """
    option = key.replace("_", "-")
    if is_known_option(option):
        return ""
    longer = sorted(word for word in (*_OTHERS, *OWN_SLURM_KEYS) if word.startswith(option))
    if longer:
        return longer[0]
    num_allowed = (len(option) >= _ONE_SLIP_FROM) + (len(option) >= _TWO_SLIPS_FROM)
    words = sorted({*_OTHERS, *OWN_SLURM_KEYS, *_MEANT})
    slips = {word: _num_slips(option, word) for word in words}
    near = min(slips, key=slips.__getitem__)
    return _MEANT.get(near, near) if slips[near] <= num_allowed else ""


def is_known_option(key: str) -> bool:
    """Check whether `key`, with `_` or `-` in it, is an option of sbatch or of a common plugin."""
    option = key.replace("_", "-")
    return option in _OTHERS or option in OWN_SLURM_KEYS or option in _OF_PLUGINS


def is_resource(key: str) -> bool:
    """Whether `key` is one of the keys beside `slurm:` that stand for options of sbatch."""
    return any(key in _RESOURCE.findall(place) for place in OWN_SLURM_KEYS.values())


def _num_slips(one: str, other: str) -> int:
    """Optimal string alignment: the fewest slips that make one word of the other."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, start=1):
        row = [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and wanted == one[i - 2]:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


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
    if is_resource(key):
        return ""
    # What is nearer to a key that is known here is left to the caller.
    near = difflib.get_close_matches(option[:100], sorted({*known, *_OTHERS}), n=1, cutoff=0.75)
    is_option = bool(near) and near[0] in _OTHERS
    return f"; did you mean `{near[0]}`, under `{place}`?" if is_option else ""


def _place_of_options(known: Sequence[str]) -> str | None:
    """Where options of sbatch belong, beside the keys `known` or below one of them."""
    if "slurm" in known:
        return "slurm:"
    return "resources.slurm:" if "resources" in known else None
