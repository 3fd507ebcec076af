"""Rules about the time of training steps: PURE. See `findings` for what a rule is."""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.model import Check, Finding, TrainingNumbers

OWN_CHOICE = "own choice; no published threshold is known"


def _clear(rule_id: str, reason: str) -> Check:
    return Check(rule_id=rule_id, outcome="clear", reason=reason)


def _abstain(rule_id: str, reason: str) -> Check:
    return Check(rule_id=rule_id, outcome="abstained", reason=reason)


def _share(numbers: TrainingNumbers, kind: str) -> tuple[float, float]:
    """Share of the step and mean seconds of a step phase."""
    for phase in numbers.phases:
        if phase.kind == kind:
            return phase.share, phase.seconds
    return 0.0, 0.0


def _ceiling(share: float, what: str) -> str:
    factor = 1 / (1 - share) if share < 1 else float("inf")
    return f"{what}: {words.times(factor)} the speed"


def _phase_evidence(numbers: TrainingNumbers, kind: str) -> tuple[str, ...]:
    share, mean_s = _share(numbers, kind)
    return (
        f"{words.seconds(mean_s)} of a mean step, {words.percent(share)} of its time",
        (
            f"over {words.number_of('step', numbers.num_measured)} "
            f"on {words.number_of('rank', numbers.num_ranks)}, "
            f"the first {numbers.warmup_steps} of each attempt left out"
        ),
    )


def data_wait(numbers: TrainingNumbers) -> Finding | Check:
    """XProf: input < 5 % of the step is fine, 5 to 20 % moderate, from 20 % on high."""
    rule_id = f"data-wait:{numbers.stage}"
    if numbers.too_few:
        return _abstain(rule_id, numbers.too_few)
    share, _ = _share(numbers, "data_wait")
    if share < 0.05:
        return _clear(rule_id, f"{words.percent(share)} of the step waits for data, under 5 %")
    degree = "highly" if share >= 0.20 else "moderately"
    return Finding(
        rule_id=rule_id,
        severity="high" if share >= 0.20 else "medium",
        title=f"{words.percent(share)} of each step waits for data ({numbers.stage})",
        text=f"The training is {degree} input-bound: the ranks ask the loader and wait.",
        evidence=_phase_evidence(numbers, "data_wait"),
        rule="data wait below 5 % of the step is fine, to 20 % moderate, above high",
        source="XProf, input-pipeline analysis",
        next_knob="more num_loader_threads, then num_prefetch_batches; check that shards were "
        "staged on node-local storage, and that cpus_per_task leaves cores for the loader",
        ceiling=_ceiling(share, "no data wait"),
    )


def straggler(numbers: TrainingNumbers) -> Finding | Check:
    """Equal work leaves 1.003 between slowest and mean, unplanned packs 1.055; 1.05 is flagged."""
    rule_id = f"straggler:{numbers.stage}"
    if numbers.too_few:
        return _abstain(rule_id, numbers.too_few)
    worst = numbers.straggler
    if worst is None:
        return _abstain(rule_id, "one rank has nobody to wait for")
    step_s = sum(r.step_mean_s for r in numbers.ranks) / len(numbers.ranks)
    excess = worst.data_excess_s / step_s if step_s > 0 else 0.0
    if worst.slowest_over_mean < 1.05 and excess < 0.05:
        return _clear(rule_id, f"slowest rank over the mean: {worst.slowest_over_mean:.3f}")
    by_data = excess >= 0.05
    rank, node = (worst.data_rank, worst.data_node) if by_data else (worst.rank, worst.node)
    place = f"rank {rank}" + (f" on {node}" if node else "")
    slow = excess if by_data else 1 - 1 / worst.slowest_over_mean
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"{place} holds the others up ({numbers.stage})",
        text="In synchronous training every rank waits for the slowest in each step.",
        evidence=(
            (
                f"slowest mean step over the mean of all ranks: {worst.slowest_over_mean:.3f} "
                f"(rank {worst.rank})"
            ),
            (
                f"rank {worst.data_rank} waits {words.seconds(worst.data_excess_s)} a step longer "
                "for its data than the mean rank"
            ),
        ),
        rule="slowest over mean, or extra data wait, 5 % of the step or more",
        source="own measurement: dealing packs by cost takes slowest over mean from 1.055 to 1.003",
        next_knob=f"look at the node of {place} (loader threads, storage, other jobs on it); "
        "exclude it with slurm.exclude if it stays slow",
        ceiling=_ceiling(slow, "no straggler"),
    )


def padding(numbers: TrainingNumbers) -> Finding | Check:
    """Best-fit packing leaves 1.5 % padding, a greedy one 11 %: from 5 % on there is a better."""
    rule_id = f"padding:{numbers.stage}"
    share = numbers.padding_share.value
    if share is None:
        return _abstain(rule_id, numbers.padding_share.missing)
    if numbers.too_few:
        return _abstain(rule_id, numbers.too_few)
    if share < 0.05:
        return _clear(rule_id, f"{words.percent(share)} of the token slots are padding")
    return Finding(
        rule_id=rule_id,
        severity="high" if share >= 0.20 else "medium",
        title=f"{words.percent(share)} of the tokens computed are padding ({numbers.stage})",
        text="The devices compute on tokens that teach nothing.",
        evidence=(
            (
                f"{words.quantity(numbers.num_tokens)} are real; "
                f"padding takes {words.percent(share)} of all token slots"
            ),
        ),
        rule="padding of 5 % or more of the token slots",
        source="own measurement on 65,536 items: greedy packing 11 %, best-fit (1,024 items) 1.5 %",
        next_knob="pack samples into one sequence, or group batches by length, "
        "whichever the attention kernel makes cheaper",
        ceiling=_ceiling(share, "no padding, if a padded token costs as much as a real one"),
    )


def _stall(numbers: TrainingNumbers, kind: str, limit: float, knob: str) -> Finding | Check:
    rule_id = f"{kind}:{numbers.stage}"
    if numbers.too_few:
        return _abstain(rule_id, numbers.too_few)
    share, _ = _share(numbers, kind)
    if share < limit:
        return _clear(rule_id, f"{words.percent(share)} of the step time")
    return Finding(
        rule_id=rule_id,
        severity="high" if share >= 0.20 else "medium",
        title=f"{kind} takes {words.percent(share)} of the training time ({numbers.stage})",
        text=f"The ranks stand still during {kind}.",
        evidence=_phase_evidence(numbers, kind),
        rule=f"{kind} takes {words.percent(limit)} of the step time or more",
        source=OWN_CHOICE,
        next_knob=knob,
        ceiling=_ceiling(share, f"no time in {kind}"),
    )


def checkpoint_stall(numbers: TrainingNumbers) -> Finding | Check:
    """Checkpoints that take 5 % of the step time."""
    knob = "save less often: checkpoint.every_min (the work that a kill loses grows with it)"
    return _stall(numbers, "checkpoint", 0.05, knob)


def evaluation_stall(numbers: TrainingNumbers) -> Finding | Check:
    """Evaluation that takes 10 % of the step time."""
    knob = "evaluate less often, or on fewer samples"
    return _stall(numbers, "evaluation", 0.10, knob)


def repeated_steps(numbers: TrainingNumbers) -> Finding | Check:
    """Steps done again after a stop: 5 % of all recorded steps."""
    rule_id = f"repeated-steps:{numbers.stage}"
    total = numbers.num_steps + numbers.num_repeated_steps
    if not numbers.num_repeated_steps:
        return _clear(rule_id, "no step was done twice")
    share = numbers.num_repeated_steps / total
    if share < 0.05:
        return _clear(rule_id, f"{numbers.num_repeated_steps} of {total:,} steps were done twice")
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"{numbers.num_repeated_steps:,} steps were done twice ({numbers.stage})",
        text="An attempt ended after its last checkpoint; the next one did those steps again.",
        evidence=(
            (
                f"{words.seconds(numbers.repeated_s)} "
                f"on {words.number_of('rank', numbers.num_ranks)}, "
                f"{words.percent(share)} of all steps, "
                f"over {words.number_of('attempt', numbers.num_attempts)}"
            ),
        ),
        rule="repeated steps are 5 % of all recorded steps or more",
        source=OWN_CHOICE,
        next_knob="save more often (checkpoint.every_min), or give the job more notice of its end",
        ceiling=_ceiling(share, "no repeated steps"),
    )


def allocator_retries(numbers: TrainingNumbers) -> Finding | Check:
    """DeepSpeed: any retry of the device allocator means memory pressure."""
    rule_id = f"memory-pressure:{numbers.stage}"
    if not numbers.num_allocator_retries:
        return _clear(rule_id, "no allocator retries")
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"the device's memory is nearly full ({numbers.stage})",
        text="The allocator had to flush its cache and try again, which stalls the device.",
        evidence=(
            (
                f"{numbers.num_allocator_retries:,} allocator retries; "
                f"peak {words.quantity(numbers.memory_peak_bytes)}"
            ),
        ),
        rule="more than 0 allocator retries",
        source="DeepSpeed, memory-pressure warning",
        next_knob="a smaller microbatch, or activation checkpointing",
        ceiling="not known: the cost of a retry is not timed apart",
    )


def around_steps(numbers: TrainingNumbers) -> Finding | Check:
    """A quarter of the training task's time outside its loop, start-up and evaluation included."""
    rule_id = f"around-the-steps:{numbers.stage}"
    outside = [s for s in numbers.budget if s.kind in {"startup", "unexplained", "between"}]
    share = sum(s.share for s in outside)
    if not numbers.budget or share < 0.25:
        return _clear(rule_id, f"{words.percent(share)} of the attempts' time")
    largest = sorted(outside, key=lambda s: -s.seconds)[:3]
    return Finding(
        rule_id=rule_id,
        severity="medium" if share >= 0.5 else "note",
        title=f"{words.percent(share)} of the attempts' time is no training step ({numbers.stage})",
        text="Start-up, staging, export and evaluation weigh most on short or often stopped jobs.",
        evidence=tuple(
            f"{s.name}: {words.seconds(s.seconds)}, {words.percent(s.share)}" for s in largest
        ),
        rule="time outside the steps is a quarter of the attempts' time or more",
        source=OWN_CHOICE,
        next_knob=f"look at {largest[0].name}; fewer and longer attempts spread it over more steps",
        ceiling=_ceiling(share, "nothing but steps"),
    )


def unexplained_time(numbers: TrainingNumbers) -> Finding | Check:
    """A tenth of the step that no phase explains."""
    rule_id = f"unexplained:{numbers.stage}"
    if numbers.too_few:
        return _abstain(rule_id, numbers.too_few)
    share, _ = _share(numbers, "unexplained")
    if share < 0.10:
        return _clear(rule_id, f"{words.percent(share)} of the step is unexplained")
    return Finding(
        rule_id=rule_id,
        severity="note",
        title=f"{words.percent(share)} of each step is unexplained ({numbers.stage})",
        text="No timed phase covers this host time; the other shares are lower bounds.",
        evidence=_phase_evidence(numbers, "unexplained"),
        rule="unexplained time is 10 % of the step or more",
        source=OWN_CHOICE,
        next_knob="a profile of a few steps, to see what runs between the phases",
        ceiling=_ceiling(share, "no unexplained time"),
    )
