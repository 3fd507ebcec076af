"""Note on the comparison of packed samples with the same samples alone. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.formats.timings.packed_check import read_packed_check
from slurm_jobs.report.steps.attempt_steps import AttemptSteps


def packed_check_note(attempt: AttemptSteps) -> tuple[str, ...]:
    """Return the result of an attempt as a sentence; empty if it compared nothing."""
    first = min(attempt.ranks, key=lambda timing: timing.rank)
    check = read_packed_check(first.spans)
    if check is None or not check.num_samples:
        return ()
    exact = ", and no bit changed with other neighbours" if check.is_exact else ""
    samples = units.number_of("sample", check.num_samples)
    note = (
        f"attempt {attempt.attempt}: packed equals alone: checked with {samples}. Logits differ by "
        f"{100 * check.difference:.2g} %, where rounding explains {100 * check.limit:.2g} %{exact}"
    )
    return (note,)
