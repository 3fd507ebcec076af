"""Numbers from the step records of a training stage, vectorised over the steps. PURE.

Steps that a later attempt repeated count as repeated, not as progress, and those of an abandoned
config as neither. The first steps of each attempt are excluded from the statistics as warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_jobs.base.quantities import Quantity, known, missing
from slurm_jobs.report.attempts.gathered_attempts import AttemptFacts
from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.numbers.current_results import has_newest_steps
from slurm_jobs.report.numbers.trainings.curves import make_curves
from slurm_jobs.report.numbers.trainings.device_times import (
    device_notes,
    device_timeline,
    has_device_times,
)
from slurm_jobs.report.numbers.trainings.loader_load import loader_load
from slurm_jobs.report.numbers.trainings.losses_of_manifests import losses_of_manifests
from slurm_jobs.report.numbers.trainings.node_load import node_loads
from slurm_jobs.report.numbers.trainings.packed_check_note import packed_check_note
from slurm_jobs.report.numbers.trainings.rank_numbers import (
    attempt_means,
    critical_shares,
    exposed_communication,
    far_ranks,
    mean_phases,
    meeting_price,
    rank_numbers,
)
from slurm_jobs.report.numbers.trainings.stragglers import find_straggler
from slurm_jobs.report.numbers.trainings.training_rates import ranks_of, rates, total
from slurm_jobs.report.numbers.trainings.training_time import attempt_budget, usual_start_s
from slurm_jobs.report.steps.attempt_steps import AttemptSteps, last_losses, split_by_slice
from slurm_jobs.report.steps.newest_steps import MIN_STEPS, judged_attempts, mixed_note
from slurm_jobs.report.steps.step_notes import step_notes
from slurm_jobs.report.steps.step_pace import find_pace
from slurm_jobs.report.values.training_model import TrainingNumbers
from slurm_jobs.run_folder.ledger import Intent

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
    return tuple(
        _of_slice(stage, facts, index, attempts, intents, to_judge=to_judge)
        for index, attempts in split_by_slice(stage, warmup_steps).items()
    )


def _of_slice(
    stage: StageInputs,
    facts: Sequence[AttemptFacts],
    index: int,
    attempts: Sequence[AttemptSteps],
    intents: Sequence[Intent] | None,
    *,
    to_judge: bool,
) -> TrainingNumbers:
    timings = [t for t in stage.timings if t.slice_index == index]
    bars = {f.bar.attempt: f.bar for f in facts if f.record and f.bar.slice_index == index}
    judged = judged_attempts(attempts) if to_judge else attempts
    config = stage.config if is_ours(stage) else {}

    means = attempt_means(judged)
    ranks = rank_numbers(judged, means)
    num_measured = sum(len(a.measured(0)) for a in judged)
    memory = max(float(r["memory_peak_bytes"].max()) for a in judged for r in a.records)
    microbatches = np.concatenate(
        [a.measured(i)["num_microbatches"] for a in judged for i in range(len(a.ranks))]
    )
    meetings = meeting_price(judged)
    repeated = [a.repeated(a.longest) for a in attempts]
    abandoned = [a.abandoned(a.longest) for a in attempts]

    # Where levels are learned, the loss is the sum of weight times mean.
    loss_unit = "nats, weighted sum over levels" if config.get("levels") else "nats/token"
    losses = np.concatenate([a.kept(a.longest)["loss"] for a in judged])
    last = last_losses(judged)

    # A save ahead is one other than at the end of an attempt or a phase.
    num_saves = sum(int((a.records[a.longest]["checkpoint_s"][:-1] > 0).sum()) for a in judged)
    save_keys = ("mode", "every_min", "every_steps") if "checkpoint" in config else ()

    loads = node_loads(
        [r for r in stage.readings if r.slice_index == index], judged, stage.resources
    )
    sizes = [load.gpu_memory_bytes for load in loads if load.gpu_memory_bytes is not None]
    profiles = [p for p in stage.profiles if p.slice_index == index]

    notes = (
        *step_notes(judged),
        *device_notes(judged),
        *mixed_note(attempts),
        *packed_check_note(judged[-1]),
    )
    is_earlier = not has_newest_steps(stage, index, intents)
    return TrainingNumbers(
        stage=stage.name
        if stage.num_slices == 1 and index == 0
        else f"{stage.name} (slice {index})",
        num_attempts=len(attempts),
        num_steps=sum(max(a.num_kept) for a in attempts),
        num_repeated_steps=sum(len(r) for r in repeated),
        repeated_s=total(repeated, "step_s"),
        num_abandoned_steps=sum(len(r) for r in abandoned),
        abandoned_s=total(abandoned, "step_s"),
        num_measured=num_measured,
        warmup_steps=judged[0].warmup_steps,
        too_few=""
        if num_measured >= MIN_STEPS
        else f"{num_measured} steps after a warm-up of {judged[0].warmup_steps} an attempt; "
        f"{MIN_STEPS} are needed for a judgement",
        phases=mean_phases(means),
        critical_shares=critical_shares(judged),
        ranks=ranks,
        memory_peak_bytes=known(memory, "bytes")
        if memory > 0
        else missing("bytes", "not recorded"),
        num_allocator_retries=sum(
            int(r["num_allocator_retries"].max()) for a in judged for r in a.records
        ),
        straggler=find_straggler(means),
        budget=attempt_budget(attempts, bars, timings),
        curves=make_curves(judged),
        notes=(*notes, _EARLIER) if is_earlier else notes,
        is_earlier=is_earlier,
        has_device_times=has_device_times(judged),
        device_timeline=device_timeline(judged),
        device=str(judged[-1].ranks[0].header.get("device") or ""),
        far_ranks=far_ranks(judged[-1]),
        num_microbatches=int(np.median(microbatches)) if len(microbatches) else 1,
        meeting_share=None if meetings is None else meetings.share,
        meetings_apart=meetings is not None and meetings.is_apart,
        first_loss=_loss(losses[np.isfinite(losses)][:1], loss_unit),
        last_loss=_loss(last, loss_unit),
        num_last_losses=len(last),
        manifest_losses=losses_of_manifests(judged),
        loader=loader_load(stage, judged, ranks) if is_ours(stage) else None,
        checkpoint={name: config["checkpoint"].get(name) for name in save_keys},
        saves_ahead=num_saves > max(0, len(config.get("phases") or ()) - 1),
        pace=find_pace(attempts, timings),
        start_s=usual_start_s(attempts, bars, timings),
        loads=loads,
        exposed=exposed_communication(profiles),
        profiled=next((p.device for p in profiles if p.device is not None), None),
        memory_capacity_bytes=min(sizes, default=None),
        num_loader_threads=config.get("num_loader_threads"),
        activation_checkpointing=bool(config.get("activation_checkpointing")),
        **rates(judged),
        **ranks_of(judged),
    )


def is_ours(stage: StageInputs) -> bool:
    """Check whether its config is known here."""
    return stage.run == TRAIN_RUN


def _loss(values: np.ndarray, unit: str) -> Quantity:
    if not len(values):
        return missing(unit, "no step recorded a finite loss")
    return known(float(values.mean(dtype=np.float64)), unit)
