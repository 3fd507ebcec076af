"""The order of a job: everything that its supervisor needs, written before sbatch is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.common.context import ParentStage, parent_from_json, parent_to_json
from slurm_jobs.common.files import read_json
from slurm_jobs.common.ranges import parse_ranges, ranges_text
from slurm_jobs.common.records import known_fields
from slurm_jobs.common.resources import JobResources
from slurm_jobs.run.elements import array_indices

ORDER_FORMAT = 2
"""Of what is written for a job, its order above all. One more with every key that is new, or means
something else: a run's snapshot of slurm-jobs that reads another format gets no new orders."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOrder:
    """One job, as `jobs/TOKEN/job.json` holds it."""

    run_id: str
    run_dir: str
    token: str
    job_name: str
    scheduler: str
    stage: str
    run: str
    """Built-in name, entry point, or `shell`."""
    shell: str | None
    slices: tuple[int, ...]
    is_array: bool
    slices_per_task: int | None = None
    """Slices that each element works through; None: one, whose number is the element's."""
    max_running: int | None
    num_slices: int
    fingerprint: str
    num_again: Mapping[int, int] = field(default_factory=dict)
    """By slice how often a resume was told to run it again, complete or not."""
    retries: int
    max_requeues: int
    config: Mapping[str, Any]
    parents: tuple[ParentStage, ...]
    ancestor_output_dirs: Mapping[str, str]
    """For `${stage.output_dir}` in the config."""
    python: str
    start_script: str
    """The snapshot's `start.py`."""
    setup: tuple[str, ...]
    environment: Mapping[str, str]
    node_local_dir: str
    main_addr: str | None
    spec_dir: str
    limit: int | None
    resources: JobResources
    log_dir: str
    nsight: bool = False
    """Whether its ranks run under nsys."""

    @property
    def array_indices(self) -> tuple[int, ...]:
        """Numbers of the array's elements, ascending."""
        return array_indices(self.slices, self.slices_per_task)


def name_of_job(run_name: str, stage: str, token: str) -> str:
    """As squeue shows it; the token is the job's own, so that it can be found by its name."""
    return f"{run_name}.{stage}.{token}"


def order_to_json(order: JobOrder) -> dict[str, Any]:
    """The order as JSON values."""
    values = {f.name: getattr(order, f.name) for f in dataclasses.fields(order)}
    values["slices"] = ranges_text(order.slices)
    values["parents"] = [parent_to_json(parent) for parent in order.parents]
    values["resources"] = dataclasses.asdict(order.resources)
    return values


def read_order(path: Path) -> JobOrder:
    """The order in a `job.json`, of whatever version of slurm-jobs.

    What a later one added is left out; what an earlier one did not write yet has its default.
    """
    values = known_fields(JobOrder, read_json(path))
    values["slices"] = parse_ranges(values["slices"])
    values["parents"] = tuple(parent_from_json(parent) for parent in values["parents"])
    values["num_again"] = {int(i): n for i, n in values.get("num_again", {}).items()}
    values["setup"] = tuple(values["setup"])
    resources = known_fields(JobResources, values["resources"])
    values["resources"] = JobResources(**{**resources, "gpu": tuple(resources["gpu"])})
    return JobOrder(**values)
