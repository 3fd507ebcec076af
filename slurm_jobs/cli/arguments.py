"""Arguments that several verbs share, and parsers of their values."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from pathlib import Path

from slurm_jobs.base.errors import InputError, PathExpansionError
from slurm_jobs.formats.expand import expand_typed


def path_text(text: str) -> str:
    """Expand `~` and variables that the shell has left in a typed path, for argparse."""
    try:
        return expand_typed(text)
    except PathExpansionError as error:
        message = f"{text}: {error}"
        raise argparse.ArgumentTypeError(message) from error


def path_of(text: str) -> Path:
    """Return the same as a Path, for argparse."""
    return Path(path_text(text))


def add_spec(parser: argparse.ArgumentParser) -> None:
    """Add SPEC, --set and --limit."""
    parser.add_argument("spec", metavar="SPEC", type=path_of, help="the YAML file")
    add_overrides(parser)
    parser.add_argument(
        "--limit",
        metavar="N",
        type=positive,
        help="run the whole chain on the first N samples of the manifest",
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add --set."""
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a value of the spec, such as stages.train.resources.nodes=1; may be repeated",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add RUN."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="default: the newest run")


def check_place(option: str, path: Path) -> None:
    """Refuse a value of an option, a file that cannot be written, before the work for it starts.

    Raises:
        InputError: its folder does not exist or refuses new files, or it is a folder, a link or a
            device itself.
    """
    folder = path.absolute().parent
    problem = ""
    if path.is_symlink():
        problem = "this is a link, which a file would replace"
        target = Path(os.path.realpath(path))
        if target.is_file():
            problem += f"; name {target} itself"
    elif path.is_dir():
        problem = "this is a folder; name a file"
    elif path.exists() and not path.is_file():
        problem = "this is a device or a pipe, which a file would replace; name a file"
    elif not folder.is_dir():
        problem = f"there is no folder {folder}; make it, or name another file"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = f"you cannot write in {folder}; name another file"
    if problem:
        message = f"{option} {path}: {problem}"
        raise InputError(message)


def check_new(option: str, path: Path, spec: Path) -> None:
    """Refuse a value of an option, a file that exists or is the spec; see also `check_place`.

    Raises:
        InputError: it exists, or can never be written.
    """
    problem = ""
    if spec.exists() and path.exists() and path.samefile(spec):
        problem = "this is the spec itself, which is not replaced; name a new file"
    elif path.is_file():
        problem = "this file exists already; name a new one, or move it away"
    if problem:
        message = f"{option} {path}: {problem}"
        raise InputError(message)
    check_place(option, path)


def whole(text: str) -> int:
    """Parse a whole number, 0 included, for argparse."""
    if not text.isdecimal():
        message = f"{text} is not a whole number of 0 or more"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def positive(text: str, *, most: int | None = None) -> int:
    """Parse a whole number above 0, for argparse."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        message = f"{text} is not a whole number above 0"
        raise argparse.ArgumentTypeError(message)
    if most is not None and number > most:
        message = f"{text} is more than {most:,}"
        raise argparse.ArgumentTypeError(message)
    return number


def positive_up_to(most: int) -> Callable[[str], int]:
    """Return a parser like `positive` with a maximum."""
    return functools.partial(positive, most=most)
