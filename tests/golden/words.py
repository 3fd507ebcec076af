"""What `--help` of every verb prints, and what wrong command lines are answered."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.golden.command import GOLDEN, run

HELP = GOLDEN / "help"
COMMAND_LINES = GOLDEN / "command_lines.txt"
PYTHON = "{}.{}".format(*sys.version_info)
STORED_PYTHON = GOLDEN / "help" / "python.txt"
"""The Python whose argparse laid out the stored texts: no two minor versions do it alike."""

_LINES = """
frobnicate
subimt spec.yaml
-x
--verison
check
check nowhere.yaml
check .
check spec.yaml extra
check spec.yaml --sett name=b
check spec.yaml --set
check spec.yaml --set name
check spec.yaml --limit x
check spec.yaml --limit 0
check spec.yaml --limit 3
check nowhere.yaml --json
check spec.yaml --cluster
check local.yaml --cluster
plan
plan nowhere.yaml
plan spec.yaml --explain
plan spec.yaml --explain nothing
plan spec.yaml --no-script
submit
submit nowhere.yaml
submit spec.yaml
submit spec.yaml --json
submit local.yaml --limit 3
submit local.yaml --set stages.b.shell=x
run
run nowhere.yaml
run spec.yaml
runs extra
runs --dir nowhere
status
status nothing
status nowhere.yaml
status local.yaml
status .
status nothing --json
watch
watch nothing
logs
logs nothing
logs nothing a --follow
resume
resume nothing
resume local.yaml --again
resume nothing --json
cancel
cancel nothing
cancel nothing --yes --json
report
report nothing
report nothing --epochs 0
report nothing --epochs many
report nothing --export a.xlsx
report nothing --json
compare
compare a
compare a b
compare a b --json
scaling
scaling a b
tune
tune nowhere.yaml
tune local.yaml
profile
profile nothing
verify
verify nothing
verify . --threads 0
packing
packing nothing
packing nothing --image a.txt
samples
samples nothing
samples . --audit --number x
probe
probe nowhere.yaml
doctor --nodes x
doctor nowhere.yaml
schema extra
schema --kind x
completion
completion tcsh
init there --recipe nothing
init --recipe demo --data x
init --data nowhere --yes
init . --bogus
"""
_SPEC = "name: a\nstages: {a: {shell: make}}\n"
_LOCAL = "name: a\ncluster: local\nstages: {a: {shell: make}}\n"


def help_texts(verbs: list[str], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield file names and texts. Call inside `fixed_surroundings`."""
    folder.mkdir()
    for verb in ["", *verbs]:
        output = run(folder, *filter(None, [verb]), "--help")
        assert (output.exit_code, output.stderr) == (0, "")
        yield f"{verb or 'slurm-jobs'}.txt", output.stdout


def verbs(folder: Path) -> list[str]:
    """Return the verbs that `--help` lists."""
    return re.findall(r"^    ([a-z]+)(?: |$)", run(folder, "--help").stdout, flags=re.MULTILINE)


def command_lines(folder: Path) -> str:
    """Return what each wrong command line is answered. Call inside `fixed_surroundings`."""
    folder.mkdir()
    (folder / "spec.yaml").write_text(_SPEC)
    (folder / "local.yaml").write_text(_LOCAL)
    texts = []
    for line in _LINES.strip().splitlines():
        output = run(folder, *shlex.split(line))
        texts.append(
            f"$ slurm-jobs {line}\n{output.stdout}{output.stderr}exit code {output.exit_code}\n"
        )
    return "\n".join(texts)
