"""Requests, measurements and results of a tuning's trials as plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from slurm_jobs.formats.records.record_json import known_fields

START_UP_MIN = 15
"""Minutes of the time limit outside the budget: the start, and staging the data."""
Purpose = Literal["probe", "data", "knob", "closing"]
"""`probe`: how long a step takes; `data`: real samples against kept ones; `knob`: one change;
`closing`: before and after."""
Arm = Literal["A", "B"]
Outcome = Literal["kept", "rejected", "failed", "undecided"]


def budget_settings(stage: str, budget_min: float) -> tuple[str, str]:
    """Return the overrides with which a resume gives the tuning and its job so many minutes."""
    return (
        f"stages.{stage}.config.budget_min={budget_min:g}",
        f"stages.{stage}.resources.timeout_min={budget_min + START_UP_MIN:g}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Change of one value of the training's config."""

    key: str
    """Dotted, within the config: `sharding.reshard_after_forward`."""
    value: Any

    @property
    def text(self) -> str:
        """Text such as `num_loader_threads: 4`."""
        return f"{self.key}: {json.dumps(self.value)}"


Changes = tuple[Change, ...]
"""Relative to the original config; the last one of a key counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialFinding:
    """Finding of the report, reduced to what a tuning needs."""

    rule: str
    """Id of the rule without the stage: `data-wait`."""
    title: str
    ceiling: str
    """Upper bound of the gain, in words."""
    times: float | None
    """Upper bound as a factor of the speed; None if unknown."""
    kind: str = ""
    """Cause, if the rule distinguishes several: `threads`, `storage`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """Trial to run."""

    purpose: Purpose
    comparison: str
    """Key of the comparison; equal for both arms."""
    arm: Arm
    changes: Changes
    num_steps: int
    """Warm-up included."""
    num_kept_steps: int = 0
    """Above 0 the data path is removed; see `TrialConfig`."""
    num_dropped_steps: int = 0
    """Read at the end of the warm-up and dropped; equal for both arms, so that they train on the
    same samples."""
    limit_s: float
    """Time after which it is ended and has failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Finished trial."""

    number: int
    """From 1, over all attempts."""
    basis: str
    """Hash of training and code; only equal ones are comparable."""
    purpose: Purpose
    comparison: str
    arm: Arm
    changes: Changes
    num_steps: int
    nodes: tuple[str, ...]
    wall_s: float
    """Time since the previous trial ended, including the start of its processes, without staging.
    """
    failure: str = ""
    """Reason for missing results; then all fields below are 0 or empty."""
    tokens_per_s: float = 0.0
    """Tokens without padding, of all ranks; 0 if they are not counted."""
    samples_per_s: float = 0.0
    step_s: float = 0.0
    """Mean over the measured steps."""
    data_wait_share: float = 0.0
    """Share of the mean step, over all ranks."""
    memory_peak_bytes: float = 0.0
    """Maximum over the ranks; 0 if it is not recorded."""
    causes: tuple[TrialFinding, ...] = ()
    """Findings of the report's rules, strongest first."""
    timing_dir: str = ""
    """Folder of its step records, relative to the run's folder."""

    @property
    def speed(self) -> float:
        """Tokens per second, or samples per second if tokens are not counted."""
        return self.tokens_per_s or self.samples_per_s


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """Convert a trial to JSON values."""
    return asdict(trial)


def trial_from_json(values: Mapping[str, Any]) -> Trial:
    """Convert from JSON values of `trial_to_json`."""
    known = known_fields(Trial, values)
    known["changes"] = tuple(Change(**known_fields(Change, each)) for each in known["changes"])
    known["causes"] = tuple(
        TrialFinding(**known_fields(TrialFinding, each)) for each in known["causes"]
    )
    return Trial(**{**known, "nodes": tuple(known["nodes"])})
