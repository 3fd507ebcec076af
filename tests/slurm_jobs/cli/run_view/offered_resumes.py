"""A run with failures, and the resumes that are offered."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.run_status import RunStatus, StageStatus
from tests.slurm_jobs.cli.statuses import stage
from tests.slurm_jobs.run.fabricate import end


def failed(
    paths: RunPaths, name: str = "a", *, run: str = "x", reasons: Sequence[dict[str, Any]]
) -> StageStatus:
    """A stage whose slices have failed, each with a record that has these values."""
    for index, values in enumerate(reasons):
        end(paths, name, [index], "failed", failed_rank=0, failed_node="n1", **values)
    made = stage(name, ["failed"] * len(reasons))
    slices = tuple(
        dataclasses.replace(
            part, ending=CompletionName(part.slice_index, 1, f"t-{name}-1", "failed")
        )
        for part in made.slices
    )
    summary = dataclasses.replace(made.stage, run=run)
    return dataclasses.replace(made, slices=slices, stage=summary)


def lines_of(paths: RunPaths, *stages: StageStatus) -> list[str]:
    status = RunStatus(status="failed", stages=stages, asked_unix_s=1.0)
    return problem_lines(paths.run_dir, status)
