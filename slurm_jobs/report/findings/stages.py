"""Rules on queues, arrays and requests to Slurm. PURE. `findings` describes rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurm_jobs.common.stage_config.tune import TUNE_RUN
from slurm_jobs.report import words
from slurm_jobs.report.findings.base import SHORT_RUN_S, abstain, clear, rule
from slurm_jobs.report.model.run import Check, Finding, StageNumbers
from slurm_jobs.report.model.values import TimeShare

JOBSTATS = "Princeton jobstats: memory note below 70 %, suggestion 1.2 x used, runs < 300 s ignored"
_USED_ENOUGH = 0.70
_HEADROOM = 1.2


@rule("queue wait is half of the time from submit to end or more")
def queue_dominates(timeline: Sequence[TimeShare], note: str) -> Finding | Check:
    """Find a queue that takes more than half of the time from submit to end."""
    rule_id = "queue-wait"
    if note:
        return abstain(rule_id, note)
    whole_s = sum(part.seconds for part in timeline)
    if whole_s < SHORT_RUN_S:
        reason = f"{words.seconds(whole_s)} from submit to end, under 300 s"
        return abstain(rule_id, reason)
    queue = [share for share in timeline if share.kind == "queue"]
    share = sum(part.share for part in queue)
    waited_s = sum(part.seconds for part in queue)
    if share < 0.5:
        return clear(rule_id, f"{words.percent(share)} of the time from submit to end")
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"The queue took {words.percent(share)} of the time from submit to end",
        text="No stage ran while these jobs waited for resources.",
        evidence=(f"{words.seconds(waited_s)} of waiting with nothing running",),
        next_knob="a shorter timeout_min (the backfill scheduler fits short jobs in), "
        "fewer nodes, or another partition",
        ceiling="not known: nothing but waiting was recorded"
        if share == 1
        else f"none of this time: {words.times(1 / (1 - share))} as soon; waits during a running "
        "stage are not included",
    )


@rule("slowest array task over the mean of all is 1.5 or more, of at least 4")
def array_imbalance(stage: StageNumbers) -> Finding | Check:
    """Find an array task that takes 1.5 times the mean."""
    rule_id = f"array-imbalance:{stage.name}"
    times = stage.task_time
    if stage.num_tasks < 2 or times is None or times.num < 4:
        return abstain(rule_id, "fewer than 4 completed array tasks")
    if (stage.running_s.value or 0.0) < SHORT_RUN_S:
        return abstain(rule_id, "the stage ran for under 300 s")
    if stage.slices_per_task > 1:
        return abstain(rule_id, "an array task works through several slices; each is timed alone")
    ratio = times.max_s / times.mean_s if times.mean_s > 0 else 1.0
    if ratio < 1.5:
        return clear(rule_id, f"slowest over mean: {ratio:.2f}")
    even_s = max(times.mean_s, times.num * times.mean_s / max(1, stage.max_running))
    running_s = max(stage.running_s.value or 0.0, even_s)
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"one array task takes {ratio:.1f} times the mean ({stage.name})",
        text=f"The stage ends when {times.slowest} does.",
        evidence=(
            (
                f"{words.seconds(times.max_s)} against a mean of {words.seconds(times.mean_s)} "
                f"and a median of {words.seconds(times.median_s)} over {times.num} tasks"
            ),
        ),
        next_knob="more and smaller slices (array.num_slices); "
        "if it is always the same node, exclude it",
        ceiling=f"evenly loaded tasks, {stage.max_running} at a time: "
        f"{words.times(running_s / even_s)} as fast for this stage",
    )


@rule("less than 70 % of the memory used", JOBSTATS)
def memory_request(stage: StageNumbers) -> Finding | Check:
    """Find unused memory requests. jobstats: less than 70 % used.

    Slurm reports only the memory of the largest task. Advice to request less must hold for a
    node, so every task there counts as much as the largest.
    """
    rule_id = f"memory-request:{stage.name}"
    used, asked = stage.node_mem_bytes, stage.requested_mem_bytes
    if used.value is None or not asked.value:
        return abstain(rule_id, used.missing or asked.missing or "no amount was asked for")
    if (stage.longest_s.value or 0.0) < SHORT_RUN_S:
        return abstain(rule_id, "the jobs ran under 300 s")
    share = used.value / asked.value
    if used.at_least and share < _USED_ENOUGH:
        return abstain(rule_id, f"what was used is a lower bound: {used.at_least}")
    on_node = _memory_on_node(stage)
    if share >= _USED_ENOUGH and stage.tasks_per_node > 1:
        return abstain(rule_id, f"{on_node}: how much they take together is not known")
    if share >= _USED_ENOUGH:
        return clear(rule_id, _enough(share, "memory asked for"))
    suggested_gb = max(1, math.ceil(used.value * _HEADROOM / 2**30))
    at_most = "at most " if stage.tasks_per_node > 1 else ""
    return Finding(
        rule_id=rule_id,
        severity="note",
        title=f"{at_most}{words.percent(share)} of the requested memory was used ({stage.name})",
        text="Memory that is requested and not used keeps jobs waiting, yours and others'.",
        evidence=(f"{on_node}, over {words.number_of('attempt', stage.num_attempts)}",),
        next_knob=f"mem_gb: {suggested_gb} (1.2 x the most that was used on a node)",
        ceiling="no gain in speed: a shorter queue wait at best",
    )


def _enough(share: float, what: str) -> str:
    """Return enough memory for a resume, too: an earlier start may have used more."""
    if share > 1:
        return f"an earlier start used more than the {what} of the newest"
    return f"{words.percent(share)} of the {what} was used"


def _memory_on_node(stage: StageNumbers) -> str:
    asked = f"{words.quantity(stage.requested_mem_bytes)} asked for a node"
    if stage.tasks_per_node == 1:
        return f"{words.quantity(stage.node_mem_bytes)} at most, of {asked}"
    return (
        f"{words.quantity(stage.max_rss_bytes)} by the largest task, so at most "
        f"{words.quantity(stage.node_mem_bytes)} by {stage.tasks_per_node} tasks, of {asked}"
    )


@rule("less than 70 % of the time limit used", f"by analogy with memory ({JOBSTATS})")
def time_request(stage: StageNumbers) -> Finding | Check:
    """Find unused time limits: less than 70 % used."""
    rule_id = f"time-request:{stage.name}"
    if stage.run == TUNE_RUN:
        return abstain(rule_id, "a tuning takes the time of its budget, whatever the limit")
    used, limit = stage.longest_s, stage.time_limit_s
    if used.value is None or not limit.value:
        return abstain(rule_id, used.missing or limit.missing)
    if used.value < SHORT_RUN_S:
        return abstain(rule_id, "the jobs ran under 300 s")
    share = used.value / limit.value
    if used.at_least and share < _USED_ENOUGH:
        return abstain(rule_id, f"the longest job is a lower bound: {used.at_least}")
    if stage.status != "completed":
        return abstain(rule_id, "the stage is not completed")
    if share >= _USED_ENOUGH:
        return clear(rule_id, _enough(share, "time limit"))
    # The limit of a job is timeout_min for each of its slices.
    suggested_min = math.ceil(used.value * _HEADROOM / 60 / stage.slices_per_task)
    each = f", for each of {stage.slices_per_task} slices" if stage.slices_per_task > 1 else ""
    return Finding(
        rule_id=rule_id,
        severity="note",
        title=f"{words.percent(share)} of the time limit was used ({stage.name})",
        text="The backfill scheduler starts short jobs in gaps that a longer limit does not fit.",
        evidence=(
            (
                f"the longest job took {words.seconds(used.value)} of "
                f"{words.seconds(limit.value)} allowed"
            ),
        ),
        next_knob=f"timeout_min: {suggested_min} (1.2 x the longest job{each})",
        ceiling="no gain in speed: a shorter queue wait at best",
    )
