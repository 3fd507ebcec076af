"""Text of a cluster profile, with comments on what was found. PURE."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from slurm_jobs.cluster.limits import NodeKind, Partition
from slurm_jobs.spec.editing import flow_text
from slurm_jobs.starter.model import Place


def profile_text(place: Place, *, date: str, python: str) -> str:
    """Return a profile with comments.

    Args:
        place: Place of the jobs.
        date: Date of the query, for the comment.
        python: The Python that `slurm-jobs` runs in, which nodes are given by default.
    """
    lines = _slurm(place, date) if place.is_slurm else _local()
    shared = [
        "",
        "# Python of the compute nodes, with `slurm-jobs[train]` in it; without this line it is",
        f"# {python}, which the nodes must then have, too.",
        "# python: /envs/train/bin/python",
        "",
        "# Lines of shell that every job begins with; one that fails ends the job.",
        "# setup:",
        "#   - module load cuda",
        "",
        "# Each node's own fast disk, where shards are staged. `slurm-jobs probe` measures it.",
        f"node_local_dir: {flow_text(place.node_local_dir)}",
        "",
        "# What an hour costs; then reports show costs, too.",
        "# price: {gpu_hour: 1.80, currency: EUR}",
    ]
    return "\n".join([*lines, *shared]) + "\n"


def profile_options(text: str) -> dict[str, set[str]]:
    """Return which options of `init` for the profile the profile contains, and their values."""
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # a date that is invalid, too
        values = None
    found = values if isinstance(values, dict) else {}
    slurm, of_gpus = (found.get(key) for key in ("slurm", "gpu_slurm"))
    parts = [part for part in (slurm, of_gpus) if isinstance(part, dict)]
    return {f"--{key}": {str(part.get(key)) for part in parts} for key in ("account", "partition")}


def _local() -> Iterator[str]:
    yield "# This machine, without Slurm: jobs run here, with Slurm's meaning of every word."
    yield "scheduler: local"


def _slurm(place: Place, date: str) -> Iterator[str]:
    yield f"# The cluster `{place.name}`, as Slurm described it on {date}; docs/cluster-profile.md."
    yield "#"
    for partition in place.limits.partitions.values():
        yield from _seen(partition)
    yield "scheduler: slurm"
    yield "# Options of sbatch for every job; a stage's own (`resources: {slurm: ...}`) win."
    options = {"account": place.account, "partition": place.cpu.partition}
    yield f"slurm: {flow_text({key: value for key, value in options.items() if value})}"
    if len(place.accounts) > 1:
        yield f"# Your accounts: {', '.join(place.accounts)}."
    if place.gpu is not None:
        yield "# Over those, for every job that asks for GPUs."
        yield f"gpu_slurm: {flow_text({'partition': place.gpu.partition})}"


def _seen(partition: Partition) -> Iterator[str]:
    limit = partition.max_time_min
    time = "no time limit" if limit is None else f"at most {limit / 60:g} h a job"
    default = ", the default" if partition.is_default else ""
    state = "" if partition.is_up else ", DOWN"
    yield f"#   partition {partition.name}{default}{state}: {time}"
    for kind in partition.kinds:
        yield f"#     {_nodes(kind)}"


def _nodes(kind: NodeKind) -> str:
    gpus = ", ".join(f"{n} x {gpu_type or 'GPU'}" for gpu_type, n in kind.gpus.items())
    what = f"{kind.cpus} cores, {kind.mem_mb / 1024:.0f} GB{f', {gpus}' if gpus else ''}"
    return f"{kind.num_nodes} node{'' if kind.num_nodes == 1 else 's'}: {what}"
