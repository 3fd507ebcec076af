"""Rule on other processes that hold the job's cores. PURE.

Busy cores are no evidence: a neighbour on other cores, or a job that computes little, is normal.
Evidence is what the kernel counted as a wait: a thread of the job was ready, and had no core.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.base import units
from slurm_jobs.report.numbers.trainings.node_load import MIN_READINGS, cores_taken
from slurm_jobs.report.rules.base import abstain, clear, rule
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.load_model import NodeLoad
from slurm_jobs.report.values.training_model import TrainingNumbers

_TAKEN = 0.25
"""Share of the requested cores. Less may be the kernel's work for disks and networks."""
_WAITS, _WAITS_LONG = 0.05, 0.20
_LOADER_WAITS = 0.25
"""Share of the loader's work, as in the finding on data wait. All are own choices."""
END_OTHERS_KNOB = (
    "`top` on {node} shows them. On your own machine stop them; on a cluster (`squeue -w {node}`) "
    "ask the site whether jobs are bound to their cores (cgroups), or request whole nodes "
    "(`resources: {{slurm: {{exclusive: true}}}}`)"
)


def are_cores_taken(load: NodeLoad) -> bool:
    """Check whether others keep so many of the job's cores busy that too few remain."""
    num_cores = cores_taken(load)
    return (
        num_cores is not None and load.num_cores > 0 and num_cores >= _TAKEN * load.num_cores_asked
    )


def taken_text(load: NodeLoad) -> str:
    """Return how many of the job's cores other processes keep busy."""
    job = "" if load.job_cpu_cores is None else f", its own {load.job_cpu_cores.mean:.1f}"
    others = "" if load.other_cores is None else f"{max(0.0, load.other_cores.mean):.1f}"
    return (
        f"of the {load.num_cores} cores of {load.node} that the job may use, other processes keep "
        f"{others} busy{job}: other processes use {cores_taken(load) or 0.0:.1f} of your "
        f"{load.num_cores_asked} cores"
    )


@rule(
    "foreign-load",
    "other processes keep 25 % of the requested cores busy, and the main thread waits for a core "
    "5 % of its time (20 %: high), or the loader's threads 25 % of their work while steps wait "
    "for data",
    needs_steps=True,
)
def foreign_load(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find other processes on a quarter of the requested cores, while the job waits for cores."""
    known = [load for load in numbers.loads if cores_taken(load) is not None and load.num_cores]
    if not known:
        return abstain(
            f"fewer than {MIN_READINGS} readings of a node show how busy its cores were, and with "
            "whose processes"
        )
    crowded = [load for load in known if are_cores_taken(load)]
    if not crowded:
        fullest = max(known, key=lambda load: (cores_taken(load) or 0.0) / load.num_cores_asked)
        return clear(taken_text(fullest))
    waits = [_core_waits(numbers, load.node) for load in crowded]
    if all(wait.step_share is None and wait.loader_share is None for wait in waits):
        return abstain("neither the records nor the kernel show how long threads waited for a core")
    # Means of the same threads decide for all nodes, so the first of equal ones counts.
    worst, load = max(
        zip(waits, crowded, strict=True),
        key=lambda pair: (pair[0].is_long, pair[0].step_share or 0.0),
    )
    if not worst.is_long:
        return clear(f"{taken_text(load)}; its threads rarely wait for a core")
    evidence = [taken_text(load)]
    if worst.step_share is not None:
        evidence.append(
            f"the main thread of rank {worst.rank} waits for a core "
            f"{units.percent(worst.step_share)} of its time"
        )
    if worst.loader_is_long and numbers.loader is not None:
        evidence.append(
            f"the loader's threads of rank {numbers.loader.rank} wait for a core "
            f"{units.percent(worst.loader_share or 0.0)} of their work"
        )
    return Finding(
        severity="high" if (worst.step_share or 0.0) >= _WAITS_LONG else "medium",
        title=f"other processes use the job's cores on {load.node}",
        text="Processes outside of the job run on these cores while its own threads wait.",
        evidence=tuple(evidence),
        next_knob=END_OTHERS_KNOB.format(node=load.node),
        ceiling="not known: shared caches and a lower clock also slow down threads that have a "
        "core, and some waits are for other threads of the job",
        confidence="high that its threads wait: the kernel counts it; medium for the cause: time "
        "that the host of a virtual machine takes, and short-lived processes of the job, look the "
        "same",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _CoreWaits:
    """Waits for cores of one node."""

    rank: int
    """Rank with the largest `step_share`."""
    step_share: float | None
    """Share of its step; None if no rank's is known."""
    loader_share: float | None
    """Share of the loader's work; None if unknown, or if the loader is on another node."""
    loader_is_long: bool
    """The loader waits for cores while steps wait for data."""

    @property
    def is_long(self) -> bool:
        return (self.step_share or 0.0) >= _WAITS or self.loader_is_long


def _core_waits(numbers: TrainingNumbers, node: str) -> _CoreWaits:
    shares: dict[int, float] = {}
    for rank in numbers.ranks:
        if rank.node == node and rank.core_wait_mean_s is not None and rank.step_mean_s > 0:
            shares.setdefault(rank.rank, rank.core_wait_mean_s / rank.step_mean_s)
    worst = max(shares, key=lambda rank: shares[rank], default=-1)
    loader, loader_share = numbers.loader, None
    if loader is not None and loader.node == node and loader.work_s > 0:
        wait_s = loader.core_wait_s
        loader_share = None if wait_s is None else wait_s / loader.work_s
    is_long = loader_share is not None and loader_share >= _LOADER_WAITS
    return _CoreWaits(
        rank=worst,
        step_share=shares.get(worst),
        loader_share=loader_share,
        loader_is_long=is_long and numbers.phase("data_wait").share >= _WAITS,
    )
