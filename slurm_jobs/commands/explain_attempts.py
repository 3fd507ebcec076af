"""Attempts of one stage with their steps, as `status --stage` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from slurm_jobs.report.attempts.attempt_losses import stage_loss, with_steps
from slurm_jobs.report.inputs.run_inputs import RankTiming
from slurm_jobs.report.steps.attempt_steps import split_attempts
from slurm_jobs.report.values.attempt_model import StageAttempts
from slurm_jobs.run.attempt_history import AttemptEntry
from slurm_jobs.run.observe import accounting_of, answer_of
from slurm_jobs.run.read_attempts import read_attempts, slices_to_explain
from slurm_jobs.run_folder.ledger import intents, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_stage_records
from slurm_jobs.status.run_status import StageStatus


def explain_attempts(
    run_dir: Path, stage: StageStatus, now_unix_s: float, *, most_slices: int | None = None
) -> StageAttempts:
    """Return the attempts at the slices that were tried again or are not complete.

    Args:
        run_dir: the run's folder.
        stage: status of the stage.
        now_unix_s: time until which running attempts count.
        most_slices: only this many slices, the first ones; None for all.
    """
    paths, name = RunPaths(run_dir), stage.stage.name
    records = read_stage_records(paths, name)
    slices = slices_to_explain(stage, records, intents(read_ledger(paths.ledger_dir)))
    history: tuple[AttemptEntry, ...] = ()
    if slices:
        history = read_attempts(
            run_dir,
            name,
            slices[:most_slices],
            records,
            accounting=accounting_of(run_dir, stage=name),
            answer=answer_of(run_dir),
        )
    entries: list[AttemptEntry] = []
    for _, group in groupby(history, key=lambda entry: entry.slice_index):
        of_slice = list(group)
        steps = split_attempts(_timings(paths, of_slice), 0, {})
        entries += with_steps(of_slice, steps)
    return StageAttempts(
        stage=name,
        entries=tuple(entries),
        num_slices=stage.stage.num_slices,
        num_explained=len(slices),
        lost=stage_loss(entries, now_unix_s),
    )


def _timings(paths: RunPaths, of_slice: Sequence[AttemptEntry]) -> list[RankTiming]:
    """Return what rank 0 recorded; a damaged file counts as none."""
    timings = []
    for entry in of_slice:
        folder = paths.timing_dir(entry.stage, entry.slice_index, entry.attempt)
        with suppress(OSError, ValueError):
            timings.append(
                RankTiming(
                    slice_index=entry.slice_index,
                    attempt=entry.attempt,
                    rank=0,
                    steps=read_steps(steps_path(folder, 0)),
                    spans=(),
                )
            )
    return timings
