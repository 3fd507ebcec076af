"""Config of the detailed profile of some training steps."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.common.config_values import CountOrZero, check_bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileConfig:
    """Trace and table of operators by PyTorch's profiler, in the attempt's timing folder."""

    steps: tuple[CountOrZero, ...] | None = None
    """First and last recorded step, `[20, 40]`, counted from 0 as in the step records; null for
    none. Only these steps, and the one before them, get slower."""
    ranks: tuple[CountOrZero, ...] = (0,)
    """Ranks that record."""
    memory: bool = False
    """Record the bytes that operators allocate, too; slower, and a larger trace."""
    stacks: bool = False
    """Record the lines of Python that called an operator; much slower."""

    def __post_init__(self) -> None:
        """Check that the range and the ranks are valid."""
        check_bounds(self)
        if self.steps is not None and (len(self.steps) != 2 or self.steps[0] > self.steps[1]):
            message = (
                f"steps is {list(self.steps)}: give the first and the last step, such as [20, 40]"
            )
            raise ValueError(message)
        if not self.ranks:
            message = "ranks is empty: name at least one, or leave out `profile.steps`"
            raise ValueError(message)

    def why_never(self, num_steps: int) -> str | None:
        """Return why no step is recorded, although some are wanted; else None."""
        if self.steps is None or self.steps[0] < num_steps:
            return None
        return (
            f"profile.steps begins at step {self.steps[0]}, and the training has {num_steps}, "
            "counted from 0: name earlier ones"
        )
