"""Rules on the load of GPUs and nodes. PURE. `findings` describes rules.

They use the readings that a sampler takes every second on each node, during the measured steps.
"""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.findings.base import ON_CPUS, abstain, clear, rule, share_of
from slurm_jobs.report.model.load import NodeLoad
from slurm_jobs.report.model.run import Check, Finding
from slurm_jobs.report.model.training import TrainingNumbers
from slurm_jobs.report.numbers.load import MIN_READINGS, tells

_LOW, _NOTE = 0.15, 0.25
_HIGH_P95, _LOW_P5 = 0.70, 0.10
_SLOW_STORAGE = 0.10
_FULL_LINK, _CORES_BUSY = 0.80, 0.85


@rule(
    "mean share of the time with a kernel on the GPU, during the steps, under 25 % "
    "(15 % or less: high)",
    "Princeton's jobstats",
)
def gpu_use(numbers: TrainingNumbers) -> Finding | Check:
    """Find idle GPUs. Jobstats: busy 15 % of the time or less is wasted; under 25 % is noted."""
    rule_id = f"gpu-use:{numbers.stage}"
    if numbers.device == "cpu":
        return clear(rule_id, ON_CPUS)
    loads, reason = _of_gpus(numbers)
    if reason:
        return abstain(rule_id, reason)
    worst = min(loads, key=_mean_busy)
    share = _mean_busy(worst)
    if share >= _NOTE:
        return clear(rule_id, f"GPUs are busy {words.percent(share)} of the time or more")
    data_share, _ = share_of(numbers, "data_wait")
    return Finding(
        rule_id=rule_id,
        severity="high" if share <= _LOW else "note",
        title=f"GPUs are busy {words.percent(share)} of the time ({numbers.stage})",
        text="The requested GPUs are idle. The findings on what the steps wait for say why.",
        evidence=(
            _busy_text(worst),
            f"{words.percent(data_share)} of a mean step waits for data",
        ),
        next_knob="the next knob of the strongest finding on the steps; without one, a larger "
        "microbatch, or a profile (`profile: {steps: [20, 40]}`) that shows what the host does",
        ceiling="not known from how busy GPUs are: the steps say what they wait for",
        confidence="high that they are idle; a kernel that runs need not fill a GPU",
    )


@rule(
    "p95 of a GPU's busy readings is 70 % or more and p5 under 10 %",
    "Amazon SageMaker Debugger, GPU memory and utilisation fluctuation",
)
def fluctuating_gpu(numbers: TrainingNumbers) -> Finding | Check:
    """Find GPUs that wait in between. SageMaker: p95 of 70 % or more with p5 under 10 %."""
    rule_id = f"gpu-fluctuates:{numbers.stage}"
    if numbers.device == "cpu":
        return clear(rule_id, ON_CPUS)
    loads, reason = _of_gpus(numbers)
    if reason:
        return abstain(rule_id, reason)
    worst = max(loads, key=_swing)
    assert worst.gpu_busy is not None
    if worst.gpu_busy.p95 < _HIGH_P95 or worst.gpu_busy.p5 >= _LOW_P5:
        return clear(
            rule_id,
            f"p5 {words.percent(worst.gpu_busy.p5)}, p95 {words.percent(worst.gpu_busy.p95)}",
        )
    stalls = {
        kind: share_of(numbers, kind)[0] for kind in ("data_wait", "checkpoint", "evaluation")
    }
    kind = max(stalls, key=lambda name: stalls[name])
    longest = (
        f"of the waits that steps time, {kind.replace('_', ' ')} is the longest: "
        f"{words.percent(stalls[kind])} of their time"
    )
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"GPUs swing between busy and idle ({numbers.stage})",
        text="They can be kept busy, and in between they wait.",
        evidence=(_busy_text(worst), longest),
        next_knob="what that finding names; bursts of data come of too few batches read ahead "
        "(num_prefetch_batches) or of a loader that is slower than the steps",
        ceiling="not known from how busy GPUs are: the steps say what they wait for",
        confidence="high that they are idle; a kernel that runs need not fill a GPU",
    )


@rule(
    "10 % of the cores' time idle with a disk request outstanding, and data wait of 5 % of the step"
)
def slow_storage(numbers: TrainingNumbers) -> Finding | Check:
    """Find cores that are idle with an outstanding disk request, while the steps wait for data."""
    rule_id = f"storage-queue:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    loads = [load for load in numbers.loads if tells(load.cpu_iowait)]
    if not loads:
        reason = f"fewer than {MIN_READINGS} readings of a node show how long it waited for disks"
        return abstain(rule_id, reason)
    worst = max(loads, key=lambda load: load.cpu_iowait.mean if load.cpu_iowait else 0.0)
    assert worst.cpu_iowait is not None
    share, waits = worst.cpu_iowait.mean, share_of(numbers, "data_wait")[0]
    if share < _SLOW_STORAGE or waits < 0.05:
        return clear(
            rule_id,
            f"{words.percent(share)} of the cores wait for disks, {words.percent(waits)} of the "
            "steps for data",
        )
    rate = worst.disk_read.mean if worst.disk_read is not None else 0.0
    told = (
        f"on {worst.node} {words.percent(share)} of the job's cores wait for disks, at "
        f"{words.num_bytes(rate)} read a second"
    )
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"the storage is slow to answer ({numbers.stage})",
        text="Cores are idle until the disk has answered, and the steps wait for what it has.",
        evidence=(told, f"{words.percent(waits)} of a mean step waits for data"),
        next_knob="read copies on the node's fastest disk (staging, node_local_dir of the "
        "profile); more num_loader_threads keep more requests on their way",
        ceiling="that of the finding on data wait",
        confidence="high: cores are idle with a disk request outstanding",
    )


@rule(
    "80 % of the links' speed received, data wait of 5 %, cores under 85 % busy and under "
    "10 % waiting for disks"
)
def full_network(numbers: TrainingNumbers) -> Finding | Check:
    """Find full links with idle cores and disks, while the steps wait for data."""
    rule_id = f"network-full:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    received = [node for node in numbers.loads if tells(node.network_receive)]
    loads = [node for node in received if node.link_bytes_per_s]
    if not received:
        reason = f"fewer than {MIN_READINGS} readings of a node show how much its links receive"
        return abstain(rule_id, reason)
    if not loads:
        return abstain(rule_id, "the kernel reports no speed of its nodes' links")
    worst = max(loads, key=_link_share)
    share, waits = _link_share(worst), share_of(numbers, "data_wait")[0]
    mostly = f"{words.percent(share)} of what the links of {worst.node} carry came in"
    iowait, busy = worst.cpu_iowait, worst.cpu_busy
    elsewhere = (iowait is not None and iowait.mean >= _SLOW_STORAGE) or (
        busy is not None and busy.mean >= _CORES_BUSY
    )
    if share < _FULL_LINK or waits < 0.05 or elsewhere:
        return clear(rule_id, f"{mostly}; {words.percent(waits)} of the steps wait for data")
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"the network of {worst.node} is full, and the steps wait ({numbers.stage})",
        text="Cores and disks have time to spare: nothing comes sooner than the links bring it.",
        evidence=(mostly, f"{words.percent(waits)} of a mean step waits for data"),
        next_knob="read each byte once: staging on node-local storage keeps a copy for the next "
        "epochs and attempts; smaller stored images",
        ceiling="that of the finding on data wait",
        confidence="medium: links carry gradients, too",
    )


def _link_share(load: NodeLoad) -> float:
    received = load.network_receive.mean if load.network_receive is not None else 0.0
    return received / load.link_bytes_per_s if load.link_bytes_per_s else 0.0


def _of_gpus(numbers: TrainingNumbers) -> tuple[list[NodeLoad], str]:
    """Return the nodes whose GPUs were read often enough, or why there are none."""
    if numbers.too_few:
        return [], numbers.too_few
    loads = [load for load in numbers.loads if load.gpu_busy is not None]
    if not loads:
        return [], "no reading of a node shows how busy a GPU was"
    if not all(tells(load.gpu_busy, max(1, len(load.gpu_names))) for load in loads):
        return [], f"fewer than {MIN_READINGS} readings of a node show how busy its GPUs were"
    return loads, ""


def _mean_busy(load: NodeLoad) -> float:
    return load.gpu_busy.mean if load.gpu_busy is not None else 1.0


def _swing(load: NodeLoad) -> float:
    return load.gpu_busy.p95 - load.gpu_busy.p5 if load.gpu_busy is not None else 0.0


def _busy_text(load: NodeLoad) -> str:
    assert load.gpu_busy is not None
    busy = load.gpu_busy
    return (
        f"GPUs of {load.node}: mean {words.percent(busy.mean)}, p5 {words.percent(busy.p5)}, p95 "
        f"{words.percent(busy.p95)}, over {words.number_of('reading', load.num_readings)}"
    )
