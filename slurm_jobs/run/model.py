"""A run as its folder shows it. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_jobs.common.errors import InputError
from slurm_jobs.common.records import CompletionName
from slurm_jobs.run.intents import Intent


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
    """Of the local scheduler."""
    cluster_name: str | None = None
    """Slurm's own name of the cluster; None where there is none, or a run is older than this."""
    uid: int | None = None
    """Whose jobs they are; None of an older run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSummary:
    """A stage as `status` needs it."""

    name: str
    run: str
    num_slices: int
    is_array: bool
    retries: int
    fingerprint: str
    after: Mapping[str, str]
    """Kind of dependency by parent."""
    origin: str = ""
    """Its name in the file, where it is one combination of a matrix; else empty."""
    partition: str = ""
    """As asked for; with several, Slurm gives the reason of the one that it tried last."""


def stages_called(name: str, origins: Mapping[str, str]) -> list[str]:
    """The stage of that name, or all combinations of the one that the file calls so.

    Args:
        name: as a user says it.
        origins: the name in the file of each stage; empty for one that is no combination.
    """
    if name in origins:
        return [name]
    return [stage for stage, origin in origins.items() if origin and origin == name]


def stages_named(name: str, origins: Mapping[str, str], *, where: str = "") -> list[str]:
    """The same, where a user must mean one.

    Args:
        name: as a user says it.
        origins: see `stages_called`.
        where: what the message begins with, such as `--again fit: `.

    Raises:
        InputError: there is none; the nearest is named.
    """
    found = stages_called(name, origins)
    if not found:
        from slurm_jobs.common.errors import did_you_mean  # slow, and rarely needed

        near = did_you_mean(name, [*origins, *filter(None, origins.values())])
        message = f"{where}no stage `{name}`{near} (stages: {', '.join(origins)})"
        raise InputError(message)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRecords:
    """What the listings of a stage's record folders say."""

    attempts: Mapping[int, tuple[int, ...]]
    """Attempt numbers by slice, ascending."""
    endings: Mapping[int, Mapping[int, CompletionName]]
    """How each attempt ended, and of which job it was, by attempt by slice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecords:
    """A run as its folder shows it."""

    meta: RunMeta
    stages: tuple[StageSummary, ...]
    intents: tuple[Intent, ...]
    records: Mapping[str, StageRecords]
    is_submitting: bool = False
    """Whether a command is submitting for this run at this moment."""

    @property
    def jobs(self) -> dict[str, str]:
        """Ids by name of all jobs that were ever submitted for this run, oldest first."""
        return submitted_jobs(self.intents)


def submitted_jobs(intents: Iterable[Intent]) -> dict[str, str]:
    """Ids by name of the jobs among these intents that have one."""
    return {intent.job_name: intent.job_id for intent in intents if intent.job_id is not None}
