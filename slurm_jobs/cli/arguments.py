"""Arguments and formatting that several commands share."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import InputError, PathExpansionError, Problem
from slurm_jobs.common.files import dump_json
from slurm_jobs.common.path_expansion import expand_typed
from slurm_jobs.common.steering import plain_json


def path_text(text: str) -> str:
    """Return a path as typed, with `~` and variables that the shell has left, for argparse."""
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


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def check_place(option: str, path: Path) -> None:
    """Refuse a file that cannot be written, before the work for it starts.

    Args:
        option: Name of the option.
        path: Its value.

    Raises:
        InputError: its folder is not there or refuses new files, or it is a folder itself.
    """
    folder = path.absolute().parent
    if path.is_dir():
        message = f"{option} {path}: this is a folder; name a file"
    elif not folder.is_dir():
        message = f"{option} {path}: there is no folder {folder}; make it, or name another file"
    elif not os.access(folder, os.W_OK | os.X_OK):
        message = f"{option} {path}: you cannot write in {folder}; name another file"
    else:
        return
    raise InputError(message)


def check_new(option: str, path: Path, spec: Path) -> None:
    """Refuse a file that exists, before the work for it starts.

    Args:
        option: Name of the option.
        path: Its value.
        spec: Argument SPEC, which may be another thing.

    Raises:
        InputError: it exists, or can never be written: see `check_place`.
    """
    check_place(option, path)
    if spec.exists() and path.exists() and path.samefile(spec):
        message = (
            f"{option} {path}: this is the spec itself, which is not replaced; name a new file"
        )
    elif os.path.lexists(path):
        message = f"{option} {path}: this file is there already; name a new one, or move it away"
    else:
        return
    raise InputError(message)


def given_run(target: str, of_spec: Mapping[str, Any], anew: str) -> Path | None:
    """Return the run whose result is printed again; None if a spec was given.

    Args:
        target: A spec's file, or what `find_run` takes.
        of_spec: Values of options that need a spec, by name; false if not given.
        anew: Verb for the message: what naming the spec's file does.

    Raises:
        InputError: there is no such run, or an option for a spec was given.
    """
    from slurm_jobs.run.find import SPEC_SUFFIXES, find_run

    path = Path(target)
    if path.suffix in SPEC_SUFFIXES or path.is_file():
        return None
    if wrong := [name for name, value in of_spec.items() if value]:
        message = (
            f"{wrong[0]} is for a spec, and {target} is a run, whose result is printed again; "
            f"name the spec's file to {anew} again"
        )
        raise InputError(message)
    return find_run(target)


def whole(text: str) -> int:
    """Parse a whole number, 0 included, for argparse."""
    if not text.isdecimal():
        message = f"{text} is not a whole number of 0 or more"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number above 0, for argparse."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        message = f"{text} is not a whole number above 0"
        raise argparse.ArgumentTypeError(message)
    return number


def positive_up_to(most: int) -> Callable[[str], int]:
    """Return a parser like `positive` with a maximum."""

    def parse(text: str) -> int:
        number = positive(text)
        if number > most:
            message = f"{text} is more than {most:,}"
            raise argparse.ArgumentTypeError(message)
        return number

    return parse


def print_json(value: object) -> None:
    """Print a result for programs."""
    print(plain_json(dump_json(value)), end="")


def number_text(number: int, word: str) -> str:
    """Return `no shards`, `1 shard`, `1,234 shards`."""
    return f"{f'{number:,}' if number else 'no'} {word}{'' if number == 1 else 's'}"


def duration_text(seconds: float) -> str:
    """Return `47 s`, `3 min 20 s`, `2 h 05 min`, `3 d 02 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def age_text(unix_s: float, now_unix_s: float) -> str:
    """Return how long ago a time was."""
    return f"{duration_text(max(0.0, now_unix_s - unix_s))} ago"


def clock_text(unix_s: float, now_unix_s: float) -> str:
    """Return a time in this machine's zone, with the date if it is not today: `14:32`."""
    moment, now = time.localtime(unix_s), time.localtime(now_unix_s)
    is_today = moment[:3] == now[:3]
    return time.strftime("%H:%M" if is_today else "%a %d %b %H:%M", moment)


def command_text(*words: str) -> str:
    """Return a command to type here, with words quoted for the shell."""
    return f"{program_text()} {shlex.join(words)}"


def program_text() -> str:
    """Return how to call this program here: by name if PATH has it, otherwise as it was called."""
    called = Path(sys.argv[0])
    if called.name != "slurm-jobs":
        return f"{shlex.quote(sys.executable)} -m slurm_jobs"
    found = shutil.which("slurm-jobs")
    if found is not None and Path(found).resolve() == called.resolve():
        return "slurm-jobs"
    return shlex.quote(shown_path(called.absolute()))


def shown_path(path: Path) -> str:
    """Return a path relative to the working folder if that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def short_note(note: str) -> str:
    """Shorten the path in a note that may begin with a place in a file."""
    return note.removeprefix(f"{Path.cwd()}/")


def with_short_path(problem: Problem) -> Problem:
    """Return a problem whose file is named as the user would type it."""
    is_file = problem.file.startswith("/")
    return dataclasses.replace(problem, file=shown_path(Path(problem.file))) if is_file else problem
