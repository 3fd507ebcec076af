"""Rules on the load and the speed of nodes. PURE."""

from __future__ import annotations

import re

from slurm_jobs.nodes.probe_records import BY_NAME, MIN_OTHERS, SLOW_SHARE, slow_text
from slurm_jobs.report.node_load import MIN_READINGS, tells
from slurm_jobs.report.report_model import Check, Finding, NodeLoad, ProbedNode, TrainingNumbers
from slurm_jobs.report.rules.base import ON_CPUS, abstain, clear, rule, share_of
from slurm_jobs.shared import units

# Rules on the load of GPUs and nodes. `findings` describes rules.
#
# They use the readings that a sampler takes every second on each node, during the measured steps.


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
        return clear(rule_id, f"GPUs are busy {units.percent(share)} of the time or more")
    data_share, _ = share_of(numbers, "data_wait")
    return Finding(
        rule_id=rule_id,
        severity="high" if share <= _LOW else "note",
        title=f"GPUs are busy {units.percent(share)} of the time ({numbers.stage})",
        text="The requested GPUs are idle. The findings on what the steps wait for say why.",
        evidence=(
            _busy_text(worst),
            f"{units.percent(data_share)} of a mean step waits for data",
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
            f"p5 {units.percent(worst.gpu_busy.p5)}, p95 {units.percent(worst.gpu_busy.p95)}",
        )
    stalls = {
        kind: share_of(numbers, kind)[0] for kind in ("data_wait", "checkpoint", "evaluation")
    }
    kind = max(stalls, key=lambda name: stalls[name])
    longest = (
        f"of the waits that steps time, {kind.replace('_', ' ')} is the longest: "
        f"{units.percent(stalls[kind])} of their time"
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
            f"{units.percent(share)} of the cores wait for disks, {units.percent(waits)} of the "
            "steps for data",
        )
    rate = worst.disk_read.mean if worst.disk_read is not None else 0.0
    told = (
        f"on {worst.node} {units.percent(share)} of the job's cores wait for disks, at "
        f"{units.num_bytes(rate)} read a second"
    )
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"the storage is slow to answer ({numbers.stage})",
        text="Cores are idle until the disk has answered, and the steps wait for what it has.",
        evidence=(told, f"{units.percent(waits)} of a mean step waits for data"),
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
    mostly = f"{units.percent(share)} of what the links of {worst.node} carry came in"
    iowait, busy = worst.cpu_iowait, worst.cpu_busy
    elsewhere = (iowait is not None and iowait.mean >= _SLOW_STORAGE) or (
        busy is not None and busy.mean >= _CORES_BUSY
    )
    if share < _FULL_LINK or waits < 0.05 or elsewhere:
        return clear(rule_id, f"{mostly}; {units.percent(waits)} of the steps wait for data")
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"the network of {worst.node} is full, and the steps wait ({numbers.stage})",
        text="Cores and disks have time to spare: nothing comes sooner than the links bring it.",
        evidence=(mostly, f"{units.percent(waits)} of a mean step waits for data"),
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
        f"GPUs of {load.node}: mean {units.percent(busy.mean)}, p5 {units.percent(busy.p5)}, p95 "
        f"{units.percent(busy.p95)}, over {units.number_of('reading', load.num_readings)}"
    )


# Rules on nodes that probes measured. `findings` describes rules.


_OLD_DAYS = 7.0
"""Drivers, disks and neighbours may change within a week. Own choice."""


@rule(
    f"a measure under {units.percent(SLOW_SHARE)} of the lower quartile of the other probed nodes "
    f"of the same hardware, {MIN_OTHERS} of them at least"
)
def slow_node(numbers: TrainingNumbers) -> Finding | Check:
    """Find a node under 80 % of similar nodes' lower quartile in what a training uses."""
    rule_id = f"slow-node:{numbers.stage}"
    probes = numbers.probes
    if probes is None or not probes.probed:
        command = "slurm-jobs probe SPEC" if probes is None else probes.command
        return abstain(rule_id, _with("none of its nodes was ever probed", command))
    compared = [p for p in probes.probed if p.num_compared >= MIN_OTHERS]
    if not compared:
        return abstain(
            rule_id,
            _with(
                f"fewer than {MIN_OTHERS} other nodes of the same hardware were probed",
                probes.command,
            ),
        )
    slow = sorted((p for p in compared if p.slow), key=lambda p: p.slow[0].share)
    if not slow:
        return clear(rule_id, _all_alike(len(compared), len(probes.nodes)))
    return _found(rule_id, numbers.stage, slow)


def _with(reason: str, command: str) -> str:
    """Add the command that would help to the reason."""
    return f"{reason}: `{command}`" if command else f"{reason}, and there is no other machine"


def _all_alike(num_compared: int, num_nodes: int) -> str:
    return (
        f"{num_compared} of its {units.number_of('node', num_nodes)} were probed and compared; no "
        f"measure is under {units.percent(SLOW_SHARE)} of the lower quartile of the others"
    )


def _found(rule_id: str, stage: str, slow: list[ProbedNode]) -> Finding:
    worst = slow[0]
    label = BY_NAME[worst.slow[0].name].label
    names = ",".join(p.node for p in slow)
    others = f" and {units.number_of('other node', len(slow) - 1)}" if len(slow) > 1 else ""
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"{worst.node}{others} measured slow: {label} is "
        f"{units.percent(worst.slow[0].share)} of similar nodes ({stage})",
        text="In synchronous training every rank waits for the slowest, so one slow node slows "
        "all. The numbers are of a probe, not of the training itself.",
        evidence=tuple(
            f"{p.node}, {units.moment(p.measured_unix_s)}: {slow_text(measure)}"
            for p in slow
            for measure in p.slow
        ),
        next_knob=f"leave it out: --set stages.{_stage_key(stage)}.resources.slurm.exclude={names}"
        ", and report it to the site; probe it again first where the confidence is not high",
        ceiling="not known from a probe: the finding on the straggler shows what the steps lose",
        confidence=_confidence(slow),
    )


def _stage_key(stage: str) -> str:
    """Return the stage's name without the slice that its numbers are of."""
    return re.sub(r" \(slice \d+\)$", "", stage)


def _confidence(slow: list[ProbedNode]) -> str:
    doubts = []
    for probe in slow:
        if probe.days_apart > _OLD_DAYS:
            days = f"{probe.days_apart:.0f} days"
            doubts.append(f"{probe.node} was probed {days} before or after the training")
        if probe.other_busy_cores is not None:
            cores = units.significant(probe.other_busy_cores)
            doubts.append(f"others kept {cores} cores of {probe.node} busy meanwhile")
        if any(measure.partner for measure in probe.slow):
            partner = next(m.partner for m in probe.slow if m.partner)
            doubts.append(
                f"the network of {probe.node} was measured with {partner}, which may be "
                "the slow one"
            )
    return f"medium: {'; '.join(doubts)}" if doubts else "high: measured on the node itself"


def probe_evidence(numbers: TrainingNumbers, nodes: str) -> tuple[str, ...]:
    """Return a line for each named node (`a, b and c`) with what probes say of it."""
    names = set(re.split(r", | and ", nodes))
    probed = numbers.probes.probed if numbers.probes is not None else ()
    return tuple(_said_of(probe) for probe in probed if probe.node in names)


def _said_of(probe: ProbedNode) -> str:
    when = units.moment(probe.measured_unix_s)
    if probe.num_compared < MIN_OTHERS:
        said = f"there are no {MIN_OTHERS} other probed nodes of its hardware to compare it with"
    elif probe.slow:
        said = f"measured slow: {slow_text(probe.slow[0])}"
    else:
        said = f"measured like the other {probe.num_compared} of its hardware"
    return f"probe of {probe.node}, {when}: {said}"
