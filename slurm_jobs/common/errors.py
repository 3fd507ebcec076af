"""The one tree of errors, and the exit code that each branch means.

Exit codes: 0 fine, 1 the run failed, 2 the user's input is wrong, 3 the
scheduler could not be asked or a file not be read or written: whatever the
verb, nothing follows from that for the run. A stage that stopped after saving its state
exits with `STOPPED_EXIT_CODE`, which the supervisor answers with a requeue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_jobs.common.truncation import truncated_lines

STOPPED_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: not an error, run me again."""

SUPERSEDED_EXIT_CODE = 79
"""A job whose intent was superseded: it did no work, and its children must not start."""

NO_RETRY_EXIT_CODE = 78
"""EX_CONFIG of sysexits.h: trying again cannot help (a GPU job without a GPU)."""


class SlurmJobsError(Exception):
    """Base of every error that slurm-jobs raises on purpose; no line of its text is unbounded."""

    exit_code = 1

    def __str__(self) -> str:
        return truncated_lines(super().__str__())


class InputError(SlurmJobsError, ValueError):
    """The user's input is wrong; the message names file, line and remedy."""

    exit_code = 2


class PathExpansionError(InputError):
    """A path names a user or variable that does not exist here."""


class FileError(SlurmJobsError):
    """A file could not be read or written; that says nothing of how the run is."""

    exit_code = 3


class DamagedFileError(FileError, ValueError):
    """A file of ours does not hold what was written."""


class RunFailedError(SlurmJobsError):
    """A run, or something that it needs, failed."""

    exit_code = 1


class SchedulerError(SlurmJobsError):
    """The scheduler could not be asked, or refused."""

    exit_code = 3


class SubmissionUnknownError(SchedulerError):
    """A job was handed in, and whether it was taken is not known: it must be looked up."""


class StageError(SlurmJobsError):
    """A stage failed in a way that another attempt may mend."""


class StageConfigError(StageError, ValueError):
    """A stage failed in a way that no other attempt can mend: it is not retried."""

    exit_code = NO_RETRY_EXIT_CODE


class StageStoppedError(SlurmJobsError):
    """A stage was asked to stop, saved its state, and wants to be run again."""

    exit_code = STOPPED_EXIT_CODE


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing wrong in a file of the user's, at a place that an editor can jump to."""

    file: str
    line: int
    """Counted from 1; 0 where the problem has no line (a value from `--set`)."""
    column: int
    """Counted from 1."""
    message: str
    """What is wrong, what was found, what is allowed, and the nearest known word."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", truncated_lines(self.message))

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class SpecError(InputError):
    """All problems of a spec, found in one pass."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for the nearest known word, or an empty text."""
    import difflib

    near = difflib.get_close_matches(word[:100], sorted(known), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""
