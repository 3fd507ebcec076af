"""The sentence and the five tiles at the top of a report: PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_jobs.report import words
from slurm_jobs.report.model import Check, Finding, RunHeader, Tile
from slurm_jobs.report.model_training import TrainingNumbers
from slurm_jobs.report.model_values import TimeShare

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
    checks: Sequence[Check],
) -> str:
    """How it stands, and what to look at first, in one sentence."""
    wall_s = header.last_unix_s - header.created_unix_s
    parts = [f"{_STATUS_WORDS[header.status]} {words.seconds(wall_s)}"]
    if header.status_reason:
        parts[0] += f" ({header.status_reason})"
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
        parts.append(f"most of the time went to {largest.name} ({words.percent(largest.share)})")
    return "; ".join(parts) + "."


def make_tiles(
    header: RunHeader,
    timeline: Sequence[TimeShare],
    timeline_note: str,
    training: Sequence[TrainingNumbers],
    evaluation: Mapping[str, float],
) -> tuple[Tile, ...]:
    """Time, queue, throughput, data wait, result."""
    main = max(training, key=lambda t: (not t.is_earlier, t.num_steps), default=None)
    return (
        Tile(
            label="submit to end",
            value=words.seconds(header.last_unix_s - header.created_unix_s),
            note=header.status,
        ),
        _queue_tile(timeline, timeline_note),
        _rate_tile(main),
        _wait_tile(main),
        _result_tile(main, evaluation),
    )


def _queue_tile(timeline: Sequence[TimeShare], note: str) -> Tile:
    queue = [share for share in timeline if share.kind == "queue"]
    if note and not queue:
        return Tile(label="queue wait", value=words.NOT_KNOWN, note="no full accounting")
    return Tile(
        label="queue wait",
        value=words.seconds(sum(s.seconds for s in queue)),
        note=f"{words.percent(sum(s.share for s in queue))} of the time"
        + (", at least" if note else ""),
    )


def _rate_tile(main: TrainingNumbers | None) -> Tile:
    if main is None:
        return Tile(label="tokens/s", value=words.NOT_KNOWN, note="no training steps")
    rate = main.tokens_per_s
    if rate.value is None:
        return Tile(label="tokens/s", value=words.NOT_KNOWN, note=rate.missing)
    note = f"real ones, {words.number_of('rank', main.num_ranks)}"
    return Tile(label="tokens/s", value=words.count(rate.value), note=note)


def _wait_tile(main: TrainingNumbers | None) -> Tile:
    if main is None:
        return Tile(label="data wait", value=words.NOT_KNOWN, note="no training steps")
    if not main.phases:
        return Tile(label="data wait", value=words.NOT_KNOWN, note=main.step_median_s.missing)
    phase = next(p for p in main.phases if p.kind == "data_wait")
    step_s = sum(p.seconds for p in main.phases)
    return Tile(
        label="data wait",
        value=words.percent(phase.share),
        note=f"{words.seconds(phase.seconds)} of {words.seconds(step_s)} a mean step",
    )


def _held_out(evaluation: Mapping[str, float]) -> str | None:
    if "num_exact" not in evaluation or "num_samples" not in evaluation:
        return None
    return f"{evaluation['num_exact']:,.0f} of {evaluation['num_samples']:,.0f} held out"


def _last_loss(main: TrainingNumbers | None) -> str:
    if main is None or main.is_earlier or main.last_loss.value is None:
        return f"loss {words.NOT_KNOWN}"
    last = words.significant(main.last_loss.value)
    return f"loss {last}, {words.last_steps(main.num_last_losses)}"


def _result_tile(main: TrainingNumbers | None, evaluation: Mapping[str, float]) -> Tile:
    for key in sorted(evaluation):
        if "exact_match" in key:
            return Tile(
                label="exact match",
                value=f"{evaluation[key] * 100:.1f} %",
                note=_held_out(evaluation) or _last_loss(main),
            )
    if main is None or main.is_earlier or main.last_loss.value is None:
        is_earlier = main is not None and main.is_earlier
        note = "the newest job has no step" if is_earlier else "no evaluation, no loss"
        return Tile(label="result", value=words.NOT_KNOWN, note=note)
    note = f"{words.last_steps(main.num_last_losses)}, from {words.quantity(main.first_loss)}"
    return Tile(label="loss", value=words.significant(main.last_loss.value), note=note)
