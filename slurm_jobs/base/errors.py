"""Errors of slurm-jobs in one tree, each branch with its exit code.

Exit codes: 0 success; 1 the run failed; 2 the user's input is wrong; 3 the scheduler could not be
reached, or a file not be read or written, which proves nothing about the run. A stage that stopped
after saving its state exits with `STOPPED_EXIT_CODE`, and the supervisor requeues the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from slurm_jobs.base.texts.truncation import truncated_lines

if TYPE_CHECKING:
    from typing_extensions import Self

    from slurm_jobs.base.failure_kinds import FailureKind


STOPPED_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: no error, run this job again."""

SUPERSEDED_EXIT_CODE = 79
"""Exit code of a superseded job: it did no work, and its children must not start."""

NO_RETRY_EXIT_CODE = 78
"""EX_CONFIG of sysexits.h: a retry cannot help (a GPU job without a GPU)."""


class SlurmJobsError(Exception):
    """Base of every error that slurm-jobs raises on purpose; every line of its text is bounded."""

    exit_code = 1

    def __str__(self) -> str:
        return truncated_lines(super().__str__())


class InputError(SlurmJobsError, ValueError):
    """Error in the user's input; the message names file, line and remedy."""

    exit_code = 2


class PathExpansionError(InputError):
    """Path that names a user or variable which does not exist here."""


class FileError(SlurmJobsError):
    """File that could not be read or written; this proves nothing about the run."""

    exit_code = 3


class DamagedFileError(FileError, ValueError):
    """File of ours with unexpected content."""


class RunFailedError(SlurmJobsError):
    """Failure of a run, or of something that it needs."""

    exit_code = 1


class SchedulerError(SlurmJobsError):
    """Scheduler that could not be reached, or that refused a request."""

    exit_code = 3


class SubmissionUnknownError(SchedulerError):
    """Job that may or may not have been submitted: it must be looked up."""


class StageError(SlurmJobsError):
    """Failure of a stage that another attempt may fix.

    Args:
        args: text for people, as of any exception.
        resumes: arguments of `slurm-jobs resume RUN` that avoid the failure, one sequence per way,
            the best first. `STAGE` is the failed stage, `FOLDER` a value that only the user knows.
    """

    kind: ClassVar[FailureKind] = "exception"
    resumes: Iterable[Sequence[str]] = ()

    def __init__(self, *args: object, resumes: Iterable[Sequence[str]] = ()) -> None:
        super().__init__(*args)
        self.resumes = resumes


class StageConfigError(StageError, ValueError):
    """Failure of a stage that no other attempt can fix: it is not retried."""

    exit_code = NO_RETRY_EXIT_CODE
    kind: ClassVar[FailureKind] = "wrong config"


class StageDataError(StageConfigError):
    """File, or rows of it, that a stage cannot use as they are."""

    kind: ClassVar[FailureKind] = "wrong data"


class StageCodeError(StageConfigError):
    """Function of a stage that is missing, or whose result is none."""

    kind: ClassVar[FailureKind] = "wrong code"


class DeviceMemoryError(StageConfigError):
    """Work that does not fit into a GPU's memory; a retry would fail the same way."""

    kind: ClassVar[FailureKind] = "device memory"


class FullDiskError(StageConfigError):
    """Disk that has no room for what a stage writes; a retry would fail the same way."""

    kind: ClassVar[FailureKind] = "full disk"


class PackingLeakError(StageConfigError):
    """Sample that is not computed as it is alone when it shares a row with others."""

    kind: ClassVar[FailureKind] = "packing leak"


class MissingPackageError(StageConfigError):
    """Package that the Python of a stage lacks."""

    kind: ClassVar[FailureKind] = "missing package"


class StageStoppedError(SlurmJobsError):
    """Stage that saved its state after a stop request, and must run again."""

    exit_code = STOPPED_EXIT_CODE


# A named tuple: importing `dataclasses` takes a fifth of `slurm-jobs --help`.
class _PlacedText(NamedTuple):
    file: str
    line: int
    """Line, counted from 1; 0 if the problem has no line (a value from `--set`)."""
    column: int
    """Column, counted from 1."""
    message: str
    """Message: the problem, the value, the allowed values, and the nearest known word."""
    path: tuple[str | int, ...] | None = None
    """Keys from the top of the file down to the value; None if the problem is not with one."""


class Problem(_PlacedText):
    """Problem in a user's file, at a place that an editor can jump to."""

    __slots__ = ()

    def __new__(
        cls,
        file: str,
        line: int,
        column: int,
        message: str,
        path: tuple[str | int, ...] | None = None,
    ) -> Self:
        """Truncate the message."""
        return super().__new__(cls, file, line, column, truncated_lines(message), path)

    def changed(self, **changes: Any) -> Problem:
        """Return the problem with other values, its message truncated again."""
        return Problem(**{**self._asdict(), **changes})

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class SpecError(InputError):
    """Errors of a spec, all found in one pass."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
