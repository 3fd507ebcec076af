"""What a tuning asks, measures and says, as plain values: PURE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from slurm_jobs.common.records import known_fields

START_UP_MIN = 15
"""Of the time limit, for what the budget does not count: the start, and staging the data in."""

Purpose = Literal["probe", "data", "knob", "closing"]
"""`probe`: how long a step takes; `data`: real samples beside kept ones; `knob`: one change;
`closing`: before and after."""
Arm = Literal["A", "B"]
Outcome = Literal["kept", "rejected", "failed", "undecided"]


def budget_settings(stage: str, budget_min: float) -> tuple[str, str]:
    """What a resume sets, so that the tuning has so many minutes, and its job the time for them."""
    return (
        f"stages.{stage}.config.budget_min={budget_min:g}",
        f"stages.{stage}.resources.timeout_min={budget_min + START_UP_MIN:g}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One value of the training's config."""

    key: str
    """Dotted, within the config: `sharding.reshard_after_forward`."""
    value: Any

    @property
    def text(self) -> str:
        """`num_loader_threads: 4`."""
        return f"{self.key}: {json.dumps(self.value)}"


Changes = tuple[Change, ...]
"""Against the config as it was given; later ones of a key count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """What a finding of the report says, as far as it matters here."""

    rule: str
    """Its id without the stage: `data-wait`."""
    title: str
    ceiling: str
    """What its remedy can gain at most, in words."""
    times: float | None
    """The same as a number: times the speed; None where it is not known."""
    kind: str = ""
    """Of the causes that its rule tells apart: `threads`, `storage`; empty where it tells none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A trial that is to be made."""

    purpose: Purpose
    comparison: str
    """Which trials belong together: equal for both arms."""
    arm: Arm
    changes: Changes
    num_steps: int
    """Warm-up included."""
    num_kept_steps: int = 0
    """Above 0 the data path is taken out; see `MeasureConfig`."""
    num_dropped_steps: int = 0
    """Read at the end of the warm-up and dropped; equal for both arms, so that they train on the
    same samples."""
    limit_s: float
    """After which it is ended and has failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A trial that was made."""

    number: int
    """From 1, over all attempts."""
    basis: str
    """Equal where the same training was tried with the same code."""
    purpose: Purpose
    comparison: str
    arm: Arm
    changes: Changes
    num_steps: int
    nodes: tuple[str, ...]
    wall_s: float
    """Since the trial before it ended, start of its processes included; staging in left out."""
    failure: str = ""
    """Why it says nothing; empty if it does. All below is then 0 or empty."""
    tokens_per_s: float = 0.0
    """Real ones, of all ranks; 0 where none are counted."""
    samples_per_s: float = 0.0
    step_s: float = 0.0
    """Mean over the measured steps."""
    data_wait_share: float = 0.0
    """Of the mean step, over all ranks."""
    memory_peak_bytes: float = 0.0
    """Of the rank that took most; 0 where it is not recorded."""
    causes: tuple[Cause, ...] = ()
    """What the report's rules find in it, strongest first."""
    timing_dir: str = ""
    """Its step records, under the run's folder."""

    @property
    def speed(self) -> float:
        """Tokens a second, or samples where no tokens are counted."""
        return self.tokens_per_s or self.samples_per_s


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """The trial as JSON values."""
    return asdict(trial)


def trial_from_json(values: Mapping[str, Any]) -> Trial:
    """The trial that `trial_to_json` described."""
    known = known_fields(Trial, values)
    known["changes"] = tuple(Change(**known_fields(Change, each)) for each in known["changes"])
    known["causes"] = tuple(Cause(**known_fields(Cause, each)) for each in known["causes"])
    return Trial(**{**known, "nodes": tuple(known["nodes"])})
