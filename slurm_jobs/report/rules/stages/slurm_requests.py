"""Rules on the memory and the time that a stage requests of Slurm. PURE."""

from __future__ import annotations

import math

from slurm_jobs.base import units
from slurm_jobs.formats.configs.command_stages import TUNE_RUN
from slurm_jobs.report.rules.base import SHORT_RUN_S, abstain, clear, rule
from slurm_jobs.report.values.efficiency_model import StageEfficiency
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.stage_model import StageNumbers

JOBSTATS = "Princeton jobstats: memory note below 70 %, suggestion 1.2 x used, runs < 300 s ignored"
_USED_ENOUGH = 0.70
_HEADROOM = 1.2


@rule("memory-exceeded", "a task used more memory than was requested for its node")
def memory_exceeded(stage: StageEfficiency) -> Finding | RuleOutcome:
    """Find tasks that used more memory than requested, where no limit ends such a task."""
    memory, excess = stage.memory, stage.memory_excess
    if memory.requested.value is None or memory.used.value is None:
        return abstain(memory.requested.missing or memory.used.missing)
    if excess is None:
        return clear("no task used more memory than requested, unless it was killed at its limit")
    node_bytes = excess.used_bytes * stage.tasks_per_node
    if node_bytes <= memory.requested.value:
        return clear("earlier starts used more than requested; the newest request is larger")
    used, requested = units.num_bytes(excess.used_bytes), units.num_bytes(excess.requested_bytes)
    starts = units.number_of("start", excess.num_known)
    suggested_gb = math.ceil(node_bytes * _HEADROOM / 2**30)
    each = f" of each of {stage.tasks_per_node} tasks on a node" if stage.tasks_per_node > 1 else ""
    return Finding(
        title=f"a task used {used} of memory, {requested} was requested",
        text="This cluster did not stop it, so it took memory that Slurm had promised to other "
        "jobs on the node. A cluster that enforces requests kills such a task (OUT_OF_MEMORY).",
        evidence=(
            f"{excess.num_over:,} of {starts} used more than requested",
            f"the largest task used {used}, with {requested} requested for its node",
        ),
        next_knob=f"mem_gb: {suggested_gb} (1.2 x the highest use{each})",
        ceiling="no gain in speed, but no limit and no full node can kill the task",
        confidence="medium: if several processes of a task share memory, Slurm may count it once "
        "for each (JobAcctGatherParams=UsePss avoids that)",
    )


@rule("memory-request", "less than 70 % of the requested memory used", JOBSTATS)
def memory_request(stage: StageNumbers) -> Finding | RuleOutcome:
    """Find unused memory requests. jobstats: less than 70 % used.

    Slurm reports only the memory of the largest task. Advice to request less must hold for a
    node, so every task there counts as much as the largest.
    """
    used, requested = stage.node_mem_bytes, stage.requested_mem_bytes
    if used.value is None or not requested.value:
        return abstain(used.missing or requested.missing or "no memory was requested")
    if (stage.max_rss_bytes.value or 0.0) > requested.value:
        return clear("all of the requested memory was used; see `memory-exceeded`")
    if (stage.longest_s.value or 0.0) < SHORT_RUN_S:
        return abstain("the jobs ran under 300 s")
    share = used.value / requested.value
    if used.at_least and share < _USED_ENOUGH:
        return abstain(f"the memory used is only a lower bound: {used.at_least}")
    at_most = ""
    on_node = f"{units.quantity(used)} at most, of {units.quantity(requested)} requested per node"
    if stage.tasks_per_node != 1:
        at_most = "at most "
        on_node = (
            f"{units.quantity(stage.max_rss_bytes)} by the largest task, so at most "
            f"{units.quantity(used)} by {stage.tasks_per_node} tasks, of "
            f"{units.quantity(requested)} requested per node"
        )
    if share >= _USED_ENOUGH and stage.tasks_per_node > 1:
        return abstain(f"{on_node}: their sum is not known")
    if share >= _USED_ENOUGH:
        return _enough(share, "memory request")
    suggested_gb = max(1, math.ceil(used.value * _HEADROOM / 2**30))
    return Finding(
        severity="note",
        title=f"{at_most}{units.percent(share)} of the requested memory was used",
        text="Requested memory that is not used keeps your jobs and those of others waiting.",
        evidence=(f"{on_node}, over {units.number_of('attempt', stage.num_attempts)}",),
        next_knob=f"mem_gb: {suggested_gb} (1.2 x the highest use on a node)",
        ceiling="no gain in speed; the queue wait may be shorter",
    )


def _enough(share: float, what: str) -> RuleOutcome:
    """Return the check for enough use; before a resume, an attempt may have used more."""
    if share > 1:
        return clear(f"an attempt used more than the newest {what}")
    return clear(f"{units.percent(share)} of the {what} was used")


@rule(
    "time-request", "less than 70 % of the time limit used", f"by analogy with memory ({JOBSTATS})"
)
def time_request(stage: StageNumbers) -> Finding | RuleOutcome:
    """Find unused time limits: less than 70 % used."""
    if stage.run == TUNE_RUN:
        return abstain("a tuning runs as long as its budget, whatever the limit")
    used, limit = stage.longest_s, stage.time_limit_s
    if used.value is None or not limit.value:
        return abstain(used.missing or limit.missing)
    if used.value < SHORT_RUN_S:
        return abstain("the jobs ran under 300 s")
    share = used.value / limit.value
    if used.at_least and share < _USED_ENOUGH:
        return abstain(f"the time of the longest job is only a lower bound: {used.at_least}")
    if stage.status != "completed":
        return abstain("the stage is not completed")
    if share >= _USED_ENOUGH:
        return _enough(share, "time limit")
    # The limit of a job is timeout_min for each of its slices.
    suggested_min = math.ceil(used.value * _HEADROOM / 60 / stage.slices_per_task)
    each = f", for each of {stage.slices_per_task} slices" if stage.slices_per_task > 1 else ""
    longest = f"the longest job took {units.seconds(used.value)}"
    return Finding(
        severity="note",
        title=f"{units.percent(share)} of the time limit was used",
        text="The backfill scheduler starts short jobs in gaps that are too short for a longer "
        "limit.",
        evidence=(f"{longest} of {units.seconds(limit.value)} allowed",),
        next_knob=f"timeout_min: {suggested_min} (1.2 x the longest job{each})",
        ceiling="no gain in speed; the queue wait may be shorter",
    )
