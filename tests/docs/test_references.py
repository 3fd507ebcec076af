"""The pages that are made from the code say what the code says today."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from slurm_jobs import api
from slurm_jobs.cli.command_parser import VERBS
from slurm_jobs.formats.timings.step_records import STEP_FIELDS

sys.path.insert(0, str(Path(__file__).parents[2] / "docs/tools"))  # scripts, no package

import reference_commands
import source_docs

ROOT = Path(__file__).parents[2]


def _page(name: str) -> str:
    return (ROOT / "docs/reference" / name).read_text(encoding="utf-8")


def test_the_made_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/tools/make_reference.py"), "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_a_verb_is_on_the_page(verb: str) -> None:
    text = _page("options.md").partition(f"\n## {verb}\n")[2].partition("\n## ")[0]
    taken = reference_commands.verb_parser(verb).format_usage()
    options = [word.strip("[]") for word in taken.split() if word.startswith("[-")]
    assert [option for option in options if option != "-h" and f"`{option}" not in text] == []


def test_everything_public_of_the_api_is_on_the_page() -> None:
    text = _page("api.md")
    assert [name for name in api.__all__ if f"\n### {name}\n" not in text] == []


def test_every_field_of_a_step_record_has_a_row_with_its_type() -> None:
    text = _page("records.md")
    assert [name for name, _ in STEP_FIELDS if f"\n| `{name}` | `" not in text] == []


def test_a_page_has_the_comment_next_to_a_field_in_the_source() -> None:
    found = {
        f.name: f
        for f in source_docs.fields("slurm_jobs.formats.records.attempt_records", "AttemptRecord")
    }
    meaning = "Number of the attempt, counted from 1 over the whole life of the slice."
    assert found["attempt"].meaning == meaning
    assert (found["gpu"].kind, found["gpu"].default) == ("str", "''")
    said = source_docs.comments("slurm_jobs.formats.timings.step_records")
    assert said["mfu"] == "share of the card's peak, 0 to 1; NaN where the peak is not known"


def _texts_of_python() -> Iterator[tuple[str, str]]:
    """Yield the scripts of the documentation, and the Python blocks of its pages."""
    for script in sorted((ROOT / "docs/tools").glob("*.py")):
        yield script.name, script.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(
            r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
        ):
            with suppress(SyntaxError):  # a piece of a class or of a call
                ast.parse(block)
                yield page.name, block


def test_what_pages_and_their_scripts_import_of_ours_exists() -> None:
    missing = [
        f"{name}: {node.module}.{alias.name}"
        for name, text in _texts_of_python()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").partition(".")[0] in {"slurm_jobs", "pipeline"}
        for alias in node.names
        if not hasattr(importlib.import_module(node.module or ""), alias.name)
        and find_spec(f"{node.module}.{alias.name}") is None
    ]
    assert missing == []
