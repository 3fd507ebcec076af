"""Numbers from the step records of a training stage. PURE, vectorised over the steps.

Steps that a later attempt repeated count as repeated, not as progress, and those of an abandoned
config as neither. The first steps of each attempt are excluded from the statistics as warm-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slurm_jobs.report.inputs.records import StageInputs
from slurm_jobs.report.model.training import TrainingNumbers
from slurm_jobs.report.model.values import Quantity, TimeShare, known, missing
from slurm_jobs.report.numbers.attempts import AttemptFacts
from slurm_jobs.report.numbers.communication import exposed_communication
from slurm_jobs.report.numbers.curves import make_curves
from slurm_jobs.report.numbers.device import device_notes, device_timeline, has_device_times
from slurm_jobs.report.numbers.judged import MIN_STEPS, judged_attempts, mixed_note
from slurm_jobs.report.numbers.load import node_loads
from slurm_jobs.report.numbers.loader import loader_load
from slurm_jobs.report.numbers.pace import find_pace
from slurm_jobs.report.numbers.ranks import (
    attempt_means,
    critical_shares,
    far_ranks,
    mean_phases,
    meeting_price,
    rank_numbers,
)
from slurm_jobs.report.numbers.rates import ranks_of, rates, total
from slurm_jobs.report.numbers.results import has_newest_steps
from slurm_jobs.report.numbers.starts import usual_start_s
from slurm_jobs.report.numbers.startup import attempt_budget
from slurm_jobs.report.numbers.step_notes import step_notes
from slurm_jobs.report.numbers.steps import (
    AttemptSteps,
    last_losses,
    split_attempts,
)
from slurm_jobs.report.numbers.stragglers import find_straggler
from slurm_jobs.run.intents import Intent

TRAIN_RUN = "train"
"""`run:` of the stage whose config is known here; a user's stage may record steps, too."""
_EARLIER = (
    "all steps are of an earlier config, code or plan: none is recorded of the newest job's yet; "
    "their time counts, their loss is no result"
)


def training_numbers(
    stage: StageInputs,
    facts: Sequence[AttemptFacts],
    warmup_steps: int,
    intents: Sequence[Intent] | None = None,
    *,
    to_judge: bool = False,
) -> tuple[TrainingNumbers, ...]:
    """Return an entry for each slice of the stage that recorded steps; empty if none did.

    Args:
        stage: stage with its timings.
        facts: its attempts.
        warmup_steps: at the start of each attempt.
        intents: intents of the run; None if the ledger could not be read.
        to_judge: for the rules: of the steps that `judged_attempts` names, but for what was lost
            and what came around the steps, which are of all.
    """
    indices = sorted({t.slice_index for t in stage.timings if t.steps is not None})
    found = (_of_slice(stage, facts, index, warmup_steps, to_judge=to_judge) for index in indices)
    numbers = zip(indices, found, strict=True)
    return tuple(
        own
        if has_newest_steps(stage, index, intents)
        else replace(own, is_earlier=True, notes=(*own.notes, _EARLIER))
        for index, own in numbers
        if own is not None
    )


def _of_slice(
    stage: StageInputs,
    facts: Sequence[AttemptFacts],
    index: int,
    warmup_steps: int,
    *,
    to_judge: bool,
) -> TrainingNumbers | None:
    timings = [t for t in stage.timings if t.slice_index == index]
    fingerprints = {a.attempt: a.fingerprint for a in stage.attempts if a.slice_index == index}
    attempts = split_attempts(timings, warmup_steps, fingerprints)
    if not attempts:
        return None
    is_only = stage.num_slices == 1 and index == 0
    name = stage.name if is_only else f"{stage.name} (slice {index})"
    bars = {f.bar.attempt: f.bar for f in facts if f.record and f.bar.slice_index == index}
    budget = attempt_budget(attempts, bars, timings)
    own = judged_attempts(attempts, fingerprints) if to_judge else attempts
    numbers = _numbers(name, own, budget, _loss_unit(stage))
    return replace(
        numbers,
        notes=(*numbers.notes, *mixed_note(attempts, fingerprints)),
        loader=loader_load(stage, own, numbers.ranks) if is_ours(stage) else None,
        checkpoint=_checkpoint(stage),
        saves_ahead=_saves_ahead(stage, own),
        pace=find_pace(attempts, fingerprints, timings),
        start_s=usual_start_s(attempts, bars, timings),
        **_of_nodes(stage, index, own),
        **_done_and_lost(attempts),
    )


def _numbers(
    name: str, attempts: Sequence[AttemptSteps], budget: tuple[TimeShare, ...], loss_unit: str
) -> TrainingNumbers:
    num_measured, means = sum(len(a.measured(0)) for a in attempts), attempt_means(attempts)
    memory = max(float(r["memory_peak_bytes"].max()) for a in attempts for r in a.records)
    return TrainingNumbers(
        stage=name,
        num_measured=num_measured,
        warmup_steps=attempts[0].warmup_steps,
        too_few=_too_few(num_measured, attempts[0].warmup_steps),
        phases=mean_phases(means),
        critical_shares=critical_shares(attempts),
        ranks=rank_numbers(attempts, means),
        memory_peak_bytes=known(memory, "bytes")
        if memory > 0
        else missing("bytes", "not recorded"),
        num_allocator_retries=sum(
            int(r["num_allocator_retries"].max()) for a in attempts for r in a.records
        ),
        straggler=find_straggler(means),
        budget=budget,
        curves=make_curves(attempts),
        notes=(*step_notes(attempts), *device_notes(attempts)),
        has_device_times=has_device_times(attempts),
        device_timeline=device_timeline(attempts),
        device=_device(attempts),
        far_ranks=far_ranks(attempts[-1]),
        num_microbatches=_usual_microbatches(attempts),
        **_done_and_lost(attempts),
        **_meetings(attempts),
        **_losses(attempts, loss_unit),
        **rates(attempts),
        **ranks_of(attempts),
    )


def _done_and_lost(attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    repeated = [a.repeated(a.longest) for a in attempts]
    abandoned = [a.abandoned(a.longest) for a in attempts]
    return {
        "num_attempts": len(attempts),
        "num_steps": sum(max(a.num_kept) for a in attempts),
        "num_repeated_steps": sum(len(r) for r in repeated),
        "repeated_s": total(repeated, "step_s"),
        "num_abandoned_steps": sum(len(r) for r in abandoned),
        "abandoned_s": total(abandoned, "step_s"),
    }


def _meetings(attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    price = meeting_price(attempts)
    return {
        "meeting_share": None if price is None else price.share,
        "meetings_apart": price is not None and price.is_apart,
    }


def _of_nodes(stage: StageInputs, index: int, attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    """Return numbers from the readings of its nodes, and the input of rules on them."""
    readings = [r for r in stage.readings if r.slice_index == index]
    loads = node_loads(readings, attempts, stage.resources)
    profiles = [p for p in stage.profiles if p.slice_index == index]
    sizes = [load.gpu_memory_bytes for load in loads if load.gpu_memory_bytes is not None]
    return {
        "loads": loads,
        "exposed": exposed_communication(profiles),
        "profiled": next((p.device for p in profiles if p.device is not None), None),
        "memory_capacity_bytes": min(sizes, default=None),
        "num_loader_threads": stage.config.get("num_loader_threads") if is_ours(stage) else None,
        "activation_checkpointing": is_ours(stage)
        and bool(stage.config.get("activation_checkpointing")),
    }


def is_ours(stage: StageInputs) -> bool:
    """Check whether its config is known here."""
    return stage.run == TRAIN_RUN


def _checkpoint(stage: StageInputs) -> Mapping[str, Any]:
    """Return the newest config's keys on when and how the state is saved."""
    if stage.run != TRAIN_RUN or "checkpoint" not in stage.config:
        return {}
    return {
        name: stage.config["checkpoint"].get(name) for name in ("mode", "every_min", "every_steps")
    }


def _saves_ahead(stage: StageInputs, attempts: Sequence[AttemptSteps]) -> bool:
    """Check whether a state was saved other than at the end of an attempt or a phase."""
    saves = sum(int((a.records[a.longest]["checkpoint_s"][:-1] > 0).sum()) for a in attempts)
    phases = stage.config.get("phases") if stage.run == TRAIN_RUN else None
    return saves > max(0, len(phases or ()) - 1)


def _device(attempts: Sequence[AttemptSteps]) -> str:
    """Return the device of the newest attempt."""
    said = [t.steps.metadata.get("device") for t in attempts[-1].ranks if t.steps is not None]
    return str(said[0] or "") if said else ""


def _usual_microbatches(attempts: Sequence[AttemptSteps]) -> int:
    counts = np.concatenate([r["num_microbatches"] for a in attempts for r in a.records])
    return int(np.median(counts))


def _too_few(num_measured: int, warmup_steps: int) -> str:
    if num_measured >= MIN_STEPS:
        return ""
    return (
        f"{num_measured} steps after a warm-up of {warmup_steps} an attempt; "
        f"{MIN_STEPS} are needed for a judgement"
    )


def _loss_unit(stage: StageInputs) -> str:
    """Return the unit; where levels are learned, the loss is the sum of weight times mean."""
    has_levels = stage.run == TRAIN_RUN and stage.config.get("levels")
    return "nats, weighted sum over levels" if has_levels else "nats/token"


def _losses(attempts: Sequence[AttemptSteps], unit: str) -> dict[str, Any]:
    losses = np.concatenate([a.kept(a.longest)["loss"] for a in attempts])
    losses = losses[np.isfinite(losses)]
    last = last_losses(attempts)
    return {
        "first_loss": _loss(losses[:1], unit),
        "last_loss": _loss(last, unit),
        "num_last_losses": len(last),
    }


def _loss(values: np.ndarray, unit: str) -> Quantity:
    if not len(values):
        return missing(unit, "no step recorded a finite loss")
    return known(float(values.mean(dtype=np.float64)), unit)
