"""Text of a cluster profile, with comments on what was found."""

from __future__ import annotations

from slurm_jobs.cluster.mig import is_slice
from slurm_jobs.commands.starter.gpu_choice import gpu_comments
from slurm_jobs.commands.starter.starter_facts import JobPlace
from slurm_jobs.spec.overrides.text_edits import inline_text


def profile_text(place: JobPlace, *, date: str, python: str) -> str:
    """Return a profile with comments; `python` is that of `slurm-jobs`, the nodes' default."""
    lines = [
        "# This machine, without Slurm: jobs run here, and every key means the same as with Slurm.",
        "scheduler: local",
    ]
    if place.is_slurm:
        head = f"# The cluster `{place.name}`, as Slurm described it on {date}"
        lines = [f"{head}; docs/guides/clusters/cluster-profile.md.", "#"]
        for partition in place.limits.partitions.values():
            limit = partition.max_time_min
            time_text = "no time limit" if limit is None else f"at most {limit / 60:g} h a job"
            default = ", the default" if partition.is_default else ""
            state = "" if partition.is_up else ", DOWN"
            lines.append(f"#   partition {partition.name}{default}{state}: {time_text}")
            for kind in partition.kinds:
                gpus = ""
                for name, count in kind.gpus.items():
                    of_card = " (MIG slices)" if is_slice(name) else ""
                    gpus += f", {count} x {name or 'GPU'}{of_card}"
                node = f"{kind.cpus} cores, {kind.mem_mb / 1024:.0f} GB{gpus}"
                plural = "" if kind.num_nodes == 1 else "s"
                lines.append(f"#     {kind.num_nodes} node{plural}: {node}")
        options = {"account": place.account, "partition": place.cpu.partition}
        given = inline_text({key: value for key, value in options.items() if value})
        lines += [
            "scheduler: slurm",
            "# Options of sbatch for every job; a stage's own (`resources: {slurm: ...}`) win.",
            f"slurm: {given}",
        ]
        if len(place.accounts) > 1:
            lines.append(f"# Your accounts: {', '.join(place.accounts)}.")
        if place.gpu is not None:
            lines += gpu_comments(place)
            lines.append(
                "# Options for every job that asks for GPUs; they override those of `slurm`."
            )
            lines.append(f"gpu_slurm: {inline_text({'partition': place.gpu.partition})}")
    lines += [
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
        f"node_local_dir: {inline_text(place.node_local_dir)}",
        "",
        "# What an hour costs; then reports show costs, too.",
        "# price: {gpu_hour: 1.80, currency: EUR}",
    ]
    return "\n".join(lines) + "\n"
