"""Contents of a run folder as values: metadata, stages, and the records of attempts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_jobs.base.errors import InputError
from slurm_jobs.formats.records.attempt_records import (
    CompletionName,
)
from slurm_jobs.run_folder.ledger import Intent


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMeta:
    """`run.json`."""

    run_id: str
    name: str
    created_unix_s: float
    submitted_by: str
    host: str
    scheduler: str
    version: str
    spec_file: str
    max_cpus: int | None = None
    """Cores of the local scheduler."""
    cluster_name: str | None = None
    """Slurm's name of the cluster; None without Slurm, and in runs of earlier versions."""
    uid: int | None = None
    """Owner of the jobs; None in runs of earlier versions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSummary:
    """Stage with the facts that `status` needs."""

    name: str
    run: str
    num_slices: int
    is_array: bool
    retries: int
    fingerprint: str
    after: Mapping[str, str]
    """Kind of dependency by parent."""
    origin: str = ""
    """Name in the file, if the stage is one combination of a matrix; else empty."""
    partition: str = ""
    """Requested partitions; with several, Slurm gives the reason of the one that it tried last."""


def stages_called(name: str, origins: Mapping[str, str]) -> list[str]:
    """Return the stage of that name, or all combinations of the matrix stage of that name.

    Args:
        name: name that the user gave.
        origins: name in the file of each stage; empty if it is not a combination.
    """
    if name in origins:
        return [name]
    return [stage for stage, origin in origins.items() if origin and origin == name]


def stages_named(name: str, origins: Mapping[str, str], *, where: str = "") -> list[str]:
    """Return the same as `stages_called`, and raise if there is none.

    Args:
        name: name that the user gave.
        origins: see `stages_called`.
        where: start of the message, such as `--again fit: `.

    Raises:
        InputError: there is no such stage; the message names the nearest.
    """
    names = stages_called(name, origins)
    if not names:
        from slurm_jobs.base.texts.did_you_mean import did_you_mean

        near = did_you_mean(name, [*origins, *filter(None, origins.values())])
        message = f"{where}no stage `{name}`{near} (stages: {', '.join(origins)})"
        raise InputError(message)
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRecords:
    """Listing of a stage's record folders."""

    attempts: Mapping[int, tuple[int, ...]]
    """Attempt numbers by slice, ascending."""
    endings: Mapping[int, Mapping[int, CompletionName]]
    """Outcome and job of each attempt, by slice and attempt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecords:
    """Records of a run."""

    meta: RunMeta
    stages: tuple[StageSummary, ...]
    intents: tuple[Intent, ...]
    records: Mapping[str, StageRecords]
    is_submitting: bool = False
    """True if a command is submitting for this run now."""

    @property
    def jobs(self) -> dict[str, str]:
        """Return ids by name of all jobs that were ever submitted for this run, oldest first."""
        return submitted_jobs(self.intents)


def submitted_jobs(intents: Iterable[Intent]) -> dict[str, str]:
    """Return ids by name of those jobs among these intents that have one."""
    return {intent.job_name: intent.job_id for intent in intents if intent.job_id is not None}
