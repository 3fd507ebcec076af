"""Reader of the training of one run: its speed, and everything that affects it.

Checkpoints, evaluation, and steps that compiled or were profiled are separated: they show how
often something is done, not how fast a step is.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from slurm_jobs.base import units
from slurm_jobs.base.errors import InputError
from slurm_jobs.formats.configs.stages import WARMUP_STEPS
from slurm_jobs.formats.timings.step_records import NOT_TRAINING, PROFILE_WRITE_SPAN
from slurm_jobs.report.comparison.comparison_model import RunMeasure
from slurm_jobs.report.comparison.plain_steps import plain_steps
from slurm_jobs.report.comparison.run_settings import settings_of
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs
from slurm_jobs.report.numbers.step_stretches import start_share, stretch_speeds
from slurm_jobs.report.numbers.trainings.node_load import cores_taken, node_loads
from slurm_jobs.report.numbers.trainings.rank_numbers import exposed_communication
from slurm_jobs.report.numbers.trainings.training_rates import total
from slurm_jobs.report.steps.attempt_steps import AttemptSteps, last_losses, split_by_slice
from slurm_jobs.report.steps.newest_steps import of_newest
from slurm_jobs.report.values.load_model import NodeLoad
from slurm_jobs.run_folder.cleanings import cleaned_note
from slurm_jobs.run_folder.paths import RunPaths

_ALL_APART = "every step after the warm-up compiled something, or was profiled"


def measure(
    run_dir: Path, *, stage: str | None = None, warmup_steps: int = WARMUP_STEPS
) -> RunMeasure:
    """Measure the training of a run.

    Args:
        run_dir: the run's folder.
        stage: stage to measure; None: the only one that recorded steps.
        warmup_steps: at the start of each attempt, which are left out.

    Raises:
        InputError: the run has no such training, or several and none was named, or no step of it
            is left.
    """
    inputs = read_inputs(RunPaths(run_dir), ())
    training = _training_of(inputs, run_dir, stage)
    attempts = split_by_slice(training, warmup_steps).get(0, ())
    newest = of_newest(attempts)
    num_steps_by_ranks: Counter[int] = Counter()
    for attempt in newest:
        if attempt.is_whole and attempt.num_measured:
            num_steps_by_ranks[attempt.num_ranks] += attempt.num_measured
    if not num_steps_by_ranks:
        message = (
            f"run {run_dir.name}, stage {training.name}: no step of all its ranks is left after "
            f"the first {warmup_steps} of each attempt; name a run that trained for longer, "
            "or a smaller --warmup-steps"
        )
        raise InputError(message)
    ((num_ranks, _),) = num_steps_by_ranks.most_common(1)
    measured = [a for a in newest if a.is_whole and a.num_measured and a.num_ranks == num_ranks]
    notes = (
        *_progress_notes(attempts),
        *_left_out_notes(attempts, newest, measured),
        *inputs.problems,
    )
    return _run_measure(inputs, training, measured, notes, last_losses(attempts))


def _training_of(inputs: ReportInputs, run_dir: Path, name: str | None) -> StageInputs:
    """Return the stage that recorded steps: the only one, or the one of this name."""
    run_id = inputs.run["run_id"]
    recorded = [s for s in inputs.stages if any(t.steps is not None for t in s.timings)]
    matching = [s for s in recorded if name in {None, s.name}]
    names = ", ".join(s.name for s in matching or recorded)
    if not recorded:
        what = f"of stage {name}" if name else "of any training"
        cleaned = cleaned_note(RunPaths(run_dir))
        if cleaned is not None:
            message = f"run {run_id} has no step records {what} to compare: {cleaned}"
            raise InputError(message)
        message = (
            f"run {run_id} has no step records {what}, and only trainings are compared; the report "
            f"shows the times of other stages\nnext: slurm-jobs report {shlex.quote(str(run_dir))}"
        )
        raise InputError(message)
    if not matching:
        message = f"run {run_id} has no step records of stage {name}; it has those of {names}"
        raise InputError(message)
    if len(matching) > 1:
        message = f"run {run_id} has several trainings ({names}); name one with --stage"
        raise InputError(message)
    if matching[0].num_slices > 1:
        message = f"run {run_id}: {names} is an array of trainings, which cannot be compared"
        raise InputError(message)
    return matching[0]


def _progress_notes(attempts: Sequence[AttemptSteps]) -> Iterator[str]:
    """Yield a note if the training did not make all its steps."""
    newest = attempts[-1]
    num_planned = max(int(timing.header.get("num_steps") or 0) for timing in newest.ranks)
    num_made = int(newest.records[newest.longest]["step"][-1]) + 1
    if num_made < num_planned:
        yield (
            f"{num_made:,} of {num_planned:,} steps were made, it was stopped or still runs: loss "
            "and memory are of these"
        )


def _left_out_notes(
    attempts: Sequence[AttemptSteps],
    newest: Sequence[AttemptSteps],
    measured: Sequence[AttemptSteps],
) -> Iterator[str]:
    """Yield what the speed does not include, and what is not the training's own."""
    if len(newest) < len(attempts):
        num_steps = sum(len(a.records[a.longest]) for a in attempts if a not in newest)
        yield f"{units.number_of('step', num_steps)} of an earlier config or code left out"
    if len(measured) < len(newest):
        yield (
            f"{len(newest) - len(measured)} of {len(newest)} attempts left out (other numbers of "
            "ranks, ranks without records, or no step after the warm-up)"
        )
    if any(min(a.num_kept) < max(a.num_kept) for a in measured):
        yield "its ranks recorded unequal numbers of steps"
    ranks = [timing for attempt in measured for timing in attempt.ranks]
    on_device = any(timing.header.get("device") == "cuda" for timing in ranks)
    was_profiled = any(span["name"] == PROFILE_WRITE_SPAN for t in ranks for span in t.spans)
    if was_profiled and not on_device:
        yield "steps were profiled: the memory has the profiler's records in it"


def _run_measure(
    inputs: ReportInputs,
    stage: StageInputs,
    attempts: Sequence[AttemptSteps],
    notes: Sequence[str],
    losses: np.ndarray,
) -> RunMeasure:
    """Return the measure of `attempts`, which have equal numbers of ranks.

    `losses` are the last of the training, on any number of ranks and under any config.
    """
    run_id = inputs.run["run_id"]
    steps = plain_steps(attempts)
    num_steps = len(steps.seconds)
    if not num_steps or not steps.samples.sum():
        what = "its records count no samples" if num_steps else _ALL_APART
        message = f"run {run_id}, stage {stage.name}: {what}"
        raise InputError(message)
    seconds, tokens = float(steps.seconds.sum()), float(steps.tokens.sum())
    samples = float(steps.samples.sum())
    num_ranks = attempts[0].num_ranks
    ranks = [timing for attempt in attempts for timing in attempt.ranks]
    records = [r for a in attempts for r in a.records]
    # Of each attempt's slowest rank, over all its steps.
    apart_s = dict.fromkeys(NOT_TRAINING, 0.0)
    trained_s = 0.0  # a sum of steps' lengths: the wall clock may be set meanwhile
    for attempt in attempts:
        for name in NOT_TRAINING:
            apart_s[name] += max(total([r], name) for r in attempt.records)
        trained_s += total([attempt.records[attempt.longest]], "step_s")
    # Other attempts had another config, or other neighbours.
    numbers = {a.attempt for a in attempts}
    readings = [r for r in stage.readings if r.attempt in numbers]
    # Cards do not change between attempts, and not every attempt has readings.
    gpus = [gpu for node in stage.readings for gpu in node.metadata.get("gpus") or ()]
    cards = {str(gpu.get("name", "")) for gpu in gpus}
    if not gpus:  # no sampler read them
        cards = {gpu for node in stage.nodes for gpu in node.gpus}
    gpu_sizes = [float(gpu["memory_bytes"]) for gpu in gpus if gpu.get("memory_bytes")]
    return RunMeasure(
        run_id=run_id,
        name=inputs.run["name"],
        stage=stage.name,
        num_ranks=num_ranks,
        device=str(ranks[0].header.get("device", "")),
        nodes=tuple(dict.fromkeys(timing.node for timing in ranks)),
        cards=tuple(sorted(cards)),
        cpus=tuple(sorted({n.cpu for n in stage.nodes if n.cpu})),
        num_steps=num_steps,
        seconds=seconds,
        tokens_per_s=tokens / seconds,
        samples_per_s=samples / seconds,
        samples_per_step=samples / num_steps,
        tokens_per_sample=tokens / samples,
        token_stretches=stretch_speeds(steps.tokens, steps.seconds),
        start_share=start_share(steps.tokens, steps.seconds),
        apart_s=apart_s,
        num_compiled_steps=steps.num_compiled,
        num_profiled_steps=steps.num_profiled,
        memory_peak_bytes=max(float(r["memory_peak_bytes"].max()) for r in records),
        memory_capacity_bytes=min(gpu_sizes, default=None),
        num_allocator_retries=sum(int(r["num_allocator_retries"].max()) for r in records),
        last_loss=float(losses.mean(dtype=np.float64)) if len(losses) else None,
        rank_hours=num_ranks * trained_s / 3600,
        phase_shares=_phase_shares(attempts),
        settings=settings_of(inputs, stage, num_ranks),
        exposed=exposed_communication([p for p in stage.profiles if p.attempt in numbers]),
        share_held=_share_held(node_loads(readings, attempts, stage.resources)),
        notes=tuple(f"{run_id}: {note}" for note in notes),
    )


def _share_held(loads: Sequence[NodeLoad]) -> float | None:
    """Return the share of its requested cores that others kept busy, on the worst node."""
    shares = []
    for load in loads:
        num_cores = cores_taken(load)
        if num_cores is not None and load.num_cores_asked:
            shares.append(num_cores / load.num_cores_asked)
    return max(shares, default=None)


def _phase_shares(attempts: Sequence[AttemptSteps]) -> dict[str, float]:
    """Return shares by recorded phase name; records of older versions have no phases."""
    counts: dict[str, float] = {}
    for attempt in attempts:
        phases = attempt.ranks[0].header.get("phases") or [{"first_step": 0}]
        steps = attempt.measured(0)["step"]
        firsts = [int(phase.get("first_step", 0)) for phase in phases]
        numbers = np.searchsorted(firsts, steps, side="right") - 1
        for number, phase in enumerate(phases):
            name = str(phase.get("name") or "")
            counts[name] = counts.get(name, 0.0) + float((numbers == number).sum())
    whole = sum(counts.values()) or 1.0
    return {name: count / whole for name, count in counts.items() if count}
