"""Contradictions between the clocks of a run, and which one counts. PURE.

Attempts are timed by their node's clock, starts by the controller's, which knows the length of
each. If a clock was set while the job ran, the attempt would be far too long, or of no length.
"""

from __future__ import annotations

from slurm_jobs.common.records import CompletionRecord, TaskAccounting
from slurm_jobs.report import words
from slurm_jobs.report.numbers.joining import CLOCK_SKEW_S
from slurm_jobs.report.numbers.steps import CLOCK_TOLERANCE


def why_end_is_the_rows(
    begun_unix_s: float, completion: CompletionRecord, row: TaskAccounting
) -> str:
    """Return why a start's last attempt ends with its row; empty if its own end counts.

    Set-up lines run before the supervisor, so attempts may be shorter than their start: only if
    the start ended later, too, is that a contradiction.

    Args:
        begun_unix_s: begin of the start's first attempt, by its node's clock.
        completion: record of the last attempt.
        row: accounting of the start.
    """
    if row.start_unix_s is None or row.end_unix_s is None:
        return ""
    elapsed_s = row.end_unix_s - row.start_unix_s
    slack_s = CLOCK_SKEW_S + CLOCK_TOLERANCE * elapsed_s
    own_s = completion.ended_unix_s - begun_unix_s
    ends_early = completion.ended_unix_s < row.end_unix_s - slack_s
    is_short = ends_early and own_s < elapsed_s - slack_s
    if own_s <= elapsed_s + slack_s and not is_short:
        return ""
    took = words.seconds(own_s) if own_s > 0 else "less than no time"
    return (
        f"by its node's clock it took {took}, by the accounting {words.seconds(elapsed_s)}: the "
        "clock was set while it ran, or the job continued after it; its end is the accounting's"
    )
