"""Rules on slow storage and full links of nodes while steps wait for data. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.numbers.trainings.node_load import MIN_READINGS, has_readings, mean_of
from slurm_jobs.report.rules.base import abstain, clear, rule
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers

_SLOW_STORAGE = 0.10
_FULL_LINK, _CORES_BUSY = 0.80, 0.85


def data_wait_text(numbers: TrainingNumbers) -> str:
    """Return the share of a mean step that waits for data."""
    return f"{units.percent(numbers.phase('data_wait').share)} of a mean step waits for data"


@rule(
    "storage-queue",
    "10 % of the cores' time idle with a disk request outstanding, and data wait of 5 % of the "
    "step",
    needs_steps=True,
)
def slow_storage(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find cores that are idle with an outstanding disk request, while the steps wait for data."""
    loads = [load for load in numbers.loads if has_readings(load.cpu_iowait)]
    if not loads:
        return abstain(
            f"fewer than {MIN_READINGS} readings of a node show how long it waited for disks"
        )
    worst = max(loads, key=lambda load: mean_of(load.cpu_iowait))
    share, waits = mean_of(worst.cpu_iowait), numbers.phase("data_wait").share
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
        evidence=(disks, data_wait_text(numbers)),
        next_knob="Stage the data on the node's fastest disk (staging, node_local_dir of the "
        "profile). Raise num_loader_threads to keep more requests in flight.",
        ceiling="the same as for the finding on data wait",
        confidence="high: cores are idle with a disk request outstanding",
    )


@rule(
    "network-full",
    "80 % of the links' speed received, data wait of 5 %, cores under 85 % busy and under "
    "10 % waiting for disks",
    needs_steps=True,
)
def full_network(numbers: TrainingNumbers) -> Finding | RuleOutcome:
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
    waits = numbers.phase("data_wait").share
    received_text = f"the links of {worst.node} receive at {units.percent(share)} of their speed"
    disks_or_cores = (
        mean_of(worst.cpu_iowait) >= _SLOW_STORAGE or mean_of(worst.cpu_busy) >= _CORES_BUSY
    )
    if share < _FULL_LINK or waits < 0.05 or disks_or_cores:
        return clear(f"{received_text}; {units.percent(waits)} of the steps wait for data")
    return Finding(
        title=f"the network of {worst.node} is full, and the steps wait",
        text="Cores and disks have time to spare, so the links are the limit.",
        evidence=(received_text, data_wait_text(numbers)),
        next_knob="Read each byte once: staging on node-local storage keeps a copy for the next "
        "epochs and attempts. Smaller stored images help, too.",
        ceiling="the same as for the finding on data wait",
        confidence="medium: the links carry gradients, too",
    )
