"""Order of a job: everything that its supervisor needs, written before sbatch is called."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import read_json
from slurm_jobs.base.index_ranges import parse_ranges, ranges_text
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.formats.records.record_json import record_from_json, record_to_json
from slurm_jobs.formats.records.task_context import ParentStage


# If the site's limits allow it, the number of an element equals its slice, so that squeue and
# `status` show the same numbers. Otherwise elements are numbered from 0, and each processes
# `slices_per_task` slices in order.
def array_indices(slices: Sequence[int], slices_per_task: int | None) -> tuple[int, ...]:
    """Return the numbers of the elements that work on `slices`; both ascending."""
    if slices_per_task is None:
        return tuple(slices)
    return tuple(range(-(-len(slices) // slices_per_task)))


def slices_of_element(
    slices: Sequence[int], slices_per_task: int | None, index: int
) -> tuple[int, ...]:
    """Return the slices of element `index`, in processing order."""
    if slices_per_task is None:
        return (index,)
    return tuple(slices[index * slices_per_task : (index + 1) * slices_per_task])


def element_of_slice(slices: Sequence[int], slices_per_task: int | None, slice_index: int) -> int:
    """Return the element that works on a slice."""
    if slices_per_task is None:
        return slice_index
    return bisect_left(slices, slice_index) // slices_per_task


MOST_SLICES = 1_000_000
"""Most slices of a stage, as in the spec: a record that names more is damaged."""
ORDER_FORMAT = 2
"""Version of the files that are written for a job, mainly of its order. Raise it with every key
that is new or changes its meaning: a run's snapshot of slurm-jobs that reads another format gets no
new orders."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageWork:
    """Work of a stage, equal for all jobs of a plan."""

    run: str
    """Name of a built-in stage, an entry point, or `shell`."""
    shell: str | None
    num_slices: int
    is_array: bool
    fingerprint: str
    """Hash of everything that determines the stage's output; resources are not part of it."""
    retries: int
    config: Mapping[str, Any]
    setup: tuple[str, ...]
    environment: Mapping[str, str]
    node_local_dir: str
    resources: JobResources
    nsight: bool = False
    """True if the ranks run under nsys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOrder(StageWork):
    """Order of one job, stored as `jobs/TOKEN/job.json`."""

    run_id: str
    run_dir: str
    token: str
    job_name: str
    scheduler: str
    stage: str
    slices: tuple[int, ...]
    slices_per_task: int | None = None
    """Slices that each element processes; None means one, whose number is the element's."""
    max_running: int | None
    num_again: Mapping[int, int] = field(default_factory=dict)
    """Number of times that a resume requested each slice again, complete or not."""
    max_requeues: int
    parents: tuple[ParentStage, ...]
    ancestor_output_dirs: Mapping[str, str]
    """Folders for `${stage.output_dir}` in the config."""
    python: str
    start_script: str
    """Path of `start.py` in the snapshot."""
    main_addr: str | None
    spec_dir: str
    limit: int | None
    log_dir: str

    @property
    def array_indices(self) -> tuple[int, ...]:
        """Return the numbers of the array's elements, ascending."""
        return array_indices(self.slices, self.slices_per_task)


def name_of_job(run_name: str, stage: str, token: str) -> str:
    """Return the job's name in squeue; the unique token lets the job be found by its name."""
    return f"{run_name}.{stage}.{token}"


def order_to_json(order: JobOrder) -> dict[str, Any]:
    """Return the order as JSON values."""
    return {**record_to_json(order), "slices": ranges_text(order.slices)}


def read_order(path: Path) -> JobOrder:
    """Read the order in a `job.json` of any version of slurm-jobs."""
    values = read_json(path)
    return record_from_json(
        JobOrder, {**values, "slices": parse_ranges(values["slices"], below=MOST_SLICES)}
    )
