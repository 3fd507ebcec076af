"""Rules on ranks that wait for each other, or are far from their GPU. PURE.

`findings` describes rules.
"""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.findings.base import (
    ON_CPUS,
    abstain,
    ceiling,
    clear,
    rule,
    share_of,
    times_without,
)
from slurm_jobs.report.findings.foreign_load import foreign_load
from slurm_jobs.report.findings.probes import probe_evidence
from slurm_jobs.report.model.run import Check, Finding
from slurm_jobs.report.model.training import Straggler, TrainingNumbers

_LIMIT = 0.05
_EXPOSED = 0.10
_RULE = (
    "own work of the slowest rank over the mean of all, or extra data wait, "
    "or time waiting for other ranks: 5 % or more"
)
_SOURCE = "own measurement: dealing packs by cost takes slowest over mean from 1.055 to 1.003"
_HIDDEN = (
    "Only waits between the passes are timed separately; collectives inside forward and backward, "
    "and on GPUs the host's wait for the device, hide more: the result is a lower bound."
)
_MOST_NAMED = 4
_LAST_IN_EACH = (
    "in both exchanges together, each on the last rank, which did not wait",
    "high: each exchange is timed separately",
)
_LAST_IN_BOTH = (
    "on the rank that waits least, because it came last",
    (
        "medium: these records, of an older version, combine the two exchanges of a step; if "
        "different ranks are last in them, a part of it is a wait for slower ranks"
    ),
)
"""Rank on which the exchanges are timed, and the confidence."""


@rule(_RULE, _SOURCE)
def straggler(numbers: TrainingNumbers) -> Finding | Check:
    """Find the slowest rank. Equal work gives 1.003 slowest over mean, unplanned packs 1.055.

    Compared is each rank's own work, its step without the waits for others: the
    steps themselves take equally long on all ranks. A collective ends at the
    same moment on all ranks, so who arrives last where the wait is timed was
    slow since the last collective: the rank is named rightly, and the delay is
    a lower bound.
    """
    rule_id = f"straggler:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    worst = numbers.straggler
    if worst is None:
        return abstain(rule_id, not_compared(numbers))
    data_excess = worst.data_excess_s / worst.step_mean_s if worst.step_mean_s > 0 else 0.0
    ratio = worst.slowest_over_mean
    if ratio is not None and ratio >= 1 + _LIMIT:
        return _slow_rank(numbers, worst, ratio)
    if data_excess >= _LIMIT:
        return _waits_for_data(numbers, worst, data_excess)
    if ratio is None:
        reason = "these step records, of an older version, do not time waits for other ranks apart"
        return abstain(rule_id, reason)
    waiting = share_of(numbers, "rank_wait")[0] - (numbers.meeting_share or 0.0)
    if waiting >= _LIMIT:
        return _uneven_steps(numbers, worst, waiting)
    return clear(
        rule_id,
        f"own work of the slowest rank over the mean: {ratio:.3f}, as far as waits are timed apart",
    )


@rule(
    "exchanges between the passes, each on the rank that comes last to it: together 5 % of the "
    "step or more"
)
def meetings(numbers: TrainingNumbers) -> Finding | Check:
    """Find the cost of the ranks' exchanges between the passes, even on the last rank."""
    rule_id = f"meetings:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    if max(numbers.rank_counts, default=1) == 1:
        return clear(rule_id, "one rank has no other to meet")
    share = numbers.meeting_share
    if share is None:
        return abstain(rule_id, "records of all ranks are needed that time waits for others apart")
    if share < _LIMIT:
        return clear(rule_id, f"{words.percent(share)} of the step, under 5 %")
    mean_s = share * sum(phase.seconds for phase in numbers.phases)
    on_whom, confidence = _LAST_IN_EACH if numbers.meetings_apart else _LAST_IN_BOTH
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"{words.percent(share)} of each step is spent on exchanges of the ranks "
        f"({numbers.stage})",
        text="Twice a step the ranks agree on a few numbers. That takes the network, and the "
        "threads that serve it, about as long however much a step computes. Collectives within the "
        "passes have such a price, too, which is not timed apart.",
        evidence=(f"{words.seconds(mean_s)} a step {on_whom}",),
        next_knob="more work a step, so that they weigh less (global_batch_size, with the learning "
        "rate to match); a free core on each node for the threads that serve them; fewer ranks",
        ceiling=f"{ceiling(share, 'no time in these exchanges')}; more where collectives within "
        "the passes weigh less, too",
        ceiling_times=times_without(share),
        confidence=confidence,
    )


_NEARER_CORES = (
    "cores near the GPUs: a cpus_per_task with which the ranks of a whole node have all its cores "
    "(`slurm: {exclusive: true}`); or, for a part of a node, `slurm: {gres-flags: "
    "enforce-binding}`, where the site's gres.conf says which cores are near which GPU"
)
_OTHER_ORDER = (
    "GPUs in the order of their sockets, as other ranks have the cores near these: without a "
    "`distribution` of your own under `slurm:`, else by CUDA_VISIBLE_DEVICES in `setup:`"
)


@rule(
    "a rank has none of the cores of its GPU's NUMA node",
    "PyTorch, NUMA binding: typically 1 to 10 % of performance",
)
def far_from_gpu(numbers: TrainingNumbers) -> Finding | Check:
    """Find ranks far from their GPU. gres.conf(5): only enforce-binding ties cores to GPUs."""
    rule_id = f"far-from-gpu:{numbers.stage}"
    if numbers.device == "cpu":
        return clear(rule_id, ON_CPUS)
    far = numbers.far_ranks
    if far is None:
        reason = "no record says which cores are near the GPUs: an older version, or no NUMA node"
        return abstain(rule_id, reason)
    if not far:
        return clear(rule_id, "each rank has cores near its GPU")
    evidence = [
        f"{_place(each.rank, each.node)} has cores {each.cores}, and its GPU is near cores "
        f"{each.near_cores}"
        for each in far[:_MOST_NAMED]
    ]
    if len(far) > _MOST_NAMED:
        evidence.append(f"and {words.number_of('more rank', len(far) - _MOST_NAMED)}")
    knobs = {_OTHER_ORDER if each.others_are_near else _NEARER_CORES: None for each in far}
    who = (
        "1 rank runs far from its GPU"
        if len(far) == 1
        else f"{len(far)} ranks run far from their GPUs"
    )
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"{who} ({numbers.stage})",
        text="What the host copies to such a GPU, and each launch, crosses to another NUMA node.",
        evidence=tuple(evidence),
        next_knob="; ".join(knobs),
        ceiling="typically 1 to 10 % by PyTorch's documentation; not known for this training",
        confidence="high that they are far; what it costs is not timed separately",
    )


def not_compared(numbers: TrainingNumbers) -> str:
    """Return why no straggler can be named."""
    if numbers.num_ranks < 2:
        return "one rank has no other to wait for"
    return "no attempt has step records of all its ranks"


@rule(
    "exposed communication of 10 % of the profiled steps or more (20 %: high)",
    "PyTorch's profiler, its panel of bottlenecks",
)
def exposed_communication(numbers: TrainingNumbers) -> Finding | Check:
    """Find exposed communication. PyTorch's profiler: 10 % of the step or more is a bottleneck."""
    rule_id = f"exposed-communication:{numbers.stage}"
    exposed = numbers.exposed
    if max(numbers.rank_counts, default=1) == 1:
        return clear(rule_id, "one rank has no other to communicate with")
    if exposed is None:
        return abstain(rule_id, "no steps were profiled (`profile: {steps: [20, 40]}`)")
    told = f"{words.percent(exposed.share)} of the profiled steps communicates without computation"
    if exposed.share < _EXPOSED:
        return clear(rule_id, told)
    steps = words.number_of("profiled step", exposed.num_steps)
    recorded = (
        f"rank {exposed.rank}, over {steps}: communication "
        f"{words.percent(exposed.communication_share)}, exposed {words.percent(exposed.share)}"
    )
    return Finding(
        rule_id=rule_id,
        severity="high" if exposed.share >= 2 * _EXPOSED else "medium",
        title=f"{words.percent(exposed.share)} of the profiled steps is exposed communication "
        f"({numbers.stage})",
        text="Collectives without concurrent computation cost their whole time, which includes the "
        "wait for the slowest rank.",
        evidence=(recorded,),
        next_knob="the straggler first, where one is named; then sharding.reshard_after_forward: "
        "false, replicas across nodes, or strategy: ddp where the whole model fits a device; "
        "`slurm-jobs profile` shows it step by step",
        ceiling=ceiling(exposed.share, "no exposed communication"),
        ceiling_times=times_without(exposed.share),
        confidence="medium: recorded steps are slower than others, small operators most",
    )


def _place(rank: int, node: str) -> str:
    return f"rank {rank}" + (f" on {node}" if node else "")


def _evidence(numbers: TrainingNumbers, worst: Straggler) -> tuple[str, ...]:
    data = (
        f"rank {worst.data_rank} waits {words.seconds(worst.data_excess_s)} a step longer "
        "for its data than the mean rank"
    )
    if worst.slowest_over_mean is None:
        return (data,)
    share, mean_s = share_of(numbers, "rank_wait")
    meeting = numbers.meeting_share
    price = "" if meeting is None else f"; the exchange itself takes {words.percent(meeting)}"
    waits = f"a mean rank waits {words.seconds(mean_s)} a step for others, {words.percent(share)}"
    own = (
        f"own work of rank {worst.rank} over the mean of all: {worst.slowest_over_mean:.3f}, most "
        f"of it in {worst.phase} ({words.seconds(worst.phase_excess_s)} a step longer than the "
        "mean rank)"
    )
    return (own, f"{waits}{price}", data)


def _evened_out(factor: float | None) -> str:
    """Return the gain of even work by the timed waits: no ceiling, because others are not timed."""
    about = "not known how many" if factor is None else f"about {factor:.2f}"
    return (
        f"own work shared out evenly in each step: {about} times the speed; "
        "more where waits are hidden"
    )


def _slow_rank(numbers: TrainingNumbers, worst: Straggler, ratio: float) -> Finding:
    place = _place(worst.rank, worst.node)
    return Finding(
        rule_id=f"straggler:{numbers.stage}",
        severity="medium",
        title=f"{place} holds the others up, most in {worst.phase} ({numbers.stage})",
        text=f"In synchronous training every rank waits for the slowest in each step. {_HIDDEN}",
        evidence=(*_evidence(numbers, worst), *probe_evidence(numbers, worst.node)),
        next_knob=_slow_place(
            numbers, place, "its device's clock, other jobs, loader threads, storage"
        ),
        ceiling=_evened_out(ratio),
        ceiling_times=ratio,
        confidence=_sureness(numbers),
    )


def _waits_for_data(numbers: TrainingNumbers, worst: Straggler, excess: float) -> Finding:
    place = _place(worst.data_rank, worst.data_node)
    return Finding(
        rule_id=f"straggler:{numbers.stage}",
        severity="medium",
        title=f"{place} holds the others up: it waits for its data ({numbers.stage})",
        text="In synchronous training every rank waits for the slowest in each step.",
        evidence=(
            *reversed(_evidence(numbers, worst)),
            *probe_evidence(numbers, worst.data_node),
        ),
        next_knob=_slow_place(numbers, place, "loader threads, storage, other jobs on it"),
        ceiling=ceiling(excess, f"rank {worst.data_rank} waiting no longer than the mean rank"),
        ceiling_times=times_without(excess),
        confidence=_sureness(numbers),
    )


def _slow_place(numbers: TrainingNumbers, place: str, what: str) -> str:
    """Return what to check: the rank's node, unless all ranks are on that one."""
    nodes = {rank.node for rank in numbers.ranks}
    if len(nodes) == 1:
        return (
            f"all ranks are on {nodes.pop()}: check what only {place} uses there (its device and "
            "the nearest cores, its part of the data) and what else runs there (other jobs, "
            "fewer free cores than ranks and their threads)"
        )
    return f"check the node of {place} ({what}); exclude it with slurm.exclude if it stays slow"


def _sureness(numbers: TrainingNumbers) -> str:
    if isinstance(foreign_load(numbers), Finding):
        return "medium: timed in the records, while others held cores of the job, which may be why"
    return "high: timed in the records"


def _uneven_steps(numbers: TrainingNumbers, worst: Straggler, share: float) -> Finding:
    return Finding(
        rule_id=f"straggler:{numbers.stage}",
        severity="medium",
        title=f"{words.percent(share)} of each step waits for slower ranks ({numbers.stage})",
        text=f"No rank is slow in all steps: which one comes last changes. {_HIDDEN}",
        evidence=_evidence(numbers, worst),
        next_knob=_more_even_steps(numbers),
        ceiling=_evened_out(times_without(share)),
        ceiling_times=times_without(share),
    )


def _more_even_steps(numbers: TrainingNumbers) -> str:
    """Return the advice for equal batches: other load or too few cores are left as causes."""
    padding = numbers.padding_share.value
    if padding is not None and padding < _LIMIT:
        return (
            "the batches are of equal length already: look at the nodes first (other jobs on them, "
            "fewer free cores than ranks and their threads), then try larger microbatches"
        )
    return (
        "batches of more equal length, or fewer and larger microbatches; "
        "if data wait differs too, more num_prefetch_batches"
    )
