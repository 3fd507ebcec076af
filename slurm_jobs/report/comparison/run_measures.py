"""Reader of the training of one run: its speed, and everything that affects it.

Checkpoints, evaluation, and steps that compiled or were profiled are separated: they show how
often something is done, not how fast a step is.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from slurm_jobs.report.steps.attempt_steps import AttemptSteps, last_losses, split_attempts
from slurm_jobs.report.steps.newest_steps import of_newest
from slurm_jobs.run_folder.paths import RunPaths


def around_steps(stage: StageInputs, attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    """Return communication, and cores that others held, in the attempts of the speed.

    Other attempts had another config, or other neighbours.
    """
    numbers = {a.attempt for a in attempts}
    readings = [r for r in stage.readings if r.attempt in numbers]
    loads = node_loads(readings, attempts, stage.resources)
    shares = [
        num_cores / load.num_cores_asked
        for load in loads
        if load.num_cores_asked and (num_cores := cores_taken(load)) is not None
    ]
    return {
        "exposed": exposed_communication([p for p in stage.profiles if p.attempt in numbers]),
        "share_held": max(shares, default=None),
    }


def profiler_note(attempts: Sequence[AttemptSteps]) -> str | None:
    """Return a note that memory on CPUs includes the profiler's; None without a profile."""
    ranks = [timing for attempt in attempts for timing in attempt.ranks]
    on_device = any(t.steps.metadata.get("device") == "cuda" for t in ranks if t.steps is not None)
    was_profiled = any(span["name"] == PROFILE_WRITE_SPAN for t in ranks for span in t.spans)
    if was_profiled and not on_device:
        return "steps were profiled: the memory has the profiler's records in it"
    return None


def cards(stage: StageInputs) -> dict[str, Any]:
    """Return names of the nodes' GPUs, and the memory of the smallest, from their readings."""
    gpus = [gpu for node in stage.readings for gpu in node.metadata.get("gpus") or ()]
    sizes = [float(gpu["memory_bytes"]) for gpu in gpus if gpu.get("memory_bytes")]
    noted = {gpu for node in stage.nodes for gpu in node.gpus}  # not read by a sampler
    return {
        "cards": tuple(sorted({str(gpu.get("name", "")) for gpu in gpus} or noted)),
        "memory_capacity_bytes": min(sizes, default=None),
    }


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
    chosen = _choose(inputs, run_dir, stage)
    fingerprints = {a.attempt: a.fingerprint for a in chosen.attempts}
    attempts = split_attempts(chosen.timings, warmup_steps, fingerprints)
    newest = of_newest(attempts, fingerprints) if attempts else ()
    whole = [a for a in newest if len(a.ranks) == a.num_ranks and a.num_measured]
    if not whole:
        message = (
            f"run {run_dir.name}, stage {chosen.name}: no step of all its ranks is left after the "
            f"first {warmup_steps} of each attempt; name a run that trained for longer, "
            "or a smaller --warmup-steps"
        )
        raise InputError(message)
    num_ranks = max(
        {a.num_ranks for a in whole},
        key=lambda num: sum(a.num_measured for a in whole if a.num_ranks == num),
    )
    alike = [a for a in whole if a.num_ranks == num_ranks]
    notes = _notes(inputs, attempts, newest, alike)
    return _measure(inputs, chosen, alike, notes, last_losses(attempts))


def _choose(inputs: ReportInputs, run_dir: Path, name: str | None) -> StageInputs:
    run_id = inputs.run["run_id"]
    recorded = [s for s in inputs.stages if any(t.steps is not None for t in s.timings)]
    trained = [s for s in recorded if name in {None, s.name}]
    if not trained:
        what = f"of stage {name}" if name else "of any training"
        there = ", ".join(s.name for s in recorded)
        report = f"slurm-jobs report {shlex.quote(str(run_dir))}"
        only = ", and only trainings are compared; the report shows the times of other stages"
        way_on = f"; it has those of {there}" if there else f"{only}\nnext: {report}"
        message = f"run {run_id} has no step records {what}{way_on}"
        raise InputError(message)
    if len(trained) > 1 or trained[0].num_slices > 1:
        listed = ", ".join(s.name for s in trained)
        message = f"run {run_id} has several trainings ({listed}); name one with --stage"
        if len(trained) == 1:
            array = f"{trained[0].name} is an array of trainings, which cannot be compared"
            message = f"run {run_id}: {array}"
        raise InputError(message)
    return trained[0]


def _notes(
    inputs: ReportInputs,
    attempts: Sequence[AttemptSteps],
    newest: Sequence[AttemptSteps],
    alike: Sequence[AttemptSteps],
) -> tuple[str, ...]:
    """Return what is excluded from the speed, and what could not be read."""
    name = str(inputs.run["run_id"])
    notes = []
    if (progress := unfinished_progress(attempts)) is not None:
        notes.append(
            f"{name}: {progress[0]:,} of {progress[1]:,} steps were made, it was stopped or still "
            "runs: loss and memory are of these"
        )
    if len(newest) < len(attempts):
        num_steps = sum(len(a.records[a.longest]) for a in attempts if a not in newest)
        notes.append(
            f"{name}: {units.number_of('step', num_steps)} of an earlier config or code left out"
        )
    if len(alike) < len(newest):
        notes.append(
            f"{name}: {len(newest) - len(alike)} of {len(newest)} attempts left out (other numbers "
            "of ranks, ranks without records, or no step after the warm-up)"
        )
    short = [a for a in alike if min(a.num_kept) < max(a.num_kept)]
    notes += [f"{name}: its ranks recorded unequal numbers of steps" for _ in short[:1]]
    if note := profiler_note(alike):
        notes.append(f"{name}: {note}")
    return (*notes, *(f"{name}: {problem}" for problem in inputs.problems))


def unfinished_progress(attempts: Sequence[AttemptSteps]) -> tuple[int, int] | None:
    """Return the finished and the planned steps of a training; None if it is finished."""
    newest = attempts[-1]
    planned = max(
        int(timing.steps.metadata.get("num_steps") or 0)
        for timing in newest.ranks
        if timing.steps is not None
    )
    num_made = int(newest.records[newest.longest]["step"][-1]) + 1
    return (num_made, planned) if num_made < planned else None


def _measure(
    inputs: ReportInputs,
    stage: StageInputs,
    attempts: Sequence[AttemptSteps],
    notes: tuple[str, ...],
    losses: np.ndarray,
) -> RunMeasure:
    """Return the measure of `attempts`; `losses` are the last of any ranks and config."""
    steps = plain_steps(attempts)
    seconds, num_steps = float(steps.seconds.sum()), len(steps.seconds)
    if not num_steps or not steps.samples.sum():
        what = "its records count no samples" if num_steps else _ALL_APART
        message = f"run {inputs.run['run_id']}, stage {stage.name}: {what}"
        raise InputError(message)
    metadata = [t.steps.metadata for a in attempts for t in a.ranks if t.steps is not None]
    tokens, samples = float(steps.tokens.sum()), float(steps.samples.sum())
    num_ranks = attempts[0].num_ranks
    records = [r for a in attempts for r in a.records]
    # Sums of steps' lengths: the wall clock may be set meanwhile.
    hours = [float(a.records[a.longest]["step_s"].sum(dtype=np.float64)) / 3600 for a in attempts]
    return RunMeasure(
        run_id=inputs.run["run_id"],
        name=inputs.run["name"],
        stage=stage.name,
        num_ranks=num_ranks,
        device=str(metadata[0].get("device", "")),
        nodes=tuple(dict.fromkeys(str(m.get("node_name", "")) for m in metadata)),
        cpus=tuple(sorted({n.cpu for n in stage.nodes if n.cpu})),
        num_steps=num_steps,
        seconds=seconds,
        tokens_per_s=tokens / seconds,
        samples_per_s=samples / seconds,
        samples_per_step=samples / num_steps,
        tokens_per_sample=tokens / samples,
        token_stretches=stretch_speeds(steps.tokens, steps.seconds),
        start_share=start_share(steps.tokens, steps.seconds),
        apart_s={  # of each attempt's slowest rank, over all its steps
            name: sum(
                max(float(r[name].sum(dtype=np.float64)) for r in a.records) for a in attempts
            )
            for name in NOT_TRAINING
        },
        num_compiled_steps=steps.num_compiled,
        num_profiled_steps=steps.num_profiled,
        memory_peak_bytes=max(float(r["memory_peak_bytes"].max()) for r in records),
        num_allocator_retries=sum(int(r["num_allocator_retries"].max()) for r in records),
        last_loss=float(losses.mean(dtype=np.float64)) if len(losses) else None,
        rank_hours=sum(num_ranks * each for each in hours),
        phase_shares=_phase_shares(attempts),
        settings=settings_of(inputs, stage, num_ranks),
        notes=notes,
        **cards(stage),
        **around_steps(stage, attempts),
    )


def _phase_shares(attempts: Sequence[AttemptSteps]) -> dict[str, float]:
    """Return shares by recorded phase name; records of older versions have no phases."""
    counts: dict[str, float] = {}
    for attempt in attempts:
        file = attempt.ranks[0].steps
        phases = (file.metadata.get("phases") if file is not None else None) or [{"first_step": 0}]
        steps = attempt.measured(0)["step"]
        firsts = [int(phase.get("first_step", 0)) for phase in phases]
        numbers = np.searchsorted(firsts, steps, side="right") - 1
        for number, phase in enumerate(phases):
            name = str(phase.get("name") or "")
            counts[name] = counts.get(name, 0.0) + float((numbers == number).sum())
    whole = sum(counts.values()) or 1.0
    return {name: count / whole for name, count in counts.items() if count}
