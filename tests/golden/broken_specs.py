"""Specs that `slurm-jobs check` refuses or comments on, with what it says of each.

`broken_specs.yaml` holds a list of cases. The keys `name`, `files` (texts by name, of which
`spec.yaml` is checked; a name that ends in `/` is an empty folder) and `set` (words for `--set`)
are written by hand. `exit_code`, `stdout` and `stderr` are written by
`python -m tests.golden.regenerate`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.golden.command import GOLDEN, run

FILE = GOLDEN / "broken_specs.yaml"
_OUTPUTS = ("exit_code", "stdout", "stderr")
_HEAD = """\
# Specs that `slurm-jobs check` refuses or comments on, with what it says of each.
# tests/golden/broken_specs.py describes the keys. `python -m tests.golden.regenerate` renews
# `exit_code`, `stdout` and `stderr`.
"""


def read_cases() -> list[dict[str, Any]]:
    """Return the stored cases."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    cases: list[dict[str, Any]] = yaml.load(FILE.read_text(encoding="utf-8"), loader)
    return cases


def checked(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write the case's files into the new `folder`; return the case with what `check` says now."""
    folder.mkdir()
    for name, content in case["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    settings = [word for setting in case.get("set", ()) for word in ("--set", setting)]
    output = run(folder, "check", "spec.yaml", *settings)
    os.chdir(folder.parent)
    shutil.rmtree(folder)  # hundreds of them would slow pytest down when it removes old folders
    inputs = {key: value for key, value in case.items() if key not in _OUTPUTS}
    outputs = {key: getattr(output, key) for key in _OUTPUTS}
    return inputs | {key: value for key, value in outputs.items() if value != ""}


def as_text(cases: list[dict[str, Any]]) -> str:
    """Return the text of `broken_specs.yaml`."""
    body = yaml.dump(cases, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return _HEAD + body


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _block_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block_text)
