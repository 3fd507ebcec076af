"""Type the commands of the studies among the recipes, and put what they print into their pages.

`python docs/tools/make_studies.py [kvasir-cot] [tinyvlm] [profiling]`: each page of docs/recipes/
that is named, or all three. Runs are small, on this machine's cores; nothing else should use it
meanwhile.
A folder of its own gets the recipes of configs/, and one shell there types each `$` line of the
blocks behind `<!-- study -->` (or `<!-- study: 40 -->`: so many lines of an output are kept, half
from its beginning, half from its end). Nothing is changed in what is printed but the folder's path,
which becomes `/home/you/slurm-jobs`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tools.make_readme_output import machine, replace_block  # noqa: E402
from docs.tools.make_tutorial import shortened  # noqa: E402
from docs.tools.study_tables import prefetch_verdicts  # noqa: E402

PAGES = ("kvasir-cot", "tinyvlm", "profiling")
COMPUTED = {"tinyvlm": {"verdicts": prefetch_verdicts}}
"""By page and by the marks around them, what is computed and not run."""
KEPT_LINES = 30
PACKAGES = ("torch", "transformers", "accelerate")
_BLOCK = re.compile(
    r"(<!-- study(?:: (\d+))? -->\n```console\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL
)
_MAIN = "import sys\nfrom slurm_jobs.__main__ import main\nsys.exit(main())\n"


def commands_of(block: str) -> list[str]:
    """What a block types: its lines after `$ `, with those that continue them."""
    commands: list[str] = []
    continues = False
    for line in block.splitlines():
        if continues:
            commands[-1] += f"\n{line}"
        elif line.startswith("$ "):
            commands.append(line)
        continues = (continues or line.startswith("$ ")) and line.endswith("\\")
    return commands


def filled(page: str, type_in: Callable[[str], str]) -> str:
    """The page with each command's output below it."""

    def run(match: re.Match[str]) -> str:
        most = int(match[2] or KEPT_LINES)
        lines: list[str] = []
        for command in commands_of(match[3]):
            print(command, flush=True)
            lines += [command, *shortened(type_in(command[2:]), most)]
        return "".join([match[1], *(f"{line.rstrip()}\n" for line in lines), match[4]])

    return _BLOCK.sub(run, page)


def write_folder(folder: Path) -> None:
    """The recipes, and the commands `slurm-jobs` and `python` of this checkout."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "configs", folder / "configs", ignore=ignored)
    (folder / "bin").mkdir()
    texts = {
        "slurm-jobs": f"#!{sys.executable} -P\n{_MAIN}",
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',  # a link would leave its packages
    }
    for name, text in texts.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)


def shell_in(folder: Path) -> subprocess.Popen[str]:
    """A bash: what one command sets stays for the next."""
    own = {"PYTHONPATH": str(ROOT), "PATH": f"{folder}/bin:{os.environ['PATH']}", "COLUMNS": "80"}
    return subprocess.Popen(
        ["bash", "--noprofile", "--norc"],
        cwd=folder,
        env={**os.environ, **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def type_into(shell: subprocess.Popen[str], command: str) -> str:
    """What a command prints, on standard output and standard error.

    Raises:
        RuntimeError: it failed; a page shows none that does.
    """
    assert shell.stdin is not None
    assert shell.stdout is not None
    mark = f"done-{uuid.uuid4()}"
    shell.stdin.write(f"{{ {command}\n}} </dev/null\ncode=$?; echo; echo {mark} $code\n")
    shell.stdin.flush()
    lines: list[str] = []
    while line := shell.stdout.readline():
        if line.startswith(mark):
            break
        lines.append(line.rstrip())
    printed = "\n".join(lines).strip("\n")
    if line != f"{mark} 0\n":
        message = f"{command}\n{printed}\nended with exit code {line.removeprefix(mark).strip()}"
        raise RuntimeError(message)
    return printed


def told_machine() -> str:
    """What the commands ran on, with which versions, and when."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return f"(On {machine()}, {packages}.)"


def make(name: str) -> None:
    """Write one page."""
    page = ROOT / "docs" / "recipes" / f"{name}.md"
    with tempfile.TemporaryDirectory(prefix="slurm-jobs-study-") as temporary:
        folder = Path(temporary)
        write_folder(folder)
        shell = shell_in(folder)

        def type_in(command: str) -> str:
            return type_into(shell, command).replace(temporary, "/home/you/slurm-jobs")

        try:
            text = filled(page.read_text(), type_in)
        finally:
            shell.kill()
            shell.wait()
    for mark, table in COMPUTED.get(name, {}).items():
        text = replace_block(text, mark, table())
    page.write_text(replace_block(text, "machine", told_machine()))


def main() -> None:
    """Write the pages that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=", ".join(PAGES))
    names = parser.parse_args().pages or PAGES
    if unknown := set(names) - set(PAGES):
        parser.error(f"no such page: {', '.join(sorted(unknown))}")
    for name in names:
        make(name)


if __name__ == "__main__":
    main()
