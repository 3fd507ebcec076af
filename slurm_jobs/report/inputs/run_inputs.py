"""Records of a run as plain values, as a report reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_jobs.formats.node_records.probe_measures import NodeProbe
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.formats.timings.profiler_files import OperatorTable
from slurm_jobs.formats.timings.step_records import StepFile
from slurm_jobs.report.profiles.occupancy import Occupancy
from slurm_jobs.report.values.provenance_model import PythonFacts, RecordedNode, SubmissionFacts
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.schedulers.protocol import Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTiming:
    """Timing records of one rank in one attempt."""

    slice_index: int
    attempt: int
    rank: int
    steps: StepFile | None
    spans: tuple[Mapping[str, Any], ...]

    @property
    def header(self) -> Mapping[str, Any]:
        """Header of its step records; empty without any."""
        return {} if self.steps is None else self.steps.metadata

    @property
    def node(self) -> str:
        """Name of its node; empty if not recorded."""
        return str(self.header.get("node_name", ""))


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReadings:
    """Load of one node during one attempt, as its sampler read it."""

    slice_index: int
    attempt: int
    node: str
    metadata: Mapping[str, Any]
    """Header of the file: `cores`, `gpus`, `disks` and more."""
    readings: np.ndarray
    """Structured, fields as in `slurm_jobs.formats.timings`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileTable:
    """Summary of one rank's profile of some steps."""

    slice_index: int
    attempt: int
    rank: int
    table: OperatorTable
    device: Occupancy | None = None
    """Activity of its device; None without one, and for all but the first rank of the newest
    profiled attempt."""


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
    nodes: tuple[RecordedNode, ...] = ()
    """Records of the nodes that attempts ran on, each once."""
    readings: tuple[NodeReadings, ...] = ()
    """By slice, attempt and node."""
    profiles: tuple[ProfileTable, ...] = ()
    """By slice, attempt and rank; of the steps in `profile.steps`."""
    is_former: bool = False
    """True for a stage of an earlier plan that the spec no longer has."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Config in the spec, including secrets: for decisions, never shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportInputs:
    """Input of a report."""

    run: Mapping[str, Any]
    """`run.json`."""
    spec: Mapping[str, Any]
    """`spec/resolved.json`, without values that look like secrets."""
    stages: tuple[StageInputs, ...]
    """Parents before their children."""
    records: RunRecords | None
    """What `status` reads of the run; None if that could not be read."""
    accounting: tuple[TaskAccounting, ...]
    """Every start in the scheduler's accounting, with its use of resources."""
    answer: Answer | None
    """Answer that `status` uses; None if the scheduler was not queried."""
    submissions: tuple[SubmissionFacts, ...]
    """Provenance of each submit and resume, oldest first."""
    pythons: Mapping[str, PythonFacts]
    """Pythons in which ranks ran, by fingerprint."""
    read_unix_s: float
    """Time of the reading, seconds since 1970."""
    problems: tuple[str, ...]
    """Unreadable files, with reasons."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """Cluster profile of the run, without values that look like secrets."""
    probes: tuple[NodeProbe, ...] = ()
    """Newest probe of every node that was probed from a run in the same folder, by node."""
    price: Mapping[str, Any] | None = None
    """`gpu_hour`, `cpu_hour` and `currency` of the profile; None if it has none."""

    @property
    def intents(self) -> tuple[Intent, ...] | None:
        """The jobs that were submitted, oldest first; None if the ledger could not be read."""
        return None if self.records is None else self.records.intents
