"""Efficiency of each stage, with the definitions of Slurm's `seff`. PURE.

seff (contribs/seff/seff 2.1 in SchedMD/slurm, commit 284c3b95) judges one job, a stage has many
starts:

- CPU efficiency is processor time over cores x elapsed time, as there. Over a stage, both are
  summed over the starts that have ended.
- Memory efficiency is memory used over memory allocated. seff adds up the peaks of all tasks of the
  step that used most (`tres_usage_in_tot`). sacct's MaxRSS is the peak of the largest task, so with
  several tasks per node the share is a lower bound. We compare with the request, which Slurm
  allocates, because this is the number that a user can change.
- seff prints the elapsed time without its limit. We divide the longest job by the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_jobs.base.quantities import Quantity, known, missing
from slurm_jobs.report.attempts.gathered_attempts import REPORT_RUN, AttemptFacts
from slurm_jobs.report.attempts.starts import Start, ended_after_s, starts_of
from slurm_jobs.report.attempts.wasted_hours import wasted_hours
from slurm_jobs.report.inputs.run_inputs import ReportInputs
from slurm_jobs.report.numbers.current_results import current_completions
from slurm_jobs.report.numbers.stage_numbers import OUT_OF_MEMORY
from slurm_jobs.report.values.efficiency_model import MemoryExcess, StageEfficiency, Use, Waste
from slurm_jobs.report.values.stage_model import StageNumbers


def efficiency_numbers(
    inputs: ReportInputs,
    stages: Sequence[StageNumbers],
    attempts: Mapping[str, Sequence[AttemptFacts]],
) -> tuple[StageEfficiency, ...]:
    """Return the efficiency of each stage that has started, but for the report itself."""
    completions = current_completions(inputs)
    of_inputs = {stage.name: stage for stage in inputs.stages}
    return tuple(
        _of_stage(
            stage,
            starts_of(attempts[stage.name]),
            wasted_hours(
                of_inputs[stage.name], stage, attempts[stage.name], completions[stage.name]
            ),
        )
        for stage in stages
        if stage.num_attempts and stage.run != REPORT_RUN
    )


def _of_stage(
    stage: StageNumbers, starts: Sequence[Start], waste: tuple[Waste, ...]
) -> StageEfficiency:
    largest = stage.max_rss_bytes
    if largest.value is not None and stage.tasks_per_node > 1 and not largest.at_least:
        sum_unknown = f"of the largest of {stage.tasks_per_node} tasks on a node"
        largest = replace(largest, at_least=sum_unknown)
    return StageEfficiency(
        stage=stage.name,
        is_former=stage.is_former,
        cpu=Use(
            requested=stage.requested_cpus,
            used=_busy_cores(stage, starts),
            share=stage.cpu_efficiency,
        ),
        memory=_use(largest, stage.requested_mem_bytes),
        is_largest_killed=stage.is_largest_killed,
        time=_use(stage.longest_s, stage.time_limit_s),
        gpu=Use(
            requested=stage.requested_gpus,
            used=_busy_gpus(stage),
            share=stage.gpu_busy,
        ),
        cpu_hours=stage.cpu_hours,
        gpu_hours=stage.gpu_hours,
        waste=waste,
        memory_excess=_memory_excess(starts),
        tasks_per_node=stage.tasks_per_node,
    )


def _use(used: Quantity, requested: Quantity) -> Use:
    if used.value is None or not requested.value:
        reason = requested.missing or used.missing or "nothing was requested"
        share = missing("fraction", reason)
    else:
        share = known(used.value / requested.value, "fraction", used.at_least)
    return Use(requested=requested, used=used, share=share)


def _busy_gpus(stage: StageNumbers) -> Quantity:
    busy, requested = stage.gpu_busy, stage.requested_gpus
    if busy.value is None or requested.value is None:
        return missing("count", busy.missing or requested.missing)
    return known(busy.value * requested.value, "count")


def _busy_cores(stage: StageNumbers, starts: Sequence[Start]) -> Quantity:
    """Return the mean number of busy cores over the starts that `cpu_efficiency` counts."""
    used_s = whole_s = 0.0
    for row in (start.row for start in starts):
        elapsed_s = ended_after_s(row)
        if row.cpu_time_s is not None and row.num_cpus and elapsed_s:
            used_s += row.cpu_time_s
            whole_s += elapsed_s
    if not whole_s:
        return missing("count", stage.cpu_efficiency.missing)
    return known(used_s / whole_s, "count")


def _memory_excess(starts: Sequence[Start]) -> MemoryExcess | None:
    """Return the starts with more memory than requested that were not killed for it.

    The local scheduler kills such tasks, and measures all nodes of a job together.
    """
    uses = [
        (start.row.max_rss_bytes, start.row.requested_mem_bytes)
        for start in starts
        if start.row.state != OUT_OF_MEMORY and start.row.source != "local"
    ]
    pairs = [(used, requested) for used, requested in uses if used is not None and requested]
    over = [(used, requested) for used, requested in pairs if used > requested]
    if not over:
        return None
    used_bytes, requested_bytes = max(over)
    return MemoryExcess(
        num_over=len(over),
        num_known=len(pairs),
        used_bytes=used_bytes,
        requested_bytes=requested_bytes,
    )
