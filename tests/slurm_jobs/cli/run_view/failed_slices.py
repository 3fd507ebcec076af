"""An array of which slices failed, and the lines that name why."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.run_status import RunStatus, StageStatus
from tests.slurm_jobs.cli.statuses import stage
from tests.slurm_jobs.run.fabricate import end, submitted_run

NUM_SLICES = 64


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return submitted_run(tmp_path / "run", NUM_SLICES)


def lines_of(paths: RunPaths, made: StageStatus) -> list[str]:
    """Return the lines on failures; every failed slice has a record."""
    slices = tuple(
        dataclasses.replace(part, ending=CompletionName(part.slice_index, 1, "t-a-1", "failed"))
        for part in made.slices
    )
    status = RunStatus(status="failed", stages=(dataclasses.replace(made, slices=slices),))
    return [line for line in problem_lines(paths.run_dir, status) if line.startswith("a ")]


def fail(paths: RunPaths, slices: Sequence[int], *, node: str = "n1", **values: Any) -> None:
    rank = values.pop("rank", 0)
    reason = values.pop("reason", ": ValueError: caption is empty")
    end(
        paths,
        "a",
        slices,
        "failed",
        failed_rank=rank,
        failed_node=node,
        reason=f"rank {rank} on {node}{reason}",
        **values,
    )


FAILED = stage("a", ["failed"] * NUM_SLICES, state="FAILED", source="sacct")
HEAD = "failed (sacct: FAILED):"
