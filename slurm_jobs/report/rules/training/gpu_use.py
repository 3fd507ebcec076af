"""Rules on GPUs that are idle during the measured steps. PURE.

They use readings that a sampler takes every second on each node.
"""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.numbers.trainings.node_load import MIN_READINGS, has_readings, mean_of
from slurm_jobs.report.rules.base import abstain, clear, rule
from slurm_jobs.report.rules.loading.storage_and_network import data_wait_text
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.load_model import NodeLoad
from slurm_jobs.report.values.training_model import TrainingNumbers

_LOW, _NOTE = 0.15, 0.25
_HIGH_P95, _LOW_P5 = 0.70, 0.10
_NO_CEILING = "not known from these readings; the findings on the steps have one"
_IDLE_FOR_SURE = "high that they are idle; when busy, a kernel may still not fill the GPU"


@rule(
    "gpu-use",
    "mean share of the time with a kernel on the GPU, during the steps, under 25 % "
    "(15 % or less: high)",
    "Princeton's jobstats",
    gpus_only=True,
    needs_steps=True,
)
def gpu_use(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find idle GPUs. Jobstats: busy 15 % of the time or less is wasted; under 25 % is noted."""
    loads, reason = _gpu_loads(numbers)
    if reason:
        return abstain(reason)
    worst = min(loads, key=lambda load: mean_of(load.gpu_busy))
    share = mean_of(worst.gpu_busy)
    if share >= _NOTE:
        return clear(f"GPUs are busy {units.percent(share)} of the time or more")
    return Finding(
        severity="high" if share <= _LOW else "note",
        title=f"GPUs are busy {units.percent(share)} of the time",
        text="The requested GPUs are mostly idle. The findings on the steps say what they wait "
        "for.",
        evidence=(_busy_text(worst), data_wait_text(numbers)),
        next_knob="See the strongest finding on the steps. If there is none, try a larger "
        "microbatch, or a profile (`profile: {steps: [20, 40]}`) that shows what the host does.",
        ceiling=_NO_CEILING,
        confidence=_IDLE_FOR_SURE,
    )


@rule(
    "gpu-fluctuates",
    "p95 of a GPU's busy readings is 70 % or more and p5 under 10 %",
    "Amazon SageMaker Debugger, GPU memory and utilisation fluctuation",
    gpus_only=True,
    needs_steps=True,
)
def fluctuating_gpu(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find GPUs that wait in between. SageMaker: p95 of 70 % or more with p5 under 10 %."""
    loads, reason = _gpu_loads(numbers)
    if reason:
        return abstain(reason)
    worst, busy = max(
        ((load, load.gpu_busy) for load in loads if load.gpu_busy is not None),
        key=lambda pair: pair[1].p95 - pair[1].p5,
    )
    if busy.p95 < _HIGH_P95 or busy.p5 >= _LOW_P5:
        return clear(f"p5 {units.percent(busy.p5)}, p95 {units.percent(busy.p95)}")
    stalls = {kind: numbers.phase(kind).share for kind in ("data_wait", "checkpoint", "evaluation")}
    kind = max(stalls, key=lambda name: stalls[name])
    longest = (
        f"The longest timed wait is {kind.replace('_', ' ')}, with {units.percent(stalls[kind])} "
        "of the steps' time."
    )
    return Finding(
        title="GPUs swing between busy and idle",
        text="They are busy part of the time and wait in between.",
        evidence=(_busy_text(worst), longest),
        next_knob="See the finding on that wait. If it is data wait, too few batches are read "
        "ahead (num_prefetch_batches), or the loader is slower than the steps.",
        ceiling=_NO_CEILING,
        confidence=_IDLE_FOR_SURE,
    )


def _gpu_loads(numbers: TrainingNumbers) -> tuple[list[NodeLoad], str]:
    """Return the nodes whose GPUs were read often enough, or why there are none."""
    loads = [load for load in numbers.loads if load.gpu_busy is not None]
    if not loads:
        return [], "no reading of a node shows how busy a GPU was"
    if not all(has_readings(load.gpu_busy, max(1, len(load.gpu_names))) for load in loads):
        return [], f"fewer than {MIN_READINGS} readings of a node show how busy its GPUs were"
    return loads, ""


def _busy_text(load: NodeLoad) -> str:
    assert load.gpu_busy is not None
    busy = load.gpu_busy
    return (
        f"The GPUs of {load.node} are busy {units.percent(busy.mean)} of the time on average (p5 "
        f"{units.percent(busy.p5)}, p95 {units.percent(busy.p95)}, over "
        f"{units.number_of('reading', load.num_readings)})."
    )
