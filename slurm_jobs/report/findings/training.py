"""Rules on the time of training steps. PURE. `findings` describes rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_jobs.report import words
from slurm_jobs.report.findings.base import (
    CAUSE_TITLES,
    SHORT_RUN_S,
    abstain,
    ceiling,
    clear,
    known_times,
    phase_evidence,
    rule,
    share_of,
)
from slurm_jobs.report.findings.starvation import find_cause
from slurm_jobs.report.model.run import Check, Finding
from slurm_jobs.report.model.training import TrainingNumbers

_TRIGGERS = ("every_min", "every_steps")
"""Keys of the config's `checkpoint` that save a state before the end."""

_CHECKPOINT_LIMIT, _EVALUATION_LIMIT = 0.05, 0.10

_ONLY_AT_ENDS = (
    "no key: all saves are those at the end (of the training, of a phase, or at a stop), which are "
    "always made; in a longer training they weigh less, and a faster file system shortens them"
)


@rule(
    "data wait below 5 % of the step is fine, to 20 % moderate, above high",
    "XProf, input-pipeline analysis",
)
def data_wait(numbers: TrainingNumbers) -> Finding | Check:
    """Find waits for data. XProf: < 5 % of the step is fine, to 20 % moderate, then high."""
    rule_id = f"data-wait:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    share, _ = share_of(numbers, "data_wait")
    if share < 0.05:
        return clear(rule_id, f"{words.percent(share)} of the step waits for data, under 5 %")
    degree = "highly" if share >= 0.20 else "moderately"
    cause = find_cause(numbers)
    because = f": {CAUSE_TITLES[cause.kind]}" if cause.kind else ""
    return Finding(
        rule_id=rule_id,
        severity="high" if share >= 0.20 else "medium",
        title=f"{words.percent(share)} of each step waits for data{because} ({numbers.stage})",
        text=f"The training is {degree} input-bound: the ranks ask the loader and wait. "
        f"{cause.text}".rstrip(),
        evidence=(*phase_evidence(numbers, "data_wait"), *cause.evidence),
        next_knob=cause.next_knob,
        ceiling=ceiling(numbers.critical_shares.get("data_wait"), "no data wait"),
        ceiling_times=known_times(numbers.critical_shares.get("data_wait")),
        confidence=cause.confidence,
        cause=cause.kind,
    )


@rule(
    "padding of 5 % or more of the token slots (20 %: high)",
    "own measurement on 65,536 items: greedy packing 11 %, best-fit (1,024 items) 1.5 %",
)
def padding(numbers: TrainingNumbers) -> Finding | Check:
    """Find padding of 5 % or more: best-fit packing leaves 1.5 %, a greedy one 11 %."""
    rule_id = f"padding:{numbers.stage}"
    share = numbers.padding_share.value
    if share is None:
        return abstain(rule_id, numbers.padding_share.missing)
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    if share < 0.05:
        return clear(rule_id, f"{words.percent(share)} of the token slots are padding")
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
        next_knob="ask `slurm-jobs packing`, which shows what each way of batching pads and costs "
        "on this data; then batching.kind (packed, grouped) or batching.max_tokens",
        ceiling=ceiling(
            numbers.critical_shares.get("padding"),
            "no padding, if a padded token costs as much as a real one",
        ),
        ceiling_times=known_times(numbers.critical_shares.get("padding")),
    )


def _stall(numbers: TrainingNumbers, kind: str, limit: float, knob: str) -> Finding | Check:
    rule_id = f"{kind}:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    share, _ = share_of(numbers, kind)
    if share < limit:
        return clear(rule_id, f"{words.percent(share)} of the step time")
    return Finding(
        rule_id=rule_id,
        severity="high" if share >= 0.20 else "medium",
        title=f"{kind} takes {words.percent(share)} of the training time ({numbers.stage})",
        text=f"The ranks are idle during {kind}.",
        evidence=phase_evidence(numbers, kind),
        next_knob=knob,
        ceiling=ceiling(numbers.critical_shares.get(kind), f"no time in {kind}"),
        ceiling_times=known_times(numbers.critical_shares.get(kind)),
    )


@rule(f"checkpoint takes {words.percent(_CHECKPOINT_LIMIT)} of the step time or more")
def checkpoint_stall(numbers: TrainingNumbers) -> Finding | Check:
    """Find checkpoints that take 5 % of the step time; in a short training, only chosen ones."""
    step_s = sum(phase.seconds for phase in numbers.phases)
    if not numbers.saves_ahead and step_s * numbers.num_measured < SHORT_RUN_S:
        reason = "all saves are those at the end, which weigh much in so short a training alone"
        return clear(f"checkpoint:{numbers.stage}", reason)
    knob = _save_less(numbers.checkpoint) if numbers.saves_ahead else _ONLY_AT_ENDS
    return _stall(numbers, "checkpoint", _CHECKPOINT_LIMIT, knob)


def _save_less(config: Mapping[str, Any]) -> str:
    """Return what can be changed, by how the stage saves now; everything if that is unknown."""
    mode = {"async": "", "sync": "checkpoint.mode: async; or "}.get(
        config.get("mode", ""), "checkpoint.mode: async, where it is sync; or "
    )
    given = [f"checkpoint.{n} (now {config[n]:g})" for n in _TRIGGERS if config.get(n) is not None]
    names = given or [f"checkpoint.{name}" for name in _TRIGGERS]
    first = ", whichever comes first" if len(names) > 1 else ""
    return (
        f"{mode}save less often: raise {' and '.join(names)}{first} (the work that a kill loses "
        "grows with it)"
    )


@rule(f"evaluation takes {words.percent(_EVALUATION_LIMIT)} of the step time or more")
def evaluation_stall(numbers: TrainingNumbers) -> Finding | Check:
    """Find evaluation that takes 10 % of the step time."""
    knob = (
        "evaluate less often, or on fewer samples: raise evaluate.every_steps, or lower "
        "evaluate.num_loss_samples and evaluate.num_answers (answers cost most)"
    )
    return _stall(numbers, "evaluation", _EVALUATION_LIMIT, knob)


@rule("repeated steps are 5 % of all recorded steps or more")
def repeated_steps(numbers: TrainingNumbers) -> Finding | Check:
    """Find steps repeated after a stop: 5 % of all recorded steps."""
    rule_id = f"repeated-steps:{numbers.stage}"
    total = numbers.num_steps + numbers.num_repeated_steps
    if not numbers.num_repeated_steps:
        return clear(rule_id, "no step was done twice")
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    share = numbers.num_repeated_steps / total
    if share < 0.05:
        return clear(rule_id, f"{numbers.num_repeated_steps} of {total:,} steps were done twice")
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"{numbers.num_repeated_steps:,} steps were done twice ({numbers.stage})",
        text="An attempt ended after its last checkpoint; the next one did those steps again.",
        evidence=(
            (
                f"{words.seconds(numbers.repeated_s)}, "
                f"{words.percent(share)} of all steps, "
                f"over {words.number_of('attempt', numbers.num_attempts)}"
            ),
        ),
        next_knob=_lose_less(numbers),
        ceiling=ceiling(max(share, _repeated_time(numbers)), "no repeated steps"),
    )


def _lose_less(numbers: TrainingNumbers) -> str:
    """Return advice on losing less; not to save more often if another rule says to save less."""
    notice = "give the job more notice of its end, where it is asked to stop (signal_lead_s)"
    share, _ = share_of(numbers, "checkpoint")
    if share < _CHECKPOINT_LIMIT:
        return f"save more often (checkpoint.every_min or every_steps), or {notice}"
    return (
        f"{notice}; saving more often would cost more: checkpoints take "
        f"{words.percent(share)} of the step time as it is"
    )


def _repeated_time(numbers: TrainingNumbers) -> float:
    """Return the share of repeated steps in the time of all steps; their lengths may differ."""
    around = {"startup", "unexplained", "between"}
    steps_s = sum(s.seconds for s in numbers.budget if s.kind not in around)
    return min(1.0, numbers.repeated_s / steps_s) if steps_s > 0 else 0.0


@rule("more than 0 allocator retries", "DeepSpeed, memory-pressure warning")
def allocator_retries(numbers: TrainingNumbers) -> Finding | Check:
    """Find allocator retries. DeepSpeed: any retry means memory pressure."""
    rule_id = f"memory-pressure:{numbers.stage}"
    if not numbers.num_allocator_retries:
        return clear(rule_id, "no allocator retries")
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
        next_knob="a smaller microbatch, or activation checkpointing",
        ceiling="not known: the cost of a retry is not timed apart",
    )


@rule("time outside the steps is a quarter of the attempts' time or more")
def around_steps(numbers: TrainingNumbers) -> Finding | Check:
    """Find a quarter of the training task outside its loop, start-up and evaluation included."""
    rule_id = f"around-the-steps:{numbers.stage}"
    outside = [s for s in numbers.budget if s.kind in {"startup", "unexplained", "between"}]
    share = sum(s.share for s in outside)
    whole_s = sum(s.seconds for s in numbers.budget)
    if whole_s < SHORT_RUN_S:
        reason = f"the attempts took {words.seconds(whole_s)} in all, under 300 s"
        return abstain(rule_id, reason)
    if share < 0.25:
        return clear(rule_id, f"{words.percent(share)} of the attempts' time")
    largest = sorted(outside, key=lambda s: -s.seconds)[:3]
    return Finding(
        rule_id=rule_id,
        severity="medium" if share >= 0.5 else "note",
        title=f"{words.percent(share)} of the attempts' time is no training step ({numbers.stage})",
        text="Start-up, staging, export and evaluation weigh most on short or often stopped jobs.",
        evidence=tuple(
            f"{s.name}: {words.seconds(s.seconds)}, {words.percent(s.share)}" for s in largest
        ),
        next_knob=f"look at {largest[0].name}; fewer and longer attempts spread it over more steps",
        ceiling=ceiling(share, "nothing but steps"),
    )


@rule("unexplained time is 10 % of the step or more")
def unexplained_time(numbers: TrainingNumbers) -> Finding | Check:
    """Find a tenth of the step that no phase explains."""
    rule_id = f"unexplained:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    share, _ = share_of(numbers, "unexplained")
    if share < 0.10:
        return clear(rule_id, f"{words.percent(share)} of the step is unexplained")
    return Finding(
        rule_id=rule_id,
        severity="note",
        title=f"{words.percent(share)} of each step is unexplained ({numbers.stage})",
        text="No timed phase covers this host time; the other shares are lower bounds.",
        evidence=phase_evidence(numbers, "unexplained"),
        next_knob="a profile of a few steps, to see what runs between the phases",
        ceiling="not known: what takes this time is not",
    )
