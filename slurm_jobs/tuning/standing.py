"""How a tuning stands, as plain values: what is given, what was tried and what was not. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.tuning.knobs import Hardware, Proposal
from slurm_jobs.tuning.model import Ask, Cause, Changes, Outcome, Trial
from slurm_jobs.tuning.pairs import Pairs


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What does not change while a tuning runs."""

    train: Mapping[str, Any]
    """The config as it was given, all its keys."""
    hardware: Hardware
    nodes: tuple[str, ...]
    budget_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """What came of one change."""

    proposal: Proposal
    pairs: Pairs
    outcome: Outcome
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NotTried:
    """A knob that a finding names and that was left alone."""

    name: str
    finding: str
    why: str
    needs_s: float | None = None
    """Of the budget, to compare it, before and after included; None where not the budget is why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """How a tuning stands."""

    ask: Ask | None = None
    """The next trial; None: it is over."""
    problem: str = ""
    """Why it cannot go on at all."""
    advised_budget_min: int | None = None
    """Where the budget is what is wrong; with a margin."""
    probe: Trial | None = None
    control: Pairs | None = None
    """First arm: with its data; second: without."""
    causes: tuple[Cause, ...] = ()
    """Of the training as it was given."""
    tried: tuple[Tried, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    kept: Changes = ()
    closing: Pairs | None = None
    """First arm: before; second: after. None where nothing was kept."""
    more_budget_min: int | None = None
    """With which one more knob could be compared; None where the budget left none out."""
