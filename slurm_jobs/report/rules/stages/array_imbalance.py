"""Rule on array tasks that take longer than the others. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import SHORT_RUN_S, abstain, clear, rule
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.stage_model import StageNumbers


@rule("array-imbalance", "slowest array task over the mean of all is 1.5 or more, of at least 4")
def array_imbalance(stage: StageNumbers) -> Finding | RuleOutcome:
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
                f"It takes {units.seconds(times.max_s)}, while {times.num} tasks take "
                f"{units.seconds(times.mean_s)} on average and {units.seconds(times.median_s)} in "
                "the median."
            ),
        ),
        next_knob="Use more and smaller slices (array.num_slices). If it is always the same node, "
        "exclude it.",
        ceiling=f"equally loaded tasks, {stage.max_running} at a time: "
        f"{units.times(max(running_s, even_s) / even_s)} as fast for this stage",
    )
