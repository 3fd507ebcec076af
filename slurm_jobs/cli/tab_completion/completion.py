"""`slurm-jobs completion SHELL`: the script of argcomplete, and the answers to it at each TAB.

argcomplete asks the parser of the verb on the line, so options cannot become outdated, and a few
lines of Python find runs and spec files. A TAB costs 0.11 s of CPU on a slow core where
`python -c pass` costs 0.015 s. shtab costs nothing at a TAB. But its script lists the options once,
needs all verbs loaded to print it (0.21 s at each start of a shell), and can find runs only with
code of our own for each shell. The script runs the `slurm-jobs` that is on the line: where there is
none, a TAB completes nothing and prints nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from slurm_jobs.cli.arguments import path_of, path_text

SHELLS = ("bash", "zsh", "fish")
MAX_WAIT_S = 2
"""A file system that hangs must not hang the terminal."""
MAX_RUNS = 50
_MAX_ORIGINS = 10
"""Newest runs whose records are read in search of one from the working folder."""
_MAX_ENTRIES = 5000
"""Maximum for a folder: more would take too long to read."""

_LINES = """\
the line that a shell reads at its start:
  ~/.bashrc                    source <(slurm-jobs completion bash)
  ~/.zshrc                     source <(slurm-jobs completion zsh)
  ~/.config/fish/config.fish   slurm-jobs completion fish | source
"""
_ZSH_START = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"
"""The script of argcomplete needs it."""


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add SHELL."""
    parser.epilog = _LINES
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run_completion(options: argparse.Namespace) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    script = shellcode(
        ["slurm-jobs"], shell=options.shell, complete_arguments=["-o", "nosort"]
    )  # nosort: the newest runs come first
    print((_ZSH_START if options.shell == "zsh" else "") + script, end="")
    return 0


def complete(
    build_parser: Callable[[Sequence[str]], argparse.ArgumentParser], verbs: Iterable[str]
) -> None:
    """Write what can be at the cursor to the file descriptor of argcomplete, and end the process.

    The environment has the line that is typed: `COMP_LINE`, up to `COMP_POINT`.
    """
    from argcomplete.finders import ExclusiveCompletionFinder

    signal.alarm(MAX_WAIT_S)
    words = os.environ["COMP_LINE"].split()
    verb = next((word for word in words if word in verbs), None)
    parser = build_parser([verb] if verb else [])
    values: Any = complete_value  # argcomplete calls any function, but its hint names a class
    finder = ExclusiveCompletionFinder()
    finder(parser, always_complete_options=False, default_completer=values)


def complete_value(
    prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: object
) -> Iterator[str]:
    """Yield values of an argument without choices: runs, paths, stages and keys; or nothing."""
    metavar = str(action.metavar)
    if action.dest in ("stage", "again", "overrides"):
        from slurm_jobs.cli.tab_completion.spec_completion import set_keys, stage_names

        target = _target_on(parsed_args)
        words = set_keys(prefix, target) if action.dest == "overrides" else stage_names(target)
        yield from (word for word in words if word.startswith(prefix))
    if "RUN" in metavar or metavar in ("A", "B"):
        others, comma, last = prefix.rpartition(",")  # `compare` takes several
        yield from (f"{others}{comma}{name}" for name in run_names(last))
    if "RUN" in metavar or "SPEC" in metavar or metavar in ("A", "B"):
        yield from path_names(prefix, (".yaml", ".yml"))
    elif action.type in (path_of, path_text):
        yield from path_names(prefix, ("",))


def _target_on(words: argparse.Namespace) -> str | None:
    """Return the spec or run on the line, the newest run where the verb takes that; else None."""
    for name in ("spec", "target", "what", "run", "first"):
        if getattr(words, name, None) is not None:
            return str(getattr(words, name)).partition(",")[0]  # `compare` takes several
    from slurm_jobs.commands.run_search.spec_origin import was_submitted_from

    newest = _runs_named("") if hasattr(words, "run") else []
    here = (run for run in newest[:_MAX_ORIGINS] if was_submitted_from(run, Path.cwd()))
    run = next(here, newest[0] if newest else None)
    return None if run is None else str(run)


def run_names(prefix: str) -> list[str]:
    """Return the ids of the newest runs that begin with `prefix`, the newest first."""
    return [run.name for run in _runs_named(prefix)]


def _runs_named(prefix: str) -> list[Path]:
    from slurm_jobs.commands.run_search.remembered_dirs import searched_dirs

    runs: list[Path] = []
    for folder in searched_dirs(limit_s=MAX_WAIT_S / 4).there:
        names = [name for name, is_dir in _entries(folder) if is_dir and name.startswith(prefix)]
        runs += [folder / name for name in names]
    runs.sort(key=lambda run: run.name.split("-")[-3:], reverse=True)  # NAME-20261121-080611-5b9e
    return [run for run in runs[:MAX_RUNS] if (run / "run.json").is_file()]


def path_names(prefix: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files with one of `suffixes`, and the folders, whose paths begin with `prefix`."""
    above, slash, start = prefix.rpartition("/")
    return [
        f"{above}{slash}{name}{'/' if is_dir else ''}"
        for name, is_dir in sorted(_entries(Path(os.path.expanduser(above + slash))))  # noqa: PTH111 - never raises
        if name.startswith(start) and (is_dir or name.endswith(suffixes))
    ]


def _entries(folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield the names in a folder, each with whether it is a folder.

    Hidden names, names that read as options, and names that could control a terminal are left out.
    """
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                if entry.name.isprintable() and entry.name[0] not in "-.":
                    yield entry.name, entry.is_dir()
    except OSError:
        return
