"""Rule on communication that does not overlap with computation. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import abstain, ceiling, clear, rule, times_without
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers

_EXPOSED = 0.10


@rule(
    "exposed-communication",
    "exposed communication of 10 % of the profiled steps or more (20 %: high)",
    "PyTorch's profiler, its panel of bottlenecks",
)
def exposed_communication(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find exposed communication. PyTorch's profiler: 10 % of the step or more is a bottleneck."""
    exposed = numbers.exposed
    if max(numbers.rank_counts, default=1) == 1:
        return clear("there is only one rank")
    if exposed is None:
        return abstain("no steps were profiled (`profile: {steps: [20, 40]}`)")
    share = units.percent(exposed.share)
    if exposed.share < _EXPOSED:
        return clear(f"{share} of the time in profiled steps is communication without computation")
    return Finding(
        severity="high" if exposed.share >= 2 * _EXPOSED else "medium",
        title=f"{share} of the profiled steps is exposed communication",
        text="Collectives that do not overlap with computation cost their whole time, including "
        "the wait for the slowest rank.",
        evidence=(
            (
                f"In {units.number_of('profiled step', exposed.num_steps)} of rank {exposed.rank}, "
                f"communication takes {units.percent(exposed.communication_share)} of the time, "
                f"and {share} is exposed."
            ),
        ),
        next_knob="Look at the straggler first, if one is named. Then try "
        "sharding.reshard_after_forward: false, replicas across nodes, or strategy: ddp if the "
        "whole model fits on a device. `slurm-jobs profile` shows each step.",
        ceiling=ceiling(exposed.share, "no exposed communication"),
        ceiling_times=times_without(exposed.share),
        confidence="medium: profiling slows a step down, small operators most",
    )
