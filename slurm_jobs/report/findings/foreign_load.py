"""Rule on other processes that hold the job's cores. PURE. `findings` describes rules.

Busy cores are no evidence: a neighbour on other cores, or a job that computes little, is normal.
Evidence is what the kernel counted as a wait: a thread of the job was ready, and had no core.
"""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.findings.base import abstain, clear, rule, share_of
from slurm_jobs.report.model.load import NodeLoad
from slurm_jobs.report.model.run import Check, Finding
from slurm_jobs.report.model.training import RankNumbers, TrainingNumbers
from slurm_jobs.report.numbers.load import MIN_READINGS, cores_held

_HELD = 0.25
"""Share of the requested cores. Less may be the kernel's work for disks and networks."""
_WAITS, _WAITS_LONG = 0.05, 0.20
_LOADER_WAITS = 0.25
"""Share of the loader's work, as in the finding on data wait. All are own choices."""
KNOB = (
    "`top` on {node} shows whose they are: on a machine of your own end what else computes; on a "
    "cluster (`squeue -w {node}`) ask the site whether jobs are bound to their cores (cgroups), or "
    "take whole nodes (`resources: {{slurm: {{exclusive: true}}}}`)"
)


def is_held(load: NodeLoad) -> bool:
    """Check whether others keep so many of the job's cores busy that too few remain."""
    held = cores_held(load)
    return held is not None and load.num_cores > 0 and held >= _HELD * load.num_cores_asked


def held_text(load: NodeLoad) -> str:
    """Return how many cores others hold, and what the job has."""
    own = "" if load.job_cpu_cores is None else f", its own {load.job_cpu_cores.mean:.1f}"
    others = "" if load.other_cores is None else f"{max(0.0, load.other_cores.mean):.1f}"
    return (
        f"of the {load.num_cores} cores of {load.node} that the job may use, processes of others "
        f"keep {others} busy{own}: others hold {cores_held(load) or 0.0:.1f} of the "
        f"{load.num_cores_asked} that it asked for"
    )


@rule(
    "others keep 25 % of the cores asked for busy, and the thread that makes the steps waits for a "
    "core 5 % of its time (20 %: high), or the loader's threads 25 % of their work while steps "
    "wait for data"
)
def foreign_load(numbers: TrainingNumbers) -> Finding | Check:
    """Find others that hold a quarter of a node's cores while the job's threads wait for them."""
    rule_id = f"foreign-load:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    told = [load for load in numbers.loads if cores_held(load) is not None and load.num_cores]
    if not told:
        return abstain(
            rule_id,
            f"fewer than {MIN_READINGS} readings of a node show how busy its cores were, and what "
            "of that was the job's own",
        )
    held = [load for load in told if is_held(load)]
    if not held:
        return clear(rule_id, held_text(max(told, key=_share)))
    if not any(_waits(numbers, load) for load in held):
        reason = "neither the records nor the kernel show how long threads waited for a core"
        return abstain(rule_id, reason)
    worst = max(held, key=lambda load: (_suffers(numbers, load), _longest(numbers, load)))
    if not _suffers(numbers, worst):
        return clear(rule_id, f"{held_text(worst)}; its threads hardly wait for a core")
    return _finding(numbers, worst)


def _suffers(numbers: TrainingNumbers, load: NodeLoad) -> bool:
    return _longest(numbers, load) >= _WAITS or _loader_waits(numbers, load)


def _finding(numbers: TrainingNumbers, load: NodeLoad) -> Finding:
    return Finding(
        rule_id=f"foreign-load:{numbers.stage}",
        severity="high" if _longest(numbers, load) >= _WAITS_LONG else "medium",
        title=f"other processes hold the job's cores on {load.node} ({numbers.stage})",
        text="Processes that are not the job's compute on its cores, while its own threads are "
        "ready and wait for one.",
        evidence=(held_text(load), *_told(numbers, load)),
        next_knob=KNOB.format(node=load.node),
        ceiling="not known: who shares cores, caches and clock slows a thread down also while it "
        "has a core, and a part of the waits is for threads of the job itself",
        confidence="high that its threads wait: the kernel counts it; medium that others are "
        "why: what the host of a virtual machine takes, and short-lived processes of the job "
        "itself, look the same",
    )


def _told(numbers: TrainingNumbers, load: NodeLoad) -> tuple[str, ...]:
    found = []
    ranks = [rank for rank in numbers.ranks if rank.node == load.node]
    worst = max(ranks, key=lambda rank: _share_of_rank(rank) or 0.0, default=None)
    if worst is not None and (share := _share_of_rank(worst)) is not None:
        found.append(
            f"the thread that makes the steps of rank {worst.rank} waits for a core "
            f"{words.percent(share)} of its time"
        )
    if _loader_waits(numbers, load) and (loader := numbers.loader) is not None:
        share = (loader.core_wait_s or 0.0) / loader.work_s
        found.append(
            f"the loader's threads of rank {loader.rank} wait for a core {words.percent(share)} "
            "of their work"
        )
    return tuple(found)


def _waits(numbers: TrainingNumbers, load: NodeLoad) -> list[float]:
    """Return shares of the step in which ranks waited for a core, and of a loader's work."""
    ranks = [_share_of_rank(rank) for rank in numbers.ranks if rank.node == load.node]
    loader = numbers.loader
    is_there = loader is not None and loader.node == load.node and loader.work_s > 0
    of_loader = loader.core_wait_s if loader is not None and is_there else None
    return [share for share in (*ranks, of_loader) if share is not None]


def _longest(numbers: TrainingNumbers, load: NodeLoad) -> float:
    """Return the largest share of the step in which a rank there waited for a core."""
    ranks = (_share_of_rank(rank) for rank in numbers.ranks if rank.node == load.node)
    return max((share for share in ranks if share is not None), default=0.0)


def _share_of_rank(rank: RankNumbers) -> float | None:
    if rank.core_wait_mean_s is None or rank.step_mean_s <= 0:
        return None
    return rank.core_wait_mean_s / rank.step_mean_s


def _loader_waits(numbers: TrainingNumbers, load: NodeLoad) -> bool:
    """Check whether steps wait for data, and the loader for cores."""
    loader = numbers.loader
    if loader is None or loader.node != load.node or loader.core_wait_s is None:
        return False
    is_long = loader.work_s > 0 and loader.core_wait_s >= _LOADER_WAITS * loader.work_s
    return is_long and share_of(numbers, "data_wait")[0] >= _WAITS


def _share(load: NodeLoad) -> float:
    return (cores_held(load) or 0.0) / load.num_cores_asked
