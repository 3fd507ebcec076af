"""The records of a run, as a report reads them: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_jobs.common.operator_table import OperatorTable
from slurm_jobs.common.probe_records import NodeProbe
from slurm_jobs.common.records import AttemptRecord, CompletionRecord, TaskAccounting
from slurm_jobs.common.timings import StepFile
from slurm_jobs.profiles.occupancy import Occupancy
from slurm_jobs.report.model.provenance import NodeFacts, PythonFacts, SubmissionFacts
from slurm_jobs.run.intents import Intent
from slurm_jobs.schedulers.protocol import Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTiming:
    """What one rank of one attempt timed."""

    slice_index: int
    attempt: int
    rank: int
    steps: StepFile | None
    spans: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReadings:
    """The load of one node during one attempt, as its sampler read it."""

    slice_index: int
    attempt: int
    node: str
    metadata: Mapping[str, Any]
    """Of the file: `cores`, `gpus`, `disks` and more."""
    readings: np.ndarray
    """Structured, fields as in `slurm_jobs.common.system_readings`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileTable:
    """What one rank's profile of some steps amounts to."""

    slice_index: int
    attempt: int
    rank: int
    table: OperatorTable
    device: Occupancy | None = None
    """What its device did; None without one, and of all but the first rank of the newest attempt
    that was profiled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageInputs:
    """All records of one stage, sorted by slice and attempt."""

    name: str
    run: str
    after: Mapping[str, str]
    """Kind of dependency by parent."""
    num_slices: int
    resources: Mapping[str, Any]
    attempts: tuple[AttemptRecord, ...]
    completions: tuple[CompletionRecord, ...]
    timings: tuple[RankTiming, ...]
    nodes: tuple[NodeFacts, ...] = ()
    """What was noted of the nodes that attempts ran on, each once."""
    readings: tuple[NodeReadings, ...] = ()
    """By slice, attempt and node."""
    profiles: tuple[ProfileTable, ...] = ()
    """By slice, attempt and rank; of the steps that `profile.steps` names."""
    is_former: bool = False
    """Of an earlier plan: the spec no longer has it."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """As the spec has it, secrets too: for what is decided by it, and never shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportInputs:
    """Everything that a report is made from."""

    run: Mapping[str, Any]
    """`run.json`."""
    spec: Mapping[str, Any]
    """`spec/resolved.json`, without the values of what looks like a secret."""
    stages: tuple[StageInputs, ...]
    """Parents before their children."""
    intents: tuple[Intent, ...] | None
    """The jobs that were submitted, oldest first; None if the ledger could not be read."""
    accounting: tuple[TaskAccounting, ...]
    """Every start that its scheduler keeps in its books, with what it used."""
    answer: Answer | None
    """What `status` decides by; None if nobody was asked, or nothing needed to be."""
    is_submitting: bool
    """Whether a command is submitting for the run."""
    submissions: tuple[SubmissionFacts, ...]
    """What each submit and resume was made from, oldest first."""
    pythons: Mapping[str, PythonFacts]
    """Those that ranks ran in, by fingerprint."""
    read_unix_s: float
    """When the records were read, seconds since 1970."""
    problems: tuple[str, ...]
    """Files that could not be read, and why."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """The cluster profile as the run was given it, without the values of what looks secret."""
    probes: tuple[NodeProbe, ...] = ()
    """The newest of every node that was probed from a run in the same folder, by node."""
    price: Mapping[str, Any] | None = None
    """`gpu_hour`, `cpu_hour` and `currency` of the profile; None where it has none."""
