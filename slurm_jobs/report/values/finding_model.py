"""Findings and checks, the answers of the rules, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["high", "medium", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Recommendation, with its evidence."""

    rule_id: str = ""
    """Name of the rule and stage, `padding:train`; its rule adds it to each answer."""
    severity: Severity = "medium"
    title: str
    text: str
    evidence: tuple[str, ...]
    next_knob: str
    ceiling: str
    """Upper bound of the gain."""
    confidence: str = "high: timed in the records"
    """Confidence in the diagnosis, with a reason."""
    cause: str = ""
    """Cause in one word, if a rule distinguishes several; see `Cause` of `loader_threads`."""
    ceiling_times: float | None = None
    """Ceiling as a factor of the speed; None if unknown."""
    rule: str = ""
    """Threshold in words; like the source, its rule adds it to each answer."""
    source: str = ""
    """Source of the threshold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOutcome:
    """Result of one rule without a finding."""

    rule_id: str = ""
    outcome: Literal["found", "clear", "abstained"]
    reason: str
    rule: str = ""
    """Threshold in words, as in a finding."""
    source: str = ""
