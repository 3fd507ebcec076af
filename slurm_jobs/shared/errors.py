"""Errors of slurm-jobs in one tree, each branch with its exit code, and text that is safe to print.

Exit codes: 0 success; 1 the run failed; 2 the user's input is wrong; 3 the scheduler could not be
reached, or a file not be read or written, which proves nothing about the run. A stage that stopped
after saving its state exits with `STOPPED_EXIT_CODE`, and the supervisor requeues the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

# Limit on text of foreign origin in messages, records and lists.
#
# A row of a manifest, an exception or a cell of a table may hold a whole picture. The text that is
# recorded or printed keeps its beginning, which identifies it, and its end, where a message has
# its remedy.


MAX_LINE_CHARS = 2000
"""Longest line of foreign text in a message, a record or a list of rejects."""
MAX_LINES = 1000
"""Most lines of one message."""
_HEAD_SHARE = 0.75
_LONGEST_WORD_CHARS = 256
"""Length up to which a word at the cut is left out: half of a secret is not recognised as one."""


def truncated(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Return the text, its middle replaced by the number of characters left out if it is longer.

    The result has at most `max_chars` characters, and is returned unchanged by a second call.
    """
    if len(text) <= max_chars:
        return text
    room = max_chars - len(_gap(len(text)))
    num_head = int(room * _HEAD_SHARE)
    head, tail = _to_blank(text[:num_head]), text[len(text) - (room - num_head) :]
    tail = _to_blank(tail[::-1])[::-1]
    return f"{head}{_gap(len(text) - len(head) - len(tail))}{tail}"


def truncated_lines(text: str) -> str:
    """Return the text with each line truncated, and no more than `MAX_LINES` lines."""
    if len(text) <= MAX_LINE_CHARS:
        return text
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        half = MAX_LINES // 2
        left_out = f"... ({len(lines) - 2 * half:,} lines left out) ..."
        lines = [*lines[:half], left_out, *lines[len(lines) - half :]]
    return "\n".join(map(truncated, lines))


def _gap(num_chars: int) -> str:
    return f" ... ({num_chars:,} characters left out) ... "


def _to_blank(text: str) -> str:
    """Remove the word at the end, unless it is a very long one."""
    if len(text) <= _LONGEST_WORD_CHARS:
        return text
    last = max(text.rfind(blank, len(text) - _LONGEST_WORD_CHARS) for blank in " \t\n")
    return text if last < 0 else text[:last]


def truncated_values(value: Any) -> Any:
    """Return JSON values with each text, and each name of a mapping, truncated line by line."""
    if isinstance(value, str):
        return truncated_lines(value)
    if isinstance(value, Mapping):
        return {truncated(str(name)): truncated_values(entry) for name, entry in value.items()}
    return [truncated_values(entry) for entry in value] if isinstance(value, list) else value


# Characters that control a terminal, are invisible, or change the writing direction.
#
# Names, reasons and values may come from a manifest, a colleague's files or a program's output.
# When printed, or written to a page, each of them is replaced by its code (`\x1b`,
# `\u202e`).


STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]"
)
"""All control characters except tab and newline, invisible characters, and direction marks."""


def plain(text: str) -> str:
    r"""Return the text with each character of `STEERING` as its code, `\x1b`."""
    return STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


def escaped_json(text: str) -> str:
    r"""Return JSON with these characters in JSON's form, `\u001b`: its value is the same."""
    return STEERING.sub(lambda match: json.dumps(match[0])[1:-1], text)


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
    """Failure of a stage that another attempt may fix."""


class StageConfigError(StageError, ValueError):
    """Failure of a stage that no other attempt can fix: it is not retried."""

    exit_code = NO_RETRY_EXIT_CODE


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


class Problem(_PlacedText):
    """Problem in a user's file, at a place that an editor can jump to."""

    __slots__ = ()

    def __new__(cls, file: str, line: int, column: int, message: str) -> Self:
        """Truncate the message."""
        return super().__new__(cls, file, line, column, truncated_lines(message))

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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for the nearest known word, or an empty text."""
    import difflib

    near = difflib.get_close_matches(word[:100], sorted(known), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""
