"""Result of the drill: a job is stopped, must save, be requeued and continue. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.base import units
from slurm_jobs.nodes.doctor.doctor_check import Check, Standing


def drill_check(
    counters: Sequence[Mapping[str, Any]],
    *,
    status: str,
    reason: str,
    refusal: str | None,
    logs_command: str,
    gave_up: str = "",
) -> Check:
    """Return one sentence on the whole drill: how long each part took, or where it failed.

    Args:
        counters: of each rank; empty for one that never wrote it.
        status: of the drill's run: `completed`, `failed`, `waiting`...
        reason: why it failed or waits.
        refusal: why the stopped job was not requeued; None if it was, or did not ask.
        logs_command: prints the logs of the run.
        gave_up: why the command stopped waiting before the run ended.
    """
    counters = [c for c in counters if "started" in c]
    nodes = ", ".join(dict.fromkeys(str(c["started"]["node"]) for c in counters)) or "no node"
    standing: Standing = "problem"
    remedy = logs_command
    if not counters and (gave_up or status in {"waiting", "running"}):
        standing, remedy = "unknown", "wait longer: --wait MINUTES"
        finding = f"it did not start: {gave_up or reason or status}"
    elif not counters:
        finding = f"the job {status} before it counted: {reason}"
    elif any("asked_unix_s" not in c for c in counters):
        note = f" ({reason})" if reason else ""
        finding = (
            f"the job was not asked to stop before its time limit{note}: a training would lose "
            "what it did since its last checkpoint"
        )
        remedy = (
            "checkpoint.every_min: 10 in the training's config, and `slurm-jobs resume` each time"
        )
    elif any("saved_unix_s" not in c for c in counters):
        finding = f"asked to stop, and killed before a few bytes were saved ({reason})"
        remedy = "a longer signal_lead_s; or runs_dir on a faster file system"
    elif any("returned" not in c for c in counters):
        remedy = f"type `slurm-jobs resume` after each time limit; see `{logs_command}`"
        if refusal is not None:
            finding = f"it was asked to stop, and saved; but {refusal}"
        elif any(c.get("by") == "SIGTERM" for c in counters):
            finding = (
                "only SIGTERM came, at the time limit itself: it saved, but is then not requeued"
            )
        elif gave_up:
            standing, remedy = "unknown", "wait longer: --wait MINUTES"
            finding = f"it saved and was requeued, and had not started again when {gave_up}"
        else:
            finding = f"it was asked to stop, and saved; then the job {status}: {reason}"
    elif status != "completed":
        finding = f"it came back and then {status}: {reason}"
    else:
        standing, remedy = "ok", ""
        last = max(counters, key=lambda c: c["returned"]["unix_s"])
        save_s = max(c["saved_unix_s"] - c["asked_unix_s"] for c in counters)
        signal_s = last["asked_unix_s"] - last["started"]["unix_s"]
        away_s = max(0.0, last["returned"]["unix_s"] - last["saved_unix_s"])
        back = ", ".join(dict.fromkeys(str(c["returned"]["node"]) for c in counters))
        ranks = f" by each of {len(counters)} ranks" if len(counters) > 1 else ""
        finding = (
            f"requeue with checkpoint works: {last['by']} came {units.seconds(signal_s)} after the "
            f"start, {last['count'] - 1} counts were saved{ranks} in {units.seconds(save_s)}, the "
            f"job started again {units.seconds(away_s)} later on {back}, and continued from them"
        )
    return Check(name="drill", standing=standing, told=finding, remedy=remedy, where=nodes)
