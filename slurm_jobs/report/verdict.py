"""Sentence and five tiles at the top of a report. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_jobs.report import words
from slurm_jobs.report.model.run import Check, EvaluationNumbers, Finding, RunHeader, Tile
from slurm_jobs.report.model.training import TrainingNumbers
from slurm_jobs.report.model.values import TimeShare

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
    *,
    tuned: Sequence[str] = (),
) -> str:
    """Return the status, and what to look at first, in one sentence.

    Failures precede what could be faster; the result of a tuning precedes everything.
    """
    wall_s = header.last_unix_s - header.created_unix_s
    parts = [f"{_STATUS_WORDS[header.status]} {words.seconds(wall_s)}"]
    if header.status_reason:
        parts[0] += f" ({header.status_reason})"
    if tuned:
        return "; ".join([*parts, *(said.rstrip(".") for said in tuned)]) + "."
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
        parts.append(f"{part} of the time went to {largest.name} ({words.percent(largest.share)})")
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
            value=words.seconds(header.last_unix_s - header.created_unix_s),
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
    mean = "mean over " if len(main.rank_counts) > 1 else ""
    note = f"real ones, {mean}{words.ranks(main.rank_counts)}"
    return Tile(label="tokens/s", value=words.significant(rate.value), note=note)


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


def _exact_match(numbers: Mapping[str, float]) -> str | None:
    """Return the name of the share that matched exactly, if there is one."""
    names = [n for n in numbers if "exact_match" in n and not words.is_count(n)]
    return min(names, default=None)


def _held_out(numbers: Mapping[str, float], name: str) -> str:
    """Return the number of samples of the share `name`, from the counts next to it."""
    parent, dot, _ = name.rpartition(".")
    num_exact, num_samples = (numbers.get(f"{parent}{dot}num_{n}") for n in ("exact", "samples"))
    if num_exact is None or num_samples is None:
        return ""
    return f"{num_exact:,.0f} of {num_samples:,.0f} held out"


def _last_loss(main: TrainingNumbers | None) -> str:
    if main is None or main.is_earlier or main.last_loss.value is None:
        return f"loss {words.NOT_KNOWN}"
    last = words.significant(main.last_loss.value)
    return f"loss {last}, {words.last_steps(main.num_last_losses)}"


def _result_tile(main: TrainingNumbers | None, evaluations: Sequence[EvaluationNumbers]) -> Tile:
    """Return the result of the other tiles' training; else of the last evaluating stage, named."""
    matched = [e for e in evaluations if _exact_match(e.numbers) is not None]
    own = [e for e in matched if main is not None and e.stage == main.stage]
    if matched:
        shown = (own or matched)[-1]
        return _match_tile(shown, main if own else None, is_only=bool(own) and len(matched) == 1)
    if main is None or main.is_earlier or main.last_loss.value is None:
        is_earlier = main is not None and main.is_earlier
        note = "the newest job has no step" if is_earlier else "no evaluation, no loss"
        return Tile(label="result", value=words.NOT_KNOWN, note=note)
    note = f"{words.last_steps(main.num_last_losses)}, from {words.quantity(main.first_loss)}"
    return Tile(label="loss", value=words.significant(main.last_loss.value), note=note)


def _match_tile(shown: EvaluationNumbers, main: TrainingNumbers | None, *, is_only: bool) -> Tile:
    """Return the tile of a match; `main` is the training's stage, `is_only`: it is unambiguous."""
    name = _exact_match(shown.numbers)
    assert name is not None
    what = _held_out(shown.numbers, name) or (_last_loss(main) if main is not None else "")
    return Tile(
        label="exact match",
        value=words.result(name, shown.numbers[name]),
        note=what if is_only else ": ".join(filter(None, (shown.stage, what))),
    )
