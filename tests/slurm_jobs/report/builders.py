"""Changes to the records of a fabricated run, and what a test looks up in its report."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from slurm_jobs.formats.configs.stages import ReportConfig
from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.formats.timings.profiler_files import OPERATORS_FORMAT_NAME, operators_path
from slurm_jobs.formats.timings.step_records import StepFile, spans_path
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.inputs.run_inputs import RankTiming, StageInputs
from slurm_jobs.report.numbers.build_report import build_report
from slurm_jobs.report.numbers.trainings.training_numbers import training_numbers
from slurm_jobs.report.steps.attempt_steps import split_attempts
from slurm_jobs.report.text.terminal import print_report
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import StageRecords
from tests.slurm_jobs.report.fabricate_run import CREATED, STEP_DTYPE, Scenario, fabricate_steps

# Changes to the files of a run.


@contextlib.contextmanager
def edited(path: Path) -> Iterator[Any]:
    """Write a JSON file again after the caller has changed its value."""
    value = json.loads(path.read_text())
    yield value
    path.write_text(json.dumps(value))


def change_steps(folder: Path, change: Any = None, ranks=range(64), **metadata: Any) -> None:
    """Rewrite the step records of an attempt's ranks, and add to what their headers say."""
    for path in (folder / f"rank-{rank:05}.steps" for rank in ranks):
        if not path.exists():
            continue
        header, _, body = path.read_bytes().partition(b"\n")
        said = json.loads(header)
        said["metadata"] |= metadata
        steps = np.frombuffer(body, STEP_DTYPE).copy()
        if change is not None:
            change(steps)
        path.write_bytes(json.dumps(said).encode() + b"\n" + steps.tobytes())


def add_span(folder: Path, rank: int, name: str, start_unix_s: float, duration_s: float, **more):
    folder.mkdir(parents=True, exist_ok=True)
    span = {"name": name, "start_unix_s": start_unix_s, "duration_s": duration_s, **more}
    with spans_path(folder, rank).open("a") as stream:
        stream.write(json.dumps(span) + "\n")


def write_operators(folder: Path, rank: int, **times: Any) -> None:
    """Write the table that the profiler leaves, without operators."""
    table = {"format": OPERATORS_FORMAT_NAME, "operators": [], "first_step": 20, **times}
    operators_path(folder, rank).write_text(json.dumps(table))


# Changes to what was read of a run.


def with_stage(inputs, name: str, **changes: Any):
    """Return inputs with other fields of one stage; a function is applied to each record."""

    def changed(stage):
        return replace(
            stage,
            **{
                field: tuple(map(value, getattr(stage, field))) if callable(value) else value
                for field, value in changes.items()
            },
        )

    stages = tuple(changed(stage) if stage.name == name else stage for stage in inputs.stages)
    (stage,) = (stage for stage in stages if stage.name == name)
    records = {**inputs.records.records, name: _listed(stage)}
    return replace(inputs, stages=stages, records=replace(inputs.records, records=records))


def _listed(stage: StageInputs) -> StageRecords:
    """Return the listing of the folders that hold the records of a stage."""
    attempts: dict[int, tuple[int, ...]] = {}
    for start in stage.attempts:
        attempts[start.slice_index] = (*attempts.get(start.slice_index, ()), start.attempt)
    endings: dict[int, dict[int, CompletionName]] = {}
    for end in stage.completions:
        name = CompletionName(end.slice_index, end.attempt, end.token, end.outcome)
        endings.setdefault(end.slice_index, {})[end.attempt] = name
    return StageRecords(attempts=attempts, endings=endings)


def with_intents(inputs, *intents: Intent):
    """Return inputs of a run whose ledger has these intents."""
    return replace(inputs, records=replace(inputs.records, intents=intents))


NOT_STARTED: dict[str, Any] = {"attempts": (), "completions": (), "timings": ()}
"""Fields of a stage that has left no record."""


def row_of(inputs, job_id: str):
    """Return the last row of a job in the accounting."""
    return [row for row in inputs.accounting if row.job_id == job_id][-1]


def with_rows(inputs, job_id: str, *rows: Any, **changes: Any):
    """Return inputs in which a job has these rows alone, or its last one with changes."""
    rows = rows or ((replace(row_of(inputs, job_id), **changes),) if changes else ())
    others = (row for row in inputs.accounting if row.job_id != job_id)
    return replace(inputs, accounting=(*others, *rows))


# Records in memory.


def make_steps(num_steps: int, *, first: int = 0, rank: int = 0, **properties: Any) -> np.ndarray:
    scenario = Scenario(**{"num_ranks": 1, **properties})
    return fabricate_steps(scenario, rank, first, first + num_steps, CREATED)


def rank_timing(attempt: int, rank: int, steps, spans=(), lacking=frozenset(), **metadata):
    file = StepFile(metadata=metadata, steps=steps, lacking=lacking)
    return RankTiming(slice_index=0, attempt=attempt, rank=rank, steps=file, spans=tuple(spans))


def attempts_of(*timings: RankTiming, warmup_steps: int = 5):
    return split_attempts(timings, warmup_steps, {})


def training_of(*timings: RankTiming, attempts=()):
    """Return the numbers of a training that recorded these steps."""
    stage = StageInputs(
        name="train", run="train", after={}, num_slices=1, resources={}, attempts=attempts,
        completions=(), timings=timings,
    )  # fmt: skip
    return training_numbers(stage, (), 5)[0]


# Reports.


def report_on(paths, rows=(), **config: Any):
    return build_report(read_inputs(paths, rows), ReportConfig(**config))


def report_from(inputs, **config: Any):
    return build_report(inputs, ReportConfig(**config))


def stage_of(report, name: str = "train"):
    return next(stage for stage in report.stages if stage.name == name)


def seconds_of(shares) -> dict[str, float]:
    return {share.name: share.seconds for share in shares}


def finding(report, rule: str, stage: str = ":train"):
    return next(found for found in report.findings if found.rule_id == rule + stage)


def check(report, rule: str, stage: str = ":train"):
    return next(found for found in report.checks if found.rule_id == rule + stage)


def outcomes(report, *rules: str, stage: str = ":train") -> tuple[str, ...]:
    return tuple(check(report, rule, stage).outcome for rule in rules)


def notes_with(report, text: str) -> list[str]:
    return [note for note in report.notes if text in note]


def printed(report, width: int = 80, show: Callable[..., None] = print_report, **options) -> str:
    stream = io.StringIO()
    show(report, Console(file=stream, width=width, **options))
    return stream.getvalue()
