"""A question on the terminal before something is ended or removed."""

from __future__ import annotations

import sys

from slurm_jobs.base.errors import InputError


def confirm(question: str, *, without_terminal: str) -> bool:
    """Ask, and return whether the answer is yes; the end of the input (Ctrl-D) is a no.

    Args:
        question: such as `cancel this run?`.
        without_terminal: start of the error message if there is no terminal to ask.

    Raises:
        InputError: there is no terminal.
    """
    if not sys.stdin.isatty():
        message = f"{without_terminal}, but there is no terminal; add --yes"
        raise InputError(message)
    # Not on standard output, which may be a file, or JSON that a program reads.
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in {"y", "yes"}
