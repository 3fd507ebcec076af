"""Statuses of runs that were never made, for tests of what is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_jobs.cli.run_view.problems import Failure
from slurm_jobs.cli.run_view.run_snapshot import RunView
from slurm_jobs.run_folder.run_values import StageSummary
from slurm_jobs.status.run_status import RunStatus, StageStatus
from slurm_jobs.status.slice_status import SliceStatus, Status
from tests.slurm_jobs.runs import job

NOW_S = 1_763_700_000.0


def stage(
    name: str, words: Sequence[Status], *, status: Status | None = None, **values: object
) -> StageStatus:
    """A stage whose slices have these statuses; `values` are of every slice."""
    summary = StageSummary(
        name=name,
        run="x",
        num_slices=len(words),
        is_array=len(words) > 1,
        retries=0,
        fingerprint="f",
        after={},
    )
    known: Mapping[str, object] = {"source": "squeue", "job": job("7"), **values}
    slices = tuple(
        SliceStatus(slice_index=index, status=word, **known)  # type: ignore[arg-type]
        for index, word in enumerate(words)
    )
    return StageStatus(stage=summary, status=status or words[0], slices=slices)


def seen(
    *stages: StageStatus,
    status: Status = "running",
    failure: Failure | None = None,
    progress: Mapping[str, str] | None = None,
    **values: object,
) -> RunView:
    """View of a run of these stages, its scheduler asked four seconds ago."""
    known: Mapping[str, object] = {"asked_unix_s": NOW_S - 4, **values}
    return RunView(
        run_id="captions-20251121-040000-abcd",
        scheduler="slurm",
        created_unix_s=NOW_S - 3600,
        status=RunStatus(status=status, stages=stages, **known),  # type: ignore[arg-type]
        progress=progress or {},
        failure=failure,
    )
