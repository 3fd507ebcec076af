"""What a look at a site finds, as plain values: PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slurm_jobs.common.doctor_records import FolderFacts

NODE_RUN = "pipeline.doctor.stage:run"
"""`run:` of the stage that looks at nodes."""
DRILL_RUN = "pipeline.doctor.drill:run"
"""`run:` of the stage that is told to stop, and comes back."""
NODE_STAGE, DRILL_STAGE = "doctor", "drill"

Standing = Literal["problem", "warning", "unknown", "ok"]
WORST_FIRST: tuple[Standing, ...] = ("problem", "warning", "unknown", "ok")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing, how it stands, and what to do."""

    name: str
    """Of the thing, for programs and for the eye: `requeue`."""
    standing: Standing
    told: str
    """What was found, in a sentence; of what could not be told, the reason."""
    remedy: str = ""
    """A command to type or a line to write, or what else to do; empty where nothing need be."""
    where: str = "login node"
    """Which machines were looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecFacts:
    """What of a spec the checks depend on."""

    stage: str
    """Whose nodes are meant."""
    is_slurm: bool
    trains: bool
    """Whether a stage of it is `run: train`."""
    gpus_per_node: int
    partitions: tuple[str, ...]
    """That its stages name; empty for the default one."""
    lead_s: int
    """How long before the time limit the stage is told to stop."""
    checkpoint_min: float | None
    """Minutes between checkpoints of the training; None without that trigger, or training."""
    may_requeue: bool
    num_slices: int
    """Of its longest array."""
    pythons: tuple[str, ...]
    """That its stages name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The answer of a program."""

    text: str = ""
    problem: str = ""
    """Why there is none; empty if there is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmFacts:
    """What Slurm's commands say on the login node."""

    missing: tuple[str, ...]
    """Commands that PATH leads to none of."""
    answers: Mapping[str, Asked]
    """By `version`, `config`, `partitions`, `nodes`, `queue`, `accounts`, `association`."""
    asked_unix_s: tuple[float, float]
    """When the settings were asked for, and when they had come."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderLook:
    """A folder as it was tried out on the login node."""

    purpose: str
    """`runs_dir`, `home`."""
    folder: FolderFacts
    free_files: int | None = None
    links: bool | None = None
    """Whether a hard link is refused where the name exists, and made where it does not."""
    link_problem: str = ""
    write_s: float | None = None
    """To write a small file and make it durable; the median of some."""
    quota: Asked = field(default_factory=Asked)
    late: str = ""
    """Why nothing was found out: it did not answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonLook:
    """The login node's Python."""

    version: str
    executable: str
    packages: Mapping[str, str]
    requires: tuple[str, ...] | None
    """Of our own distribution, as its metadata says; None where it is not installed."""
    requires_python: str = ""
    open_s: float | None = None
    """To open and read a module's file; the mean of some."""
    num_opened: int = 0
    stage_pythons: Mapping[str, bool] = field(default_factory=dict)
    """Whether a Python that the spec names can be started here."""
