"""Numbers on a training: rates, curves, time shares, device. PURE."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slurm_jobs.report.attempts import AttemptFacts
from slurm_jobs.report.current_results import has_newest_steps
from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.node_load import loader_load, node_loads
from slurm_jobs.report.rank_numbers import (
    attempt_means,
    critical_shares,
    exposed_communication,
    far_ranks,
    find_straggler,
    mean_phases,
    meeting_price,
    phase_name,
    rank_numbers,
)
from slurm_jobs.report.steps.attempt_steps import AttemptSteps, last_losses, split_attempts
from slurm_jobs.report.steps.newest_steps import MIN_STEPS, judged_attempts, mixed_note
from slurm_jobs.report.steps.pace import find_pace
from slurm_jobs.report.steps.step_notes import step_notes
from slurm_jobs.report.timeline import attempt_budget, usual_start_s
from slurm_jobs.report.values.training_model import Curves, RankCountRates, TrainingNumbers
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.shared import units
from slurm_jobs.shared.timings.step_records import DEVICE_PHASES, NOT_TRAINING
from slurm_jobs.shared.units import Quantity, TimeShare, known, missing

# Series over the steps, downsampled so that a page stays small.
#
# Each point represents a bin of consecutive steps of one attempt.


MAX_POINTS = 240
"""Points of a curve: finer than the pixels of a printed chart, and about 20 kB per page."""

MIN_BIN_STEPS = 4
"""A p95 of fewer steps, over two ranks, is the maximum."""


def make_curves(attempts: Sequence[AttemptSteps]) -> Curves | None:
    """Return the curves of one training over all attempts; None if no step counts."""
    lengths = [attempt.num_common for attempt in attempts]
    num_steps = sum(lengths)
    if not num_steps:
        return None
    points: list[tuple[float, ...]] = []
    for attempt, length in zip(attempts, lengths, strict=True):
        if length:
            points.extend(_attempt_points(attempt, length, num_steps))
    step, loss, tokens, p50, p95, most, wait = zip(*points, strict=True)
    return Curves(
        step=step,
        loss=loss,
        tokens_per_s=tokens,
        step_p50_s=p50,
        step_p95_s=p95,
        step_max_s=most,
        data_wait_share=wait,
        resumed_at=tuple(int(a.records[0]["step"][0]) for a in attempts if a.num_common)[1:],
    )


def _attempt_points(
    attempt: AttemptSteps, length: int, num_steps: int
) -> Iterator[tuple[float, ...]]:
    """Yield step, loss, tokens/s, step time p50, p95 and max, data-wait share of each bin."""
    num_bins = max(1, min(length // MIN_BIN_STEPS, round(MAX_POINTS * length / num_steps)))
    edges = np.linspace(0, length, num_bins + 1).astype(np.int64)
    lead = attempt.kept(0)[:length]
    ranks = [attempt.kept(i)[:length] for i in range(len(attempt.ranks))]
    step_s = np.stack([r["step_s"] for r in ranks])
    wait_s = np.stack([r["data_wait_s"] for r in ranks]).sum(axis=0, dtype=np.float64)
    tokens = np.stack([r["num_tokens"] for r in ranks]).sum(axis=0, dtype=np.float64)
    for begin, end in itertools.pairwise(edges):
        part, times = lead[begin:end], step_s[:, begin:end]
        losses = part["loss"][np.isfinite(part["loss"])]
        wall_s = float(part["step_s"].sum(dtype=np.float64))
        p50, p95 = (float(np.percentile(times, percent)) for percent in (50, 95))
        busy_s = float(times.sum(dtype=np.float64))
        yield (
            float(part["step"].mean()),
            float(losses.mean(dtype=np.float64)) if len(losses) else float("nan"),
            float(tokens[begin:end].sum() / wall_s) if wall_s > 0 else float("nan"),
            p50,
            p95,
            float(times.max()),
            float(wait_s[begin:end].sum() / busy_s) if busy_s > 0 else float("nan"),
        )


# Device times in step records, in words.
#
# Device time is shown next to host time and never added to it.


NOT_RECORDED = "device timeline (busy, idle, communicating): not recorded"


def device_notes(attempts: Sequence[AttemptSteps]) -> tuple[str, ...]:
    """Return for each attempt how it was timed, and its mean device step if recorded."""
    notes: list[str] = []
    for attempt in attempts:
        name = f"attempt {attempt.attempt}"
        modes = {t.steps.metadata.get("timing") for t in attempt.ranks if t.steps is not None}
        if "sync" in modes:
            notes.append(
                f"{name}: timed with `timing: sync`, the host waiting for the device at each step "
                "phase: its steps are slower than without, its phases not comparable with those "
                "of other attempts"
            )
        if step_s := _mean(attempt, "device_step_s"):
            shares = {n: _mean(attempt, f"device_{n}") / step_s for n in DEVICE_PHASES}
            rest = max(0.0, 1 - sum(shares.values()))
            listed = ", ".join(
                f"{phase_name(n.removesuffix('_s'))} {units.percent(s)}" for n, s in shares.items()
            )
            notes.append(
                f"{name}: on the device a mean step takes {units.seconds(step_s)}: {listed}, "
                f"the rest {units.percent(rest)}; it is idle during waits"
            )
        if mfu := _mean_mfu(attempt):
            notes.append(
                f"{name}: MFU {units.percent(mfu)}: operations over what the cards could have done "
                "in all ranks' measured steps, without checkpoints, evaluation and compilation"
            )
    return tuple(notes)


_TIMELINE = (
    ("computing", "forward", ("forward", "backward", "optimizer")),
    ("copying from the host", "host_to_device", ("host_to_device",)),
    ("waiting for other ranks", "rank_wait", ("rank_wait",)),
    ("idle, waiting for data", "data_wait", ("data_wait",)),
)
"""Name, colour and step phases of the parts of a device's step."""


def device_timeline(attempts: Sequence[AttemptSteps]) -> tuple[TimeShare, ...]:
    """Return a mean step on the device, over the measured steps of all ranks with device times.

    Collectives within the passes overlap with computation or are part of it, and are not separable
    here; a profile (`profile.steps`) separates them.
    """
    measured = [a.measured(i) for a in attempts for i in range(len(a.ranks))]
    is_timed = [np.isfinite(steps["device_step_s"]) for steps in measured]
    num_steps = sum(int(timed.sum()) for timed in is_timed)
    if not num_steps:
        return ()

    def mean(field: str) -> float:
        """Return the mean over the timed steps; missing values count as 0."""
        pairs = zip(measured, is_timed, strict=True)
        sums = (np.nansum(steps[field][timed], dtype=np.float64) for steps, timed in pairs)
        return float(sum(sums)) / num_steps

    whole_s = mean("device_step_s")
    seconds = {
        (name, kind): sum(mean(f"device_{phase}_s") for phase in phases)
        for name, kind, phases in _TIMELINE
    }
    rest_s = max(0.0, whole_s - sum(seconds.values()))
    seconds["idle otherwise: checkpoints, evaluation, the host", "idle"] = rest_s
    return tuple(
        TimeShare(name=name, kind=kind, seconds=s, share=s / whole_s if whole_s else 0.0)
        for (name, kind), s in seconds.items()
    )


def has_device_times(attempts: Sequence[AttemptSteps]) -> bool:
    """Check whether any step of any rank has device times."""
    return any(np.isfinite(r["device_step_s"]).any() for a in attempts for r in a.records)


def _mean_mfu(attempt: AttemptSteps) -> float:
    """Return the time-weighted mean over the measured steps of all ranks."""
    operations = trained = 0.0
    for index in range(len(attempt.ranks)):
        steps = attempt.measured(index)
        known = np.isfinite(steps["mfu"])
        trained_s = steps["step_s"][known].astype(np.float64)
        trained_s -= sum(steps[name][known] for name in NOT_TRAINING)
        operations += float((steps["mfu"][known] * trained_s).sum())
        trained += float(trained_s.sum())
    return operations / trained if trained > 0 else 0.0


def _mean(attempt: AttemptSteps, field: str) -> float:
    """Return the mean over the measured steps of all ranks that have it; 0 if none has."""
    values = np.concatenate([attempt.measured(i)[field] for i in range(len(attempt.ranks))])
    values = values[np.isfinite(values)]
    return float(values.mean(dtype=np.float64)) if len(values) else 0.0


# Rates of a training over the time of its measured steps, by number of ranks.
#
# Attempts may have different numbers of ranks. A rate over all of them describes no real machine,
# so each number of ranks has its own rate, too.


def rates(attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    """Return rates over the time of the measured steps, waits and checkpoints included.

    Only steps that every rank recorded count: a rank that lacks some must not lower the sum. The
    numbers of tokens and samples are progress, not statistics, so they include the warm-up.
    """
    whole = [a for a in attempts if len(a.ranks) == a.num_ranks]
    wall_s = sum(a.measured_s() for a in whole)
    counted = [a.measured(i) for a in whole for i in range(len(a.ranks))]
    measured = [a.measured(i) for a in attempts for i in range(len(a.ranks))]
    tables = [a.kept(i) for a in attempts for i in range(len(a.ranks))]
    step_s = np.concatenate([m["step_s"] for m in measured])
    padding = total(measured, "num_padding_tokens")
    no_steps = "no step is left after the warm-up"
    no_rate = no_steps if whole else "no attempt has step records of all its ranks"

    def rate(count: float, unit: str) -> Quantity:
        return known(count / wall_s, unit) if wall_s > 0 else missing(unit, no_rate)

    def percentile(percent: float) -> Quantity:
        if not len(step_s):
            return missing("s", no_steps)
        return known(float(np.percentile(step_s, percent)), "s")

    slots = total(measured, "num_tokens") + padding
    return {
        "step_median_s": percentile(50),
        "step_p95_s": percentile(95),
        "steps_per_s": rate(sum(len(a.measured(0)) for a in whole), "steps/s"),
        "samples_per_s": rate(total(counted, "num_samples"), "samples/s"),
        "tokens_per_s": rate(total(counted, "num_tokens"), "tokens/s"),
        "padding_share": known(padding / slots, "fraction")
        if slots
        else missing("fraction", "the steps recorded no tokens" if len(step_s) else no_steps),
        "num_tokens": known(total(tables, "num_tokens"), "tokens"),
        "num_samples": known(total(tables, "num_samples"), "samples"),
    }


def ranks_of(attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    """Return how many ranks made the steps, and rates by number if there are several."""
    working = [a for a in attempts if max(a.num_kept)] or list(attempts)
    counts = [num for num, _ in itertools.groupby(a.num_ranks for a in working)]
    by_ranks = []
    for num_ranks in dict.fromkeys(counts) if len(set(counts)) > 1 else ():
        alike = [a for a in working if a.num_ranks == num_ranks]
        measured = rates(alike)
        by_ranks.append(
            RankCountRates(
                num_ranks=num_ranks,
                num_steps=sum(a.num_measured for a in alike),
                **{
                    name: measured[name]
                    for name in ("step_median_s", "steps_per_s", "tokens_per_s")
                },
            )
        )
    return {
        "num_ranks": max(a.num_ranks for a in attempts),
        "rank_counts": tuple(counts),
        "rates_by_ranks": tuple(by_ranks),
    }


def total(records: Sequence[np.ndarray], name: str) -> float:
    """Return the sum of a field over records."""
    return float(sum(r[name].sum(dtype=np.float64) for r in records))


# Numbers from the step records of a training stage. PURE, vectorised over the steps.
#
# Steps that a later attempt repeated count as repeated, not as progress, and those of an abandoned
# config as neither. The first steps of each attempt are excluded from the statistics as warm-up.


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
    numbers = (
        _of_slice(stage, facts, index, warmup_steps, intents, to_judge=to_judge)
        for index in indices
    )
    return tuple(of_slice for of_slice in numbers if of_slice is not None)


def _of_slice(
    stage: StageInputs,
    facts: Sequence[AttemptFacts],
    index: int,
    warmup_steps: int,
    intents: Sequence[Intent] | None,
    *,
    to_judge: bool,
) -> TrainingNumbers | None:
    timings = [t for t in stage.timings if t.slice_index == index]
    fingerprints = {a.attempt: a.fingerprint for a in stage.attempts if a.slice_index == index}
    attempts = split_attempts(timings, warmup_steps, fingerprints)
    if not attempts:
        return None
    bars = {f.bar.attempt: f.bar for f in facts if f.record and f.bar.slice_index == index}
    judged = judged_attempts(attempts, fingerprints) if to_judge else attempts
    config = stage.config if is_ours(stage) else {}

    means = attempt_means(judged)
    ranks = rank_numbers(judged, means)
    num_measured = sum(len(a.measured(0)) for a in judged)
    memory = max(float(r["memory_peak_bytes"].max()) for a in judged for r in a.records)
    microbatches = np.concatenate(
        [a.measured(i)["num_microbatches"] for a in judged for i in range(len(a.ranks))]
    )
    devices = [t.steps.metadata.get("device") for t in judged[-1].ranks if t.steps is not None]
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

    notes = (*step_notes(judged), *device_notes(judged), *mixed_note(attempts, fingerprints))
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
        device=str(devices[0] or "") if devices else "",
        far_ranks=far_ranks(judged[-1]),
        num_microbatches=int(np.median(microbatches)) if len(microbatches) else 1,
        meeting_share=None if meetings is None else meetings.share,
        meetings_apart=meetings is not None and meetings.is_apart,
        first_loss=_loss(losses[np.isfinite(losses)][:1], loss_unit),
        last_loss=_loss(last, loss_unit),
        num_last_losses=len(last),
        loader=loader_load(stage, judged, ranks) if is_ours(stage) else None,
        checkpoint={name: config["checkpoint"].get(name) for name in save_keys},
        saves_ahead=num_saves > max(0, len(config.get("phases") or ()) - 1),
        pace=find_pace(attempts, fingerprints, timings),
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
