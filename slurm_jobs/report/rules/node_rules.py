"""Rules on the load and the speed of nodes. PURE."""

from __future__ import annotations

import re

from slurm_jobs.nodes.probe_records import BY_NAME, MIN_OTHERS, SLOW_SHARE, slow_text
from slurm_jobs.report.node_load import MIN_READINGS, has_readings, mean_of
from slurm_jobs.report.report_model import Check, Finding, NodeLoad, ProbedNode, TrainingNumbers
from slurm_jobs.report.rules.base import abstain, clear, rule, share_of
from slurm_jobs.shared import units

# The load of GPUs and nodes, from readings that a sampler takes every second on each node, during
# the measured steps.


_LOW, _NOTE = 0.15, 0.25
_HIGH_P95, _LOW_P5 = 0.70, 0.10
_SLOW_STORAGE = 0.10
_FULL_LINK, _CORES_BUSY = 0.80, 0.85
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
def gpu_use(numbers: TrainingNumbers) -> Finding | Check:
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
        evidence=(_busy_text(worst), _data_wait_text(numbers)),
        next_knob="see the strongest finding on the steps; without one, try a larger microbatch, "
        "or a profile (`profile: {steps: [20, 40]}`) that shows what the host does",
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
def fluctuating_gpu(numbers: TrainingNumbers) -> Finding | Check:
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
    stalls = {
        kind: share_of(numbers, kind)[0] for kind in ("data_wait", "checkpoint", "evaluation")
    }
    kind = max(stalls, key=lambda name: stalls[name])
    longest = (
        f"the longest timed wait is {kind.replace('_', ' ')}: {units.percent(stalls[kind])} of the "
        "steps' time"
    )
    return Finding(
        title="GPUs swing between busy and idle",
        text="They are busy part of the time and wait in between.",
        evidence=(_busy_text(worst), longest),
        next_knob="see the finding on that wait; if it is data wait, too few batches are read "
        "ahead (num_prefetch_batches) or the loader is slower than the steps",
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
        f"GPUs of {load.node}: mean {units.percent(busy.mean)}, p5 {units.percent(busy.p5)}, p95 "
        f"{units.percent(busy.p95)}, over {units.number_of('reading', load.num_readings)}"
    )


def _data_wait_text(numbers: TrainingNumbers) -> str:
    return f"{units.percent(share_of(numbers, 'data_wait')[0])} of a mean step waits for data"


@rule(
    "storage-queue",
    "10 % of the cores' time idle with a disk request outstanding, and data wait of 5 % of the "
    "step",
    needs_steps=True,
)
def slow_storage(numbers: TrainingNumbers) -> Finding | Check:
    """Find cores that are idle with an outstanding disk request, while the steps wait for data."""
    loads = [load for load in numbers.loads if has_readings(load.cpu_iowait)]
    if not loads:
        return abstain(
            f"fewer than {MIN_READINGS} readings of a node show how long it waited for disks"
        )
    worst = max(loads, key=lambda load: mean_of(load.cpu_iowait))
    share, waits = mean_of(worst.cpu_iowait), share_of(numbers, "data_wait")[0]
    if share < _SLOW_STORAGE or waits < 0.05:
        return clear(
            f"{units.percent(share)} of the cores wait for disks, {units.percent(waits)} of the "
            "steps for data"
        )
    disks = (
        f"on {worst.node} {units.percent(share)} of the job's cores wait for disks, at "
        f"{units.num_bytes(mean_of(worst.disk_read))} read a second"
    )
    return Finding(
        title="the storage is slow to answer",
        text="Cores are idle until the disk answers, and the steps wait for its data.",
        evidence=(disks, _data_wait_text(numbers)),
        next_knob="stage the data on the node's fastest disk (staging, node_local_dir of the "
        "profile); raise num_loader_threads to keep more requests in flight",
        ceiling="that of the finding on data wait",
        confidence="high: cores are idle with a disk request outstanding",
    )


@rule(
    "network-full",
    "80 % of the links' speed received, data wait of 5 %, cores under 85 % busy and under "
    "10 % waiting for disks",
    needs_steps=True,
)
def full_network(numbers: TrainingNumbers) -> Finding | Check:
    """Find full links with idle cores and disks, while the steps wait for data."""
    received = [load for load in numbers.loads if has_readings(load.network_receive)]
    if not received:
        return abstain(
            f"fewer than {MIN_READINGS} readings of a node show how much its links receive"
        )
    shares = [
        (mean_of(load.network_receive) / load.link_bytes_per_s, load)
        for load in received
        if load.link_bytes_per_s
    ]
    if not shares:
        return abstain("the kernel does not report the speed of the nodes' links")
    share, worst = max(shares, key=lambda pair: pair[0])
    waits = share_of(numbers, "data_wait")[0]
    received_text = f"the links of {worst.node} receive at {units.percent(share)} of their speed"
    disks_or_cores = (
        mean_of(worst.cpu_iowait) >= _SLOW_STORAGE or mean_of(worst.cpu_busy) >= _CORES_BUSY
    )
    if share < _FULL_LINK or waits < 0.05 or disks_or_cores:
        return clear(f"{received_text}; {units.percent(waits)} of the steps wait for data")
    return Finding(
        title=f"the network of {worst.node} is full, and the steps wait",
        text="Cores and disks have time to spare, so the links are the limit.",
        evidence=(received_text, _data_wait_text(numbers)),
        next_knob="read each byte once: staging on node-local storage keeps a copy for the next "
        "epochs and attempts; smaller stored images",
        ceiling="that of the finding on data wait",
        confidence="medium: the links carry gradients, too",
    )


# Nodes that probes measured.


_OLD_DAYS = 7.0
"""Drivers, disks and neighbours may change within a week. Own choice."""


@rule(
    "slow-node",
    f"a measure under {units.percent(SLOW_SHARE)} of the lower quartile of the other probed nodes "
    f"of the same hardware, {MIN_OTHERS} of them at least",
)
def slow_node(numbers: TrainingNumbers) -> Finding | Check:
    """Find a node under 80 % of similar nodes' lower quartile in what a training uses."""
    probes = numbers.probes
    command = "slurm-jobs probe SPEC" if probes is None else probes.command
    help_text = f": `{command}`" if command else ", and there is no other machine to compare"
    if probes is None or not probes.probed:
        return abstain(f"none of its nodes has been probed{help_text}")
    compared = [p for p in probes.probed if p.num_compared >= MIN_OTHERS]
    if not compared:
        return abstain(
            f"fewer than {MIN_OTHERS} other nodes of the same hardware were probed{help_text}"
        )
    slow = sorted((p for p in compared if p.slow), key=lambda p: p.slow[0].share)
    if not slow:
        return clear(
            f"{len(compared)} of its {units.number_of('node', len(probes.nodes))} were probed and "
            f"compared; no measure is under {units.percent(SLOW_SHARE)} of the lower quartile of "
            "the others"
        )
    worst = slow[0]
    share = units.percent(worst.slow[0].share)
    others = f" and {units.number_of('other node', len(slow) - 1)}" if len(slow) > 1 else ""
    stage = re.sub(r" \(slice \d+\)$", "", numbers.stage)
    names = ",".join(p.node for p in slow)
    doubts = [doubt for probe in slow for doubt in _doubts(probe)]
    return Finding(
        title=f"{worst.node}{others} measured slow: {BY_NAME[worst.slow[0].name].label} is "
        f"{share} of similar nodes",
        text="In synchronous training every rank waits for the slowest, so one slow node slows "
        "all. The numbers come from a probe, not from the training itself.",
        evidence=tuple(
            f"{p.node}, {units.moment(p.measured_unix_s)}: {slow_text(measure)}"
            for p in slow
            for measure in p.slow
        ),
        next_knob=f"exclude it: --set stages.{stage}.resources.slurm.exclude={names}"
        ", and report it to the site; probe it again first if the confidence is not high",
        ceiling="not known from a probe: see the finding on the straggler",
        confidence=f"medium: {'; '.join(doubts)}"
        if doubts
        else "high: measured on the node itself",
    )


def _doubts(probe: ProbedNode) -> list[str]:
    doubts = []
    if probe.days_apart > _OLD_DAYS:
        days = f"{probe.days_apart:.0f} days"
        doubts.append(f"{probe.node} was probed {days} before or after the training")
    if probe.other_busy_cores is not None:
        cores = units.significant(probe.other_busy_cores)
        doubts.append(f"other processes used {cores} cores of {probe.node} meanwhile")
    if partner := next((measure.partner for measure in probe.slow if measure.partner), ""):
        doubts.append(
            f"the network of {probe.node} was measured with {partner}, which may be the slow one"
        )
    return doubts


def probe_evidence(numbers: TrainingNumbers, nodes: str) -> tuple[str, ...]:
    """Return a line for each named node (`a, b and c`) with the result of its probe."""
    names = set(re.split(r", | and ", nodes))
    lines = []
    for probe in numbers.probes.probed if numbers.probes is not None else ():
        if probe.node not in names:
            continue
        if probe.num_compared < MIN_OTHERS:
            result = (
                f"fewer than {MIN_OTHERS} other nodes of the same hardware were probed, so it "
                "cannot be compared"
            )
        elif probe.slow:
            result = f"measured slow: {slow_text(probe.slow[0])}"
        else:
            result = f"as fast as the other {probe.num_compared} probed nodes of the same hardware"
        lines.append(f"probe of {probe.node}, {units.moment(probe.measured_unix_s)}: {result}")
    return tuple(lines)
