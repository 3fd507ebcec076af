"""Seconds of each attempt that were lost, because they left nothing or were done again. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_jobs.formats.records.attempt_records import CompletionRecord
from slurm_jobs.report.attempts.gathered_attempts import AttemptFacts
from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.steps.attempt_steps import AttemptSteps, split_by_slice
from slurm_jobs.run.accounted_starts import AttemptKey

_NOT_JUDGED = frozenset({"running", "unknown"})
"""Outcomes of attempts whose work may still count."""
_NOT_FAILED = frozenset({"completed", "superseded", "stopped"})


class LostTime:
    """Time of one stage's attempts that does not count, because it failed or was done again.

    Step records show which steps a later attempt did again. An attempt without any is judged as a
    whole: it is lost unless its result counts, or it stopped and saved.
    """

    def __init__(
        self,
        stage: StageInputs,
        facts: Sequence[AttemptFacts],
        valid: Mapping[int, CompletionRecord],
    ) -> None:
        """Read the steps of each attempt.

        Args:
            stage: stage with its timings.
            facts: its attempts.
            valid: completions whose results count, by slice.
        """
        self._steps: dict[AttemptKey, AttemptSteps] = {}
        for index, attempts in split_by_slice(stage).items():
            self._steps.update({(index, steps.attempt): steps for steps in attempts})
        self._slices_with_steps = {index for index, _ in self._steps}
        self._valid = {(index, done.attempt) for index, done in valid.items()}
        self._first: dict[int, int] = {}
        for bar in (fact.bar for fact in facts if fact.record is not None):
            first = self._first.get(bar.slice_index, bar.attempt)
            self._first[bar.slice_index] = min(first, bar.attempt)

    def failed_s(self, fact: AttemptFacts) -> float:
        """Return the seconds that left nothing because the attempt failed or was cancelled."""
        bar, steps = fact.bar, self._steps_of(fact)
        if bar.outcome in _NOT_JUDGED or bar.outcome in _NOT_FAILED:
            return 0.0
        begun_s = bar.start_unix_s if steps is None else steps.ended_unix_s
        return max(0.0, bar.end_unix_s - max(begun_s, bar.start_unix_s))

    def repeated_s(self, fact: AttemptFacts) -> float:
        """Return the seconds of work that was done again, or that another job replaced."""
        bar, steps = fact.bar, self._steps_of(fact)
        whole_s = bar.end_unix_s - bar.start_unix_s
        if bar.outcome in _NOT_JUDGED:
            return 0.0
        if steps is None:
            is_valid = (bar.slice_index, bar.attempt) in self._valid
            is_start_up = bar.slice_index in self._slices_with_steps
            is_saved = is_valid or (bar.outcome == "stopped" and not is_start_up)
            return whole_s if bar.outcome in _NOT_FAILED and not is_saved else 0.0
        lost_s = steps.uncounted_s
        if bar.attempt != self._first[bar.slice_index]:  # it started up before, too
            lost_s += max(0.0, steps.begun_unix_s - bar.start_unix_s)
        return min(lost_s, whole_s - self.failed_s(fact))

    def _steps_of(self, fact: AttemptFacts) -> AttemptSteps | None:
        return self._steps.get((fact.bar.slice_index, fact.bar.attempt))
