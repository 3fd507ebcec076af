"""Progress of a tuning as plain values: facts, tried changes, and skipped ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slurm_jobs.tuning.knobs import Hardware, Proposal
from slurm_jobs.tuning.pairs import TrialPairs
from slurm_jobs.tuning.trial_model import Ask, Changes, Outcome, Trial, TrialFinding


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Facts that are constant during a tuning."""

    train: Mapping[str, Any]
    """Original config, all its keys."""
    hardware: Hardware
    nodes: tuple[str, ...]
    budget_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """Result of one change."""

    proposal: Proposal
    pairs: TrialPairs
    outcome: Outcome
    why: str


NotTriedKind = Literal[
    "no_change",  # nothing can be set, or it must not be changed
    "misfit",  # does not fit the rest of the config
    "too_short",  # needs longer trials than the budget allows
    "no_room",  # the budget does not suffice for its comparison
]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotTried:
    """Knob that a finding names and that was not tried."""

    name: str
    finding: str
    kind: NotTriedKind
    why: str
    needs_s: float | None = None
    """Budget to compare it, including closing trials; None if the budget is not the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningProgress:
    """Progress of a tuning."""

    ask: Ask | None = None
    """Next trial; None: it is over."""
    problem: str = ""
    """Reason why it cannot continue."""
    advised_budget_min: int | None = None
    """Set if the budget is too small; with a margin."""
    probe: Trial | None = None
    control: TrialPairs | None = None
    """First arm: with its data; second arm: without."""
    causes: tuple[TrialFinding, ...] = ()
    """Causes of the original training."""
    tried: tuple[Tried, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    kept: Changes = ()
    closing: TrialPairs | None = None
    """First arm: before; second arm: after. None if nothing was kept."""
    more_budget_min: int | None = None
    """Budget for one more knob; None if the budget did not exclude any."""
