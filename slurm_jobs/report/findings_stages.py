"""Rules about queues, arrays and what was asked of Slurm: PURE. See `findings`."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.report import words
from slurm_jobs.report.findings_training import OWN_CHOICE
from slurm_jobs.report.model import Check, Finding, StageNumbers, TimeShare

JOBSTATS = "Princeton jobstats: memory note below 70 %, suggestion 1.2 x used, runs < 300 s ignored"
_SHORT_RUN_S = 300.0
_USED_ENOUGH = 0.70
_HEADROOM = 1.2


def queue_dominates(timeline: Sequence[TimeShare], note: str) -> Finding | Check:
    """More than half of the time from submit to end spent in the queue."""
    rule_id = "queue-wait"
    if note:
        return Check(rule_id=rule_id, outcome="abstained", reason=note)
    queue = [share for share in timeline if share.kind == "queue"]
    share = sum(part.share for part in queue)
    waited_s = sum(part.seconds for part in queue)
    if share < 0.5:
        reason = f"{words.percent(share)} of the time from submit to end"
        return Check(rule_id=rule_id, outcome="clear", reason=reason)
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"The queue took {words.percent(share)} of the time from submit to end",
        text="No stage ran while these jobs waited for resources.",
        evidence=(f"{words.seconds(waited_s)} of waiting with nothing running",),
        rule="queue wait is half of the time from submit to end or more",
        source=OWN_CHOICE,
        next_knob="a shorter timeout_min (the backfill scheduler fits short jobs in), "
        "fewer nodes, or another partition",
        ceiling=f"no queue wait: {words.times(1 / (1 - share) if share < 1 else float('inf'))} "
        "as soon",
    )


def array_imbalance(stage: StageNumbers) -> Finding | Check:
    """One array task that takes half as long again as the mean."""
    rule_id = f"array-imbalance:{stage.name}"
    times = stage.task_time
    if stage.num_tasks < 2 or times is None or times.num < 4:
        reason = "fewer than 4 completed array tasks"
        return Check(rule_id=rule_id, outcome="abstained", reason=reason)
    ratio = times.max_s / times.mean_s if times.mean_s > 0 else 1.0
    if ratio < 1.5:
        reason = f"slowest over mean: {ratio:.2f}"
        return Check(rule_id=rule_id, outcome="clear", reason=reason)
    even_s = max(times.mean_s, times.num * times.mean_s / max(1, stage.max_running))
    wall_s = max(stage.wall_s.value or 0.0, even_s)
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
        rule="slowest array task over the mean of all is 1.5 or more",
        source=OWN_CHOICE,
        next_knob="more and smaller slices (array.num_slices); "
        "if it is always the same node, exclude it",
        ceiling=f"evenly loaded tasks, {stage.max_running} at a time: "
        f"{words.times(wall_s / even_s)} as fast for this stage",
    )


def memory_request(stage: StageNumbers) -> Finding | Check:
    """jobstats: less than 70 % of the requested memory used."""
    rule_id = f"memory-request:{stage.name}"
    used, asked = stage.max_rss_bytes, stage.requested_mem_bytes
    if used.value is None or not asked.value:
        return Check(rule_id=rule_id, outcome="abstained", reason=used.missing or asked.missing)
    if (stage.longest_s.value or 0.0) < _SHORT_RUN_S:
        return Check(rule_id=rule_id, outcome="abstained", reason="the jobs ran under 300 s")
    share = used.value / asked.value
    if share >= _USED_ENOUGH:
        reason = f"{words.percent(share)} of the memory asked for was used"
        return Check(rule_id=rule_id, outcome="clear", reason=reason)
    suggested_gb = max(1, -int(-used.value * _HEADROOM // 1e9))
    return Finding(
        rule_id=rule_id,
        severity="note",
        title=f"{words.percent(share)} of the memory asked for was used ({stage.name})",
        text="Memory that is asked for and not used keeps jobs waiting, yours and others'.",
        evidence=(
            (
                f"{words.num_bytes(used.value)} at most of {words.num_bytes(asked.value)}, "
                f"over {words.number_of('attempt', stage.num_attempts)}"
            ),
        ),
        rule="less than 70 % of the memory used",
        source=JOBSTATS,
        next_knob=f"mem_gb: {suggested_gb} (1.2 x the most that was used)",
        ceiling="no gain in speed: a shorter queue wait at best",
    )


def time_request(stage: StageNumbers) -> Finding | Check:
    """The same for the time limit: less than 70 % of it used."""
    rule_id = f"time-request:{stage.name}"
    used, limit = stage.longest_s, stage.time_limit_s
    if used.value is None or not limit.value:
        return Check(rule_id=rule_id, outcome="abstained", reason=used.missing or limit.missing)
    if used.value < _SHORT_RUN_S:
        return Check(rule_id=rule_id, outcome="abstained", reason="the jobs ran under 300 s")
    share = used.value / limit.value
    if stage.status != "completed" or share >= _USED_ENOUGH:
        reason = f"{words.percent(share)} of the time limit was used"
        return Check(rule_id=rule_id, outcome="clear", reason=reason)
    suggested_min = -int(-used.value * _HEADROOM // 60)
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
        rule="less than 70 % of the time limit used",
        source=f"by analogy with memory ({JOBSTATS})",
        next_knob=f"timeout_min: {suggested_min} (1.2 x the longest job)",
        ceiling="no gain in speed: a shorter queue wait at best",
    )
