"""Rules on rows that became samples, queues, arrays and requests to Slurm. PURE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_jobs.report.efficiency_model import StageEfficiency
from slurm_jobs.report.report_model import Check, DataNumbers, Finding, StageNumbers
from slurm_jobs.report.rules.base import SHORT_RUN_S, abstain, ceiling, clear, rule
from slurm_jobs.shared import units
from slurm_jobs.shared.configs.stages import CHOSEN_REASONS, TUNE_RUN
from slurm_jobs.shared.units import Quantity, TimeShare

_LIMIT, _HIGH = 0.05, 0.5
_MOST_OF_THE_WORK, _MIN_WORK_S = 0.5, 60.0
_KNOBS = {
    "max_tokens": "raise max_tokens, as far as the model's positions and the device's memory allow",
    "max_images": "raise max_images",
}


@rule(
    "left-out",
    "5 % of the rows or more are left out over max_tokens or max_images (half: high)",
)
def left_out(data: DataNumbers) -> Finding | Check:
    """Find rows over a limit that the config leaves out: 5 % of all, high from half on."""
    by_reason = {reason: num for reason, num in data.rejects if reason in CHOSEN_REASONS}
    # All limits if the records give no reason.
    limits = dict.fromkeys(CHOSEN_REASONS[reason] for reason in by_reason or CHOSEN_REASONS)
    knobs = [_KNOBS[limit] for limit in limits]
    if "too_long" in by_reason:
        knobs.append("too_long: truncate_text keeps such samples and cuts their text")
    if "images_too_long" in by_reason:
        knobs.append(
            "a processor with fewer tokens per image keeps rows with too many image tokens"
        )
    return _lost_rows(
        data,
        data.num_too_long,
        by_reason,
        what="are over a limit and left out",
        text="`too_long` leaves them out without an error; the model learns from the rest only.",
        next_knob="; ".join(knobs) + "; the lists of rejects have the length of each",
    )


@rule("rejected", "5 % of the rows or more cannot be used (half: high)")
def rejected(data: DataNumbers) -> Finding | Check:
    """Find rows rejected for other reasons than limits: 5 % of all, high from half on."""
    num_chosen = sum(num for reason, num in data.rejects if reason in CHOSEN_REASONS)
    num_rejects = data.num_rejects
    if num_rejects.value is not None:
        num_rejects = replace(num_rejects, value=num_rejects.value - num_chosen)
    return _lost_rows(
        data,
        num_rejects,
        {reason: num for reason, num in data.rejects if reason not in CHOSEN_REASONS},
        what="cannot be used",
        text="`max_reject_share` allows this, so the stage does not fail.",
        next_knob="fix the rows that the lists of rejects name, then lower max_reject_share",
    )


@rule("no-pictures", "no sample has a picture (high), unless the config has `text_only`")
def no_pictures(data: DataNumbers) -> Finding | Check:
    """Find a data set without pictures: mostly their key is not one that is read."""
    num_samples, num_text = data.num_samples, data.num_text_samples
    if not num_samples.value or num_text.value is None:
        return abstain(num_samples.missing or num_text.missing or "there are no samples")
    counts = f"{units.quantity(num_text)} of {units.quantity(num_samples)} samples have no picture"
    if data.is_text_meant or num_text.value < num_samples.value:
        return clear(counts)
    return Finding(
        severity="high",
        title="no sample has a picture",
        text="The model learns to answer without seeing, because no key with a picture was read.",
        evidence=(counts,),
        next_knob="columns: {image: KEY} names the key; text_only: true if text alone is meant",
        ceiling="no gain in speed, but a model that sees",
    )


def _lost_rows(
    data: DataNumbers,
    num_lost: Quantity,
    by_reason: Mapping[str, int],
    *,
    what: str,
    text: str,
    next_knob: str,
) -> Finding | Check:
    num_rows = data.num_rows
    if not num_rows.value or num_lost.value is None:
        return abstain(num_rows.missing or num_lost.missing or "there are no rows")
    share = num_lost.value / num_rows.value
    title = f"{units.percent(share)} of the rows {what}"
    if share < _LIMIT:
        return clear(title)
    reasons = ", ".join(f"{reason} {num:,}" for reason, num in by_reason.items())
    rows = f"{units.quantity(num_lost)} of {units.quantity(num_rows)} rows"
    return Finding(
        severity="high" if share >= _HIGH else "medium",
        title=title,
        text=text,
        evidence=(f"{rows}: {reasons}" if reasons else rows,),
        next_knob=next_knob,
        ceiling="no gain in speed, but more training data",
    )


@rule(
    "tokenising",
    "tokenising takes half or more of the preprocessing work, if that is at least 60 s",
)
def slow_tokenising(data: DataNumbers) -> Finding | Check:
    """Find tokenising that takes half of the preprocessing time, or more."""
    whole_s = sum(data.work_s.values())
    if not whole_s:
        return abstain("the parts of preprocessing are not timed separately")
    share = data.work_s.get("tokenise", 0.0) / whole_s
    if share < _MOST_OF_THE_WORK or whole_s < _MIN_WORK_S:
        return clear(f"{units.percent(share)} of {units.seconds(whole_s)} of work")
    return Finding(
        title="tokenising is the slow part of preprocessing",
        text="Texts take longer than images.",
        evidence=(
            ", ".join(f"{name} {units.seconds(s)}" for name, s in data.work_s.items() if s >= 0.05),
        ),
        next_knob="a fast tokenizer (tokenizer.json next to the processor); "
        "then more slices, which run in parallel",
        ceiling=ceiling(share, "slices without tokenising"),
    )


@rule("queue-wait", "queue wait is half of the time from submit to end or more")
def queue_dominates(timeline: Sequence[TimeShare], note: str) -> Finding | Check:
    """Find a queue that takes more than half of the time from submit to end."""
    if note:
        return abstain(note)
    whole_s = sum(part.seconds for part in timeline)
    if whole_s < SHORT_RUN_S:
        return abstain(f"{units.seconds(whole_s)} from submit to end, under 300 s")
    queue = [part for part in timeline if part.kind == "queue"]
    share = sum(part.share for part in queue)
    if share < 0.5:
        return clear(f"{units.percent(share)} of the time from submit to end")
    waited = units.seconds(sum(part.seconds for part in queue))
    return Finding(
        title=f"The queue took {units.percent(share)} of the time from submit to end",
        text="No stage ran while these jobs waited for resources.",
        evidence=(f"{waited} with jobs waiting and none running",),
        next_knob="a shorter timeout_min (the backfill scheduler fits short jobs into gaps), "
        "fewer nodes, or another partition",
        ceiling="not known: nothing but waiting was recorded"
        if share == 1
        else f"no such waits: the run is {units.times(1 / (1 - share))} as fast; waits while "
        "another stage runs are not included",
    )


@rule("array-imbalance", "slowest array task over the mean of all is 1.5 or more, of at least 4")
def array_imbalance(stage: StageNumbers) -> Finding | Check:
    """Find an array task that takes 1.5 times the mean."""
    times, running_s = stage.task_time, stage.running_s.value or 0.0
    if stage.num_tasks < 2 or times is None or times.num < 4:
        return abstain("fewer than 4 completed array tasks")
    if running_s < SHORT_RUN_S:
        return abstain("the stage ran for under 300 s")
    if stage.slices_per_task > 1:
        return abstain("each array task processes several slices, and only slices are timed")
    ratio = times.max_s / times.mean_s if times.mean_s > 0 else 1.0
    if ratio < 1.5:
        return clear(f"slowest over mean: {ratio:.2f}")
    even_s = max(times.mean_s, times.num * times.mean_s / max(1, stage.max_running))
    return Finding(
        title=f"one array task takes {ratio:.1f} times the mean",
        text=f"The stage ends when {times.slowest} does.",
        evidence=(
            (
                f"{units.seconds(times.max_s)} against a mean of {units.seconds(times.mean_s)} "
                f"and a median of {units.seconds(times.median_s)} over {times.num} tasks"
            ),
        ),
        next_knob="more and smaller slices (array.num_slices); "
        "if it is always the same node, exclude it",
        ceiling=f"equally loaded tasks, {stage.max_running} at a time: "
        f"{units.times(max(running_s, even_s) / even_s)} as fast for this stage",
    )


JOBSTATS = "Princeton jobstats: memory note below 70 %, suggestion 1.2 x used, runs < 300 s ignored"
_USED_ENOUGH = 0.70
_HEADROOM = 1.2


@rule("memory-exceeded", "a task used more memory than was requested for its node")
def memory_exceeded(stage: StageEfficiency) -> Finding | Check:
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
def memory_request(stage: StageNumbers) -> Finding | Check:
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


def _enough(share: float, what: str) -> Check:
    """Return the check for enough use; before a resume, an attempt may have used more."""
    if share > 1:
        return clear(f"an attempt used more than the newest {what}")
    return clear(f"{units.percent(share)} of the {what} was used")


@rule(
    "time-request", "less than 70 % of the time limit used", f"by analogy with memory ({JOBSTATS})"
)
def time_request(stage: StageNumbers) -> Finding | Check:
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
