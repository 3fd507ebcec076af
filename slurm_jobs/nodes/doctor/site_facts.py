"""Facts of a site, of its login node and of a spec, as plain values. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_jobs.cluster.slurm_output import parse_config
from slurm_jobs.formats.node_records.doctor_facts import FolderFacts

NODE_STAGE, DRILL_STAGE = "doctor", "drill"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecFacts:
    """Facts of a spec that the checks depend on."""

    stage: str
    """Name of the stage whose nodes are checked."""
    is_slurm: bool
    trains: bool
    """True if a stage has `run: train`."""
    gpus_per_node: int
    partitions: tuple[str, ...]
    """Partitions that its stages name; empty for the default one."""
    lead_s: int
    """Seconds before the time limit at which the stage gets the signal to stop."""
    checkpoint_min: float | None
    """Minutes between checkpoints of the training; None without that trigger, or training."""
    may_requeue: bool
    num_slices: int
    """Size of its longest array."""
    pythons: tuple[str, ...]
    """Python interpreters that its stages name."""
    requires: tuple[str, ...] | None = None
    """Requirements of our distribution, which the Python of a training must meet; None if unknown.
    """
    requires_python: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramAnswer:
    """Answer of a program."""

    text: str = ""
    problem: str = ""
    """Reason for a missing answer; empty if there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmFacts:
    """Answers of Slurm's commands on the login node."""

    missing: tuple[str, ...]
    """Commands that are not in PATH."""
    answers: Mapping[str, ProgramAnswer]
    """By `version`, `config`, `partitions`, `nodes`, `queue`, `accounts`, `association`."""
    asked_unix_s: tuple[float, float]
    """Time of the query of the settings, and of its answer."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Slurm's settings by name; empty if the controller did not answer."""
        return parse_config(self.answers["config"].text)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFolder:
    """Results of a test of a folder on the login node."""

    purpose: str
    """`runs_dir`, `home`."""
    folder: FolderFacts
    free_files: int | None = None
    link_problem: str = ""
    """Reason why the ledger's hard links cannot be made; empty if they can."""
    write_s: float | None = None
    """Median time to write a small file durably."""
    quota: ProgramAnswer = field(default_factory=ProgramAnswer)
    late: str = ""
    """Reason for missing results: the file system did not answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPython:
    """Python of the login node."""

    version: str
    executable: str
    packages: Mapping[str, str]
    requires: tuple[str, ...] | None
    """Requirements of our distribution from its metadata; None if it is not installed."""
    requires_python: str = ""
    open_s: float | None = None
    """Mean time to open and read a module's file."""
    num_opened: int = 0
    stage_pythons: Mapping[str, bool] = field(default_factory=dict)
    """True for each Python of the spec that can be started here."""
