"""Options of sbatch: those that have a key here, and the place of the others. PURE."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.spec.yaml.flow_style import flow_text

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
    "kill-on-invalid-dep": "nothing: a job that can never start ends, as `afterany` needs",
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
"""Options of sbatch that have a key here, and that key."""

OPTION_FORMS = {
    "resources.cpus_per_task": "cpus_per_task: 8",
    "resources.gpus_per_node and resources.gpu": "gpus_per_node: 4, gpu: a100",
    "resources.mem_gb": "mem_gb: 64",
    "resources.nodes": "nodes: 2",
    "resources.signal_lead_s": "signal_lead_s: 120",
    "resources.tasks_per_node": "tasks_per_node: 4",
    "resources.timeout_min": "timeout_min: 720",
}
"""How to write the keys of a stage's resources, in YAML."""

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
OTHER_OPTIONS = frozenset(_NAMES.split())
"""The rest. `slurm:` also takes other names, of newer versions or of a site's plugins, with a note,
unless they are nearly one of these."""

_PYXIS = frozenset(
    f"container-{word}"
    for word in (
        *("entrypoint", "entrypoint-log", "env", "image", "mount-home", "mounts", "name"),
        *("readonly", "remap-root", "save", "workdir", "writable"),
    )
)
_OF_PLUGINS = _PYXIS | {f"no-{name}" for name in _PYXIS}
"""Options of the plugin pyxis, https://github.com/NVIDIA/pyxis. They need no note."""

_MEANT: Mapping[str, str] = {
    "cores": "cpus-per-task",
    "cpu": "cpus-per-task",
    "cpus": "cpus-per-task",
    "depends-on": "dependency",
    "memory": "mem",
    "queue": "partition",
    "time-limit": "time",
    "timelimit": "time",
    "walltime": "time",
}
"""Other words for options, from Slurm's own tables, other schedulers and workflow tools."""

_RESOURCE = re.compile(r"\bresources\.(\w+)")
_MOST_LETTERS_APART = 2
"""A typing mistake adds or loses no more: a plugin's `user-env` is not `get-user-env`."""


def near_option(key: str) -> str:
    """Return the option of sbatch that `key` is meant to be, with dashes; empty if it may be right.

    The beginning of an option counts as that option: sbatch takes `--depend` for `--dependency`.
    """
    option = key.replace("_", "-")
    if is_known_option(option):
        return ""
    longer = sorted(word for word in (*OTHER_OPTIONS, *OWN_SLURM_KEYS) if word.startswith(option))
    if longer:
        return longer[0]
    words = sorted(
        word
        for word in {*OTHER_OPTIONS, *OWN_SLURM_KEYS, *_MEANT}
        if abs(len(word) - len(option)) <= _MOST_LETTERS_APART
    )
    cutoff = (
        0.75 if len(option) < 5 else 0.8
    )  # `gers` for `gres`, but not `core-type` for `core-spec`
    near = difflib.get_close_matches(option[:100], words, n=1, cutoff=cutoff)
    return _MEANT.get(near[0], near[0]) if near else ""


def is_known_option(key: str) -> bool:
    """Check whether `key`, with `_` or `-` in it, is an option of sbatch or of a common plugin."""
    option = key.replace("_", "-")
    return option in OTHER_OPTIONS or option in OWN_SLURM_KEYS or option in _OF_PLUGINS


def is_resource(key: str) -> bool:
    """Check whether `key` is a key next to `slurm:` that stands for an option of sbatch."""
    return any(key in _RESOURCE.findall(place) for place in OWN_SLURM_KEYS.values())


def own_key(key: str) -> str | None:
    """Return the key for an option of sbatch (with `_` or `-` in it), if there is one."""
    return OWN_SLURM_KEYS.get(key.replace("_", "-"))


def option_hint(key: str, known: Sequence[str], value: Any) -> str:
    """Return what to do with an unknown `key` that is an option of sbatch, or nearly one.

    Args:
        key: as the user wrote it.
        known: keys next to it, among which `slurm` or `resources` has the place for options.
        value: of the key.
    """
    if "slurm" in known:
        place = "slurm:"
    elif "resources" in known:
        place = "resources.slurm:"
    else:
        return ""
    option = key.replace("_", "-")
    is_gpus = option == "gres" and str(value).startswith("gpu")
    place_of_key = own_key("gpus" if is_gpus else key)
    if place_of_key is not None:
        form = f" (`{OPTION_FORMS[place_of_key]}`)" if place_of_key in OPTION_FORMS else ""
        return f"; sbatch's `{key}` has a key of its own: {place_of_key}{form}"
    place_of_word = own_key(_MEANT.get(option, ""))
    if place_of_word is not None:
        form = f" (`{OPTION_FORMS[place_of_word]}`)" if place_of_word in OPTION_FORMS else ""
        return f"; here it is `{place_of_word}`{form}"
    if option in OTHER_OPTIONS:
        is_plain = isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 60)
        form = f": write `slurm: {flow_text({key: value})}`" if is_plain else ""
        return f"; `{key}` belongs under `{place}`{form}"
    if is_resource(key):
        return ""
    near = difflib.get_close_matches(
        option[:100], sorted({*known, *OTHER_OPTIONS}), n=1, cutoff=0.75
    )
    is_option = bool(near) and near[0] in OTHER_OPTIONS  # the caller suggests keys in `known`
    return f"; did you mean `{near[0]}`, under `{place}`?" if is_option else ""
