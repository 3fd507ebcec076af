"""`slurm-jobs completion SHELL`: print what makes a shell complete verbs, options, runs and stages.

What is printed is a thin script that calls `slurm-jobs __complete` at each TAB; `complete.py`
answers. Why neither of the kept libraries: argcomplete runs the whole program up to its parser,
whose verbs load what they need (0.3 s and more here), evaluates in the user's shell what it prints,
and knows nothing of runs; shtab writes the options down once, which then are those of yesterday's
version, and cannot look at runs and specs at all. Here options come from the parser of the one
verb that is typed, at each TAB, so they cannot drift; nothing heavy is loaded; and the shell takes
the answer as plain lines, which it quotes itself and never evaluates.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from slurm_jobs.common.own_python import module_command

SHELLS = ("bash", "zsh", "fish")

_LINES = """\
the line that a shell reads at its start:
  ~/.bashrc                    source <(slurm-jobs completion bash)
  ~/.zshrc                     source <(slurm-jobs completion zsh)
  ~/.config/fish/config.fish   slurm-jobs completion fish | source
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.epilog = _LINES
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from slurm_jobs.cli.completion_scripts import script

    print(script(options.shell, _command()), end="")
    return 0


def _command() -> list[str]:
    """How the shell calls this very program, whatever PATH and folder are then.

    A bare `python -m` would load modules from the folder that the user is in at the TAB.
    """
    called = Path(sys.argv[0])
    if called.name != "slurm-jobs":
        return module_command("slurm_jobs")
    found = called if called.exists() else Path(shutil.which("slurm-jobs") or called)
    return [str(found.absolute())]
