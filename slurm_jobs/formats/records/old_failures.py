"""Kind and resumes of failures that were recorded by versions without them, from their texts.

Runs of these versions are still shown and resumed. Nothing else may decide by a text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from slurm_jobs.base.failure_kinds import FailureKind

_PLACE = r"(?:rank \d+ on \S+: )?"
_KINDS: Mapping[FailureKind, re.Pattern[str]] = {
    "hang": re.compile(r"no progress for "),
    "gone": re.compile(r"rank \d+ on \S+ ended without a record"),
    "killed": re.compile(r"rank \d+ on \S+ (?:was killed by|did not end within) "),
    "missing command": re.compile(r"rank \d+ on \S+ ended with exit code 12[67] \(in a shell: "),
    "exit code": re.compile(r"rank \d+ on \S+ ended with exit code "),
    "missing package": re.compile(rf"{_PLACE}\w+: `run: \w+`: No module named "),
    "wrong code": re.compile(
        rf"{_PLACE}(?:\w+: `run: [^`]*:|(?:SyntaxError|IndentationError|TabError|NameError|"
        r"UnboundLocalError|AttributeError|ImportError|ModuleNotFoundError): |"
        r"TypeError: [\w.]+\(\) (?:takes|got|missing) )"
    ),
    "wrong data": re.compile(rf"{_PLACE}StageConfigError: /(?!.*: no such)"),
    "wrong config": re.compile(rf"{_PLACE}StageConfigError: "),
}
_RESUME = re.compile(r"`slurm-jobs resume ([^`]+)`")
_OPEN_VALUE = re.compile(r"[A-Z]+")


def kind_of_text(reason: str, *, retryable: bool) -> FailureKind:
    """Return the kind of a failure whose record has only a text."""
    for kind, pattern in _KINDS.items():
        if pattern.match(reason):
            return kind
    return "exception" if retryable else "wrong config"


def resumes_in_text(reason: str) -> list[list[str]]:
    """Return the options of each `slurm-jobs resume` in a text, but of those left open."""
    ways = []
    for command in _RESUME.findall(reason):
        try:
            _run_dir, *options = shlex.split(command)
        except ValueError:  # cut off
            continue
        keys = [option.partition("=") for option in options if "=" in option]
        is_open = any(
            key.endswith(".KEY") or (value != "FOLDER" and _OPEN_VALUE.fullmatch(value))
            for key, _, value in keys
        )
        if not is_open:
            ways.append(options)
    return ways
