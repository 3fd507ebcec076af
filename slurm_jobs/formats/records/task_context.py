"""Context of a stage's function: everything that it gets apart from its config.

The supervisor writes one `TaskContext` for each task into `context.json`; each rank reads it and
adds its own identity.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import read_json
from slurm_jobs.formats.records.record_json import record_from_json


@dataclass(frozen=True, kw_only=True, slots=True)
class ParentStage:
    """Stage that this one comes after."""

    stage: str
    run: str
    """Built-in name (`preprocess`), entry point (`package.module:function`) or `shell`."""
    output_dir: Path
    num_slices: int
    """Number of slices; 1 for a stage without an array."""
    origin: str = ""
    """Name in the spec, if it is one combination of a matrix and the only such parent."""

    @property
    def run_dir(self) -> Path:
        """Return the folder of its run, which holds its output as `data/STAGE`."""
        return self.output_dir.parent.parent


def resume_command(run_dir: Path | str, *options: str) -> str:
    """Return the resume command of a run; messages show it in backticks."""
    return shlex.join(["slurm-jobs", "resume", str(run_dir), *options])


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskContext:
    """Identity and folders of a running stage's function."""

    run_dir: Path
    run_id: str
    stage: str
    slice_index: int
    """Slice that this array task works on, from 0; 0 for a stage without an array."""
    num_slices: int
    attempt: int
    """Number of the attempt, counted from 1 over the whole life of the slice."""
    rank: int
    num_ranks: int
    local_rank: int
    num_local_ranks: int
    node_rank: int
    num_nodes: int
    node_name: str
    """Slurm's name of the node (`SLURMD_NODENAME`), or a name that the local scheduler generates.
    Work that is done once per node must use it as its key: in tests several nodes share one host.
    """
    main_addr: str
    """Address of the node of rank 0, for `torch.distributed`."""
    main_port: int
    output_dir: Path
    """This stage's own folder, shared by its array tasks and attempts."""
    timing_dir: Path
    """This attempt's folder for step records and spans."""
    task_dir: Path
    """This attempt's folder for small files (progress, exit records)."""
    node_local_dir: Path
    """Fast storage of this node alone, already keyed by node name; may be empty at the start."""
    parents: tuple[ParentStage, ...]
    config: Mapping[str, Any]
    """Resolved config of the stage."""
    spec_dir: Path
    limit: int | None
    """`--limit`: only this many samples of the manifest, from its start."""
    deadline_unix_s: float | None
    """Time at which the scheduler ends this attempt, seconds since 1970; None without a time limit.
    """
    fingerprint: str = ""
    """Hash of the stage's work: its config, code and parents. A resume may give it other work."""
    num_again: int = 0
    """Number of resumes so far that requested this slice again, even if it was complete."""

    def parent_running(self, run: str) -> ParentStage:
        """Return the parent whose `run:` is `run`.

        Raises:
            LookupError: no such parent, or several; the spec's `after:` decides that.
        """
        matching = [parent for parent in self.parents if parent.run == run]
        if len(matching) == 1:
            return matching[0]
        if matching:
            names = ", ".join(parent.stage for parent in matching)
            message = f"stage {self.stage} comes after several stages with `run: {run}`: {names}"
            raise LookupError(message)
        known = ", ".join(f"{p.stage} ({p.run})" for p in self.parents) or "none"
        message = f"stage {self.stage} needs a stage with `run: {run}` before it; it has: {known}"
        raise LookupError(message)


def read_context(path: Path) -> TaskContext:
    """Read the context in a `context.json`."""
    return record_from_json(TaskContext, read_json(path))
