"""Result of the drill: a job is stopped, must save, be requeued and continue. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.doctor.model import Check
from slurm_jobs.report import words

_NAME = "drill"


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillFacts:
    """Records of a drill."""

    status: str
    """Status of its run: `completed`, `failed`, `waiting`..."""
    reason: str
    """Reason, if it failed or waits."""
    log: str
    """Log of the supervisor."""
    counters: Sequence[Mapping[str, Any]]
    """Counter of each rank; empty for one that never wrote it."""
    logs_command: str
    gave_up: str = ""
    """Reason why the command stopped waiting before the run ended."""


def drill_check(facts: DrillFacts) -> Check:
    """Return one sentence on the whole drill: how long each part took, or where it failed."""
    counters = [c for c in facts.counters if "started" in c]
    nodes = ", ".join(dict.fromkeys(str(c["started"]["node"]) for c in counters))
    if not counters:
        return _not_begun(facts)
    if any("asked_unix_s" not in c for c in counters):
        return _not_told(facts, nodes)
    if any("saved_unix_s" not in c for c in counters):
        finding = f"asked to stop, and killed before a few bytes were saved ({facts.reason})"
        remedy = "a longer signal_lead_s; or runs_dir on a faster file system"
        return Check(name=_NAME, standing="problem", told=finding, remedy=remedy, where=nodes)
    if any("returned" not in c for c in counters):
        return _not_back(facts, counters, nodes)
    if facts.status != "completed":
        return _broken(facts, f"it came back and then {facts.status}: {facts.reason}", nodes)
    return _worked(counters, nodes)


def _worked(counters: Sequence[Mapping[str, Any]], nodes: str) -> Check:
    first = max(counters, key=lambda c: c["returned"]["unix_s"])
    save_s = max(c["saved_unix_s"] - c["asked_unix_s"] for c in counters)
    told_s = first["asked_unix_s"] - first["started"]["unix_s"]
    away_s = first["returned"]["unix_s"] - first["saved_unix_s"]
    back = ", ".join(dict.fromkeys(str(c["returned"]["node"]) for c in counters))
    ranks = f" by each of {len(counters)} ranks" if len(counters) > 1 else ""
    finding = (
        f"requeue with checkpoint works: {first['by']} came {words.seconds(told_s)} after the "
        f"start, {first['count'] - 1} counts were saved{ranks} in {words.seconds(save_s)}, the job "
        f"started again {words.seconds(max(0.0, away_s))} later on {back}, and continued from them"
    )
    return Check(name=_NAME, standing="ok", told=finding, where=nodes)


def _not_begun(facts: DrillFacts) -> Check:
    if facts.gave_up or facts.status in {"waiting", "running"}:
        finding = f"it did not start: {facts.gave_up or facts.reason or facts.status}"
        remedy = "wait longer: --wait MINUTES"
        return Check(name=_NAME, standing="unknown", told=finding, remedy=remedy, where="no node")
    finding = f"the job {facts.status} before it counted: {facts.reason}"
    return _broken(facts, finding, "no node")


def _not_told(facts: DrillFacts, nodes: str) -> Check:
    finding = (
        "the job was not asked to stop before its time limit"
        f"{f' ({facts.reason})' if facts.reason else ''}: a training would lose what it did since "
        "its last checkpoint"
    )
    remedy = "checkpoint.every_min: 10 in the training's config, and `slurm-jobs resume` each time"
    return Check(name=_NAME, standing="problem", told=finding, remedy=remedy, where=nodes)


def _not_back(facts: DrillFacts, counters: Sequence[Mapping[str, Any]], nodes: str) -> Check:
    """Return the check of a drill that saved, but was not requeued or never started again."""
    by_term = any(c.get("by") == "SIGTERM" for c in counters)
    refused = [line for line in facts.log.splitlines() if "not requeued" in line]
    if refused:
        why = refused[-1].partition("slurm-jobs: ")[2]
        finding = f"it was asked to stop, and saved; but {why}"
    elif by_term:
        finding = "only SIGTERM came, at the time limit itself: it saved, and is not requeued then"
    elif facts.gave_up:
        finding = f"it saved and was requeued, and had not started again when {facts.gave_up}"
        remedy = "wait longer: --wait MINUTES"
        return Check(name=_NAME, standing="unknown", told=finding, remedy=remedy, where=nodes)
    else:
        finding = f"it was asked to stop, and saved; then the job {facts.status}: {facts.reason}"
    remedy = f"type `slurm-jobs resume` after each time limit; see `{facts.logs_command}`"
    return Check(name=_NAME, standing="problem", told=finding, remedy=remedy, where=nodes)


def _broken(facts: DrillFacts, finding: str, nodes: str) -> Check:
    return Check(
        name=_NAME, standing="problem", told=finding, remedy=facts.logs_command, where=nodes
    )
