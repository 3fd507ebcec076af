"""Config of the evaluation of a trained model."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import (
    Count,
    CountOrZero,
    InputPath,
    NamedPath,
    check_bounds,
    refuse,
)
from slurm_jobs.common.stage_config.preprocess import Columns

_NUM_ANSWERS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig:
    """Held-out samples: answered after the last step, their loss measured during training."""

    manifest: InputPath | None = None
    """Held-out rows in the manifest format of `preprocess`; null disables evaluation. Prompts and
    limits are those of the data set's preprocessing."""
    columns: Columns | None = None
    """Columns of that manifest; by default those of `preprocess`."""
    image_root: InputPath | None = None
    """Folder that its relative image paths start from; by default the manifest's own folder."""
    images_within: NamedPath | None = None
    """Folder in or below which its images may be, in addition to `image_root`."""
    num_samples: Count | None = None
    """Number of rows to take from the start; null takes all."""
    every_steps: Count | None = None
    """Steps between two measurements of the held-out loss during training, counted through all
    phases, with one more after the last step of each phase; null disables them."""
    num_loss_samples: Count = 64
    """Rows of such a measurement, from the start of the manifest."""
    num_answers: CountOrZero = _NUM_ANSWERS
    """Number of these rows that are also answered and compared."""
    max_new_tokens: Count = 64
    """Longest answer in tokens."""
    batch_size: Count = 32
    """Samples that one rank generates at a time."""

    def is_look_due(self, step: int, *, ends_phase: bool) -> bool:
        """Return whether a measurement comes after `step` steps of all phases."""
        return self.every_steps is not None and (ends_phase or step % self.every_steps == 0)

    def __post_init__(self) -> None:
        """Check bounds, and that measurements have rows."""
        check_bounds(self)
        refuse((self._nothing_problem(), self._answers_problem()))

    def _nothing_problem(self) -> str | None:
        if self.every_steps is None or self.manifest is not None:
            return None
        return (
            f"every_steps is {self.every_steps} and manifest is not given: give the held-out "
            "rows, or leave every_steps out"
        )

    def _answers_problem(self) -> str | None:
        answers, most = self.num_answers, self.num_loss_samples
        if answers <= most:
            return None
        if answers == _NUM_ANSWERS:  # probably left out
            return (
                f"num_loss_samples is {most}, fewer than num_answers, which is {answers} by "
                f"default: give num_answers, too: {most} or less"
            )
        return f"num_answers is {answers}: give num_loss_samples ({most}) or less"
