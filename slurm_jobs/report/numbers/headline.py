"""Sentence and five tiles at the top of a report. PURE."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.report.attempts.attempt_table import entry_name
from slurm_jobs.report.values.data_model import EvaluationNumbers
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.report_model import RunHeader, RunReport, Tile
from slurm_jobs.report.values.training_model import TrainingNumbers

_STATUS_WORDS = {
    "waiting": "Waiting after",
    "running": "Still running after",
    "completed": "Completed in",
    "failed": "Failed after",
    "cancelled": "Cancelled after",
    "stranded": "Stranded after",
    "unknown": "Not known how it ended, after",
}


def make_verdict(
    header: RunHeader,
    timeline: Sequence[TimeShare],
    findings: Sequence[Finding],
    checks: Sequence[RuleOutcome],
    *,
    tuned: Sequence[str] = (),
) -> str:
    """Return the status, and what to look at first, in one sentence.

    Failures precede what could be faster; the result of a tuning precedes everything.
    """
    wall_s = header.last_unix_s - header.created_unix_s
    parts = [f"{_STATUS_WORDS[header.status]} {units.seconds(wall_s)}"]
    if header.status_reason:
        parts[0] += f" ({header.status_reason})"
    if tuned:
        return "; ".join([*parts, *(sentence.rstrip(".") for sentence in tuned)]) + "."
    if header.status in {"failed", "stranded"}:
        return "; ".join([*parts, "`slurm-jobs status` says how to go on"]) + "."
    worth = [f for f in findings if f.severity != "note"]
    if worth:
        parts.append(f"look first at finding 1: {worth[0].title}")
    elif header.status == "completed":
        num_abstained = sum(check.outcome == "abstained" for check in checks)
        parts.append(
            "too little data for most rules"
            if 2 * num_abstained > len(checks)
            else "no rule found anything that would make it much faster"
        )
    largest = max(timeline, key=lambda s: s.seconds, default=None)
    if largest is not None and not worth:
        part = "most" if largest.share > 0.5 else "the largest part"
        parts.append(f"{part} of the time went to {largest.name} ({units.percent(largest.share)})")
    return "; ".join(parts) + "."


def make_tiles(
    header: RunHeader,
    timeline: Sequence[TimeShare],
    timeline_note: str,
    training: Sequence[TrainingNumbers],
    evaluations: Sequence[EvaluationNumbers],
) -> tuple[Tile, ...]:
    """Return time, queue, throughput, data wait and result."""
    main = max(training, key=lambda t: (not t.is_earlier, t.num_steps), default=None)
    return (
        Tile(
            label="submit to end",
            value=units.seconds(header.last_unix_s - header.created_unix_s),
            note=header.status,
        ),
        _queue_tile(timeline, timeline_note),
        _rate_tile(main),
        _wait_tile(main),
        _result_tile(main, evaluations),
    )


def _queue_tile(timeline: Sequence[TimeShare], note: str) -> Tile:
    queue = [share for share in timeline if share.kind == "queue"]
    if note and not queue:
        return Tile(label="queue wait", value=units.NOT_KNOWN, note="no full accounting")
    return Tile(
        label="queue wait",
        value=units.seconds(sum(s.seconds for s in queue)),
        note=f"{units.percent(sum(s.share for s in queue))} of the time"
        + (", at least" if note else ""),
    )


def _rate_tile(main: TrainingNumbers | None) -> Tile:
    if main is None:
        return Tile(label="tokens/s", value=units.NOT_KNOWN, note="no training steps")
    rate = main.tokens_per_s
    if rate.value is None:
        return Tile(label="tokens/s", value=units.NOT_KNOWN, note=rate.missing)
    mean = "mean over " if len(main.rank_counts) > 1 else ""
    note = f"real tokens, {mean}{units.ranks(main.rank_counts)}"
    return Tile(label="tokens/s", value=units.significant(rate.value), note=note)


def _wait_tile(main: TrainingNumbers | None) -> Tile:
    if main is None:
        return Tile(label="data wait", value=units.NOT_KNOWN, note="no training steps")
    if not main.phases:
        return Tile(label="data wait", value=units.NOT_KNOWN, note=main.step_median_s.missing)
    phase = main.phase("data_wait")
    step_s = sum(p.seconds for p in main.phases)
    return Tile(
        label="data wait",
        value=units.percent(phase.share),
        note=f"{units.seconds(phase.seconds)} of {units.seconds(step_s)} per step",
    )


def _result_tile(main: TrainingNumbers | None, evaluations: Sequence[EvaluationNumbers]) -> Tile:
    """Return the share of answers that match exactly, or without any the loss of the training.

    The share is that of the training in the other tiles. If it was not evaluated, it is that of the
    last stage that was, with the name of the stage.
    """
    shares: list[tuple[EvaluationNumbers, str]] = []
    for evaluation in evaluations:
        names = [n for n in evaluation.numbers if "exact_match" in n and not units.is_count(n)]
        if names:
            shares.append((evaluation, min(names)))
    if not shares:
        return _loss_tile(main)
    of_training = [share for share in shares if main is not None and share[0].stage == main.stage]
    shown, name = (of_training or shares)[-1]
    parent, dot, _ = name.rpartition(".")
    num_exact = shown.numbers.get(f"{parent}{dot}num_exact")
    num_samples = shown.numbers.get(f"{parent}{dot}num_samples")
    note = ""
    if num_exact is not None and num_samples is not None:
        note = f"{num_exact:,.0f} of {num_samples:,.0f} held out"
    elif of_training:
        note = _loss_note(main)
    if not of_training or len(shares) > 1:
        note = ": ".join(filter(None, (shown.stage, note)))
    return Tile(label="exact match", value=units.result(name, shown.numbers[name]), note=note)


def _last_loss(main: TrainingNumbers | None) -> float | None:
    return None if main is None or main.is_earlier else main.last_loss.value


def _loss_note(main: TrainingNumbers | None) -> str:
    loss = _last_loss(main)
    if main is None or loss is None:
        return f"loss {units.NOT_KNOWN}"
    return f"loss {units.significant(loss)}, {units.last_steps(main.num_last_losses)}"


def _loss_tile(main: TrainingNumbers | None) -> Tile:
    loss = _last_loss(main)
    if main is None or loss is None:
        is_earlier = main is not None and main.is_earlier
        note = "the newest job has no step" if is_earlier else "no evaluation, no loss"
        return Tile(label="result", value=units.NOT_KNOWN, note=note)
    note = f"{units.last_steps(main.num_last_losses)}, from {units.quantity(main.first_loss)}"
    return Tile(label="loss", value=units.significant(loss), note=note)


def without_failures(report: RunReport, names: Collection[str]) -> RunReport:
    """Return the report for a reader who has just seen these failures: without their reasons.

    Args:
        report: report of a run.
        names: of the attempts, as `units.attempt_name` has them. Others, such as those before a
            retry, stay in the report.
    """
    if not names:
        return report
    header = report.header
    if header.status == "failed":
        header = replace(header, status_reason=header.status_head)
    return replace(
        report,
        header=header,
        verdict=make_verdict(
            header, report.timeline, report.findings, report.checks, tuned=report.tunings
        ),
        attempts=tuple(
            replace(
                of_stage, entries=tuple(e for e in of_stage.entries if entry_name(e) not in names)
            )
            for of_stage in report.attempts
        ),
    )
