"""Type the commands of docs/tutorial/first-hour.md on the test cluster; write what they print.

`python docs/tools/make_tutorial.py`, as root on Debian or Ubuntu: starts a Slurm of its own
(tests/cluster), takes an empty home folder and the wheel of this checkout, and types each `$` line
of the blocks that follow `<!-- transcript -->` (or `<!-- transcript: 40 -->`: so many lines of the
output are kept, half from its beginning, half from its end). Nothing is changed in what is printed
but the home's path, which becomes `/home/you`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tools.make_readme_output import machine, replace_block  # noqa: E402
from tests.cluster.cluster import Cluster  # noqa: E402
from tests.cluster.packages import SEARCH_PATH  # noqa: E402

PAGE = ROOT / "docs/tutorial/first-hour.md"
FOLDER = Path("/var/tmp/slurm-jobs-tutorial")  # noqa: S108 - short, for sockets; ours alone
KEPT_LINES = 16
_BLOCK = re.compile(
    r"(<!-- transcript(?:: (\d+))? -->\n```console\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL
)


class Shell:
    """One bash of the user's: what is exported and activated stays for the next command."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        python_dir = Path(sys.executable).resolve().parent
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        own = {"HOME": str(home), "PATH": f"{python_dir}:{SEARCH_PATH}", "COLUMNS": "80"}
        self._process = subprocess.Popen(
            cluster.as_user(["bash", "--noprofile", "--norc"]),
            cwd=home,
            env={**cluster.env(), **pip, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            umask=0o022,
        )

    def type(self, command: str) -> str:
        """What a command prints, on standard output and standard error."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        mark = f"done-{uuid.uuid4()}"
        stdin.write(f"{command} </dev/null\necho\necho {mark}\n")
        stdin.flush()
        lines: list[str] = []
        while (line := stdout.readline()).strip() != mark:
            if not line:
                message = f"the shell ended: {command}"
                raise RuntimeError(message)
            lines.append(line.rstrip())
        return "\n".join(lines).strip("\n")

    def end(self) -> None:
        """Close it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def shortened(text: str, most: int) -> list[str]:
    """The lines, or the first and last of them."""
    lines = text.splitlines()
    if len(lines) <= most:
        return lines
    return [*lines[: most // 2], "[...]", *lines[-(most // 2) :]]


def filled(page: str, shell: Shell, home: Path) -> str:
    """The page with each command's output below it."""

    def run(match: re.Match[str]) -> str:
        most = int(match[2] or KEPT_LINES)
        lines: list[str] = []
        for command in [line for line in match[3].splitlines() if line.startswith("$ ")]:
            print(command, flush=True)
            printed = shell.type(command[2:]).replace(str(home), "/home/you")
            lines += [command, *shortened(printed, most)]
        return "".join([match[1], *(f"{line}\n" for line in lines), match[4]])

    return _BLOCK.sub(run, page)


def main() -> None:
    """Write the page."""
    cluster = Cluster.up(FOLDER)
    try:
        home = cluster.work_dir("you")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "wheel", "--no-deps", "-w", FOLDER / "dist", ROOT], check=True)
        for wheel in (FOLDER / "dist").glob("*.whl"):
            shutil.copy(wheel, home)
        (home / "envs").mkdir()  # the training's environment of a group: this checkout's own
        (home / "envs" / "train").symlink_to(Path(sys.executable).parent.parent)
        shell = Shell(cluster, home)
        page = filled(PAGE.read_text(), shell, home)
        shell.end()
    finally:
        cluster.down()
    PAGE.write_text(replace_block(page, "machine", f"(On {machine()}; all nodes are one machine.)"))


if __name__ == "__main__":
    main()
