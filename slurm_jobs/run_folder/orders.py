"""Order of a job: everything that its supervisor needs, written before sbatch is called."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.shared.files import parse_ranges, ranges_text, read_json
from slurm_jobs.shared.records import (
    JobResources,
    ParentStage,
    known_fields,
    parent_from_json,
    parent_to_json,
)

# Mapping between elements of a job array and slices.
#
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


ORDER_FORMAT = 2
"""Version of the files that are written for a job, mainly of its order. Raise it with every key
that is new or changes its meaning: a run's snapshot of slurm-jobs that reads another format gets no
new orders."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOrder:
    """Order of one job, stored as `jobs/TOKEN/job.json`."""

    run_id: str
    run_dir: str
    token: str
    job_name: str
    scheduler: str
    stage: str
    run: str
    """Name of a built-in stage, an entry point, or `shell`."""
    shell: str | None
    slices: tuple[int, ...]
    is_array: bool
    slices_per_task: int | None = None
    """Slices that each element processes; None means one, whose number is the element's."""
    max_running: int | None
    num_slices: int
    fingerprint: str
    num_again: Mapping[int, int] = field(default_factory=dict)
    """Number of times that a resume requested each slice again, complete or not."""
    retries: int
    max_requeues: int
    config: Mapping[str, Any]
    parents: tuple[ParentStage, ...]
    ancestor_output_dirs: Mapping[str, str]
    """Folders for `${stage.output_dir}` in the config."""
    python: str
    start_script: str
    """Path of `start.py` in the snapshot."""
    setup: tuple[str, ...]
    environment: Mapping[str, str]
    node_local_dir: str
    main_addr: str | None
    spec_dir: str
    limit: int | None
    resources: JobResources
    log_dir: str
    nsight: bool = False
    """True if the ranks run under nsys."""

    @property
    def array_indices(self) -> tuple[int, ...]:
        """Return the numbers of the array's elements, ascending."""
        return array_indices(self.slices, self.slices_per_task)


def name_of_job(run_name: str, stage: str, token: str) -> str:
    """Return the job's name in squeue; the unique token lets the job be found by its name."""
    return f"{run_name}.{stage}.{token}"


def order_to_json(order: JobOrder) -> dict[str, Any]:
    """Return the order as JSON values."""
    values = {f.name: getattr(order, f.name) for f in dataclasses.fields(order)}
    values["slices"] = ranges_text(order.slices)
    values["parents"] = [parent_to_json(parent) for parent in order.parents]
    values["resources"] = dataclasses.asdict(order.resources)
    return values


def read_order(path: Path) -> JobOrder:
    """Read the order in a `job.json` of any version of slurm-jobs.

    Keys of later versions are ignored; keys that earlier versions lack have their defaults.
    """
    values = known_fields(JobOrder, read_json(path))
    values["slices"] = parse_ranges(values["slices"])
    values["parents"] = tuple(parent_from_json(parent) for parent in values["parents"])
    values["num_again"] = {int(i): n for i, n in values.get("num_again", {}).items()}
    values["setup"] = tuple(values["setup"])
    resources = known_fields(JobResources, values["resources"])
    values["resources"] = JobResources(**{**resources, "gpu": tuple(resources["gpu"])})
    return JobOrder(**values)
