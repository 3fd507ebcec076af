"""What README.md and docs/ tell a reader to write, type and look up is so."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.cli.command_parser import VERBS, build_parser
from tests.docs.pages import (
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    commands,
    is_shown,
    links,
    prose,
    shown_output,
    write_files,
)
from tests.slurm_jobs.cli.command import Command, command

__all__ = ["command"]

BIN = Path(sys.executable).parent
_TOP = ("benchmarks", "configs", "docs", "pipeline", "slurm_jobs", "templates", "tests")
_INLINE = re.compile(r"`([^`\n]+)`")


def _page_id(page: Path) -> str:
    return page.name


def _spec_blocks() -> list[Block]:
    return [b for page in PAGES for b in blocks(page) if b.name and b.name[0] == "spec"]


def _profile_blocks() -> list[Block]:
    return [b for page in PAGES for b in blocks(page) if b.name and b.name[0] == "profile"]


def _runnable_pages() -> list[object]:
    params = []
    for page in PAGES:
        marks = {block.mark for block in blocks(page)} - {""}
        if marks:
            slow = [pytest.mark.slow] if "run: slow" in marks else []
            params.append(pytest.param(page, id=page.name, marks=slow))
    return params


def _environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
    path = f"{BIN}:{os.environ['PATH']}"
    return {**kept, "PATH": path, "COLUMNS": "100", "HOME": str(folder), "WORK": str(folder)}


def _bash(script: str, folder: Path) -> str:
    """Everything that the lines of `script` print."""
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> Callable[[Block, str], None]:
    """A function that checks a spec in the folder of a page's files."""
    for name, value in _environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def check_spec(block: Block, spec: str) -> None:
        write_files(block.page, tmp_path)
        assert "no problems found" in command("check", spec).out

    return check_spec


@pytest.mark.parametrize("block", _spec_blocks(), ids=lambda block: block.place)
def test_spec_on_a_page_passes_check(block: Block, check: Callable[[Block, str], None]) -> None:
    assert block.name is not None
    check(block, block.name[1])


@pytest.mark.parametrize("block", _profile_blocks(), ids=lambda block: block.place)
def test_profile_on_a_page_can_be_named_by_a_spec(
    block: Block, check: Callable[[Block, str], None], tmp_path: Path
) -> None:
    assert block.name is not None
    text = f"name: any\ncluster: {block.name[1]}\nstages: {{a: {{shell: 'true'}}}}\n"
    (tmp_path / "any.yaml").write_text(text)
    check(block, "any.yaml")


def _typed_commands(page: Path) -> list[tuple[str, list[str]]]:
    """Place and words of each `slurm-jobs ...` of a page, in blocks and in the text."""
    found = []
    for block in blocks(page):
        if block.language == "console":
            found += [(block.place, command) for command in commands(block)]
        elif block.language in {"", "sh", "bash"}:
            found += [(block.place, line) for line in block.lines]
    inline = [text for text in _INLINE.findall(prose(page)) if text[11:] not in VERBS]
    found += [(page.name, text) for text in inline]
    typed = []
    for place, text in found:
        if not text.startswith("slurm-jobs ") or "..." in text:
            continue
        words = shlex.split(re.split(r" *(?:\||>|&&|;)", text)[0], comments=True)
        typed.append((place, [word for word in words[1:] if not word.startswith("$")]))
    return typed


@pytest.mark.parametrize("page", PAGES, ids=_page_id)
def test_commands_on_a_page_are_ones_that_the_parser_takes(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = []
    for place, words in _typed_commands(page):
        verb = next((word for word in words if word in VERBS), None)
        try:
            build_parser([verb] if verb else []).parse_args(words)
        except SystemExit as end:
            if end.code:
                refused.append(
                    f"{place}: slurm-jobs {shlex.join(words)}: {capsys.readouterr().err}"
                )
    assert refused == []


@pytest.mark.parametrize("page", _runnable_pages())
def test_blocks_marked_to_run_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    for block in blocks(page):
        if not block.mark:
            continue
        if block.language == "python":
            _run_python(block, tmp_path)
        else:
            _require_shown(block, _bash("\n".join(commands(block)), tmp_path))


def _run_python(block: Block, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{block.place}: {done.stderr}"
    shown = [line[3:] for line in block.lines if line.startswith("#> ")]
    assert done.stdout.splitlines()[: len(shown)] == shown, block.place


def _require_shown(block: Block, output: str) -> None:
    """Each line that the block shows was printed, in that order."""
    printed = iter(output.splitlines())
    for line in shown_output(block):
        if not any(is_shown(line, found, block.varies) for found in printed):
            pytest.fail(f"{block.place}: `{line}` was not printed (there); printed was:\n{output}")


@pytest.mark.parametrize(
    ("shown", "printed", "varies", "is_alike"),
    [
        ("6", "123", (), False),
        ("6", "123", ("6",), True),
        ("stopped: 18 of 30 are saved", "stopped: 17 of 30 are saved", ("18",), True),
        ("stopped: 18 of 30 are saved", "stopped: 18 of 31 are saved", ("18",), False),
        ("took 67.2 ms, 31 %", "took 8 ms, 5 %", (), True),
        ("took 67.2 ms of 3 steps", "took 8 ms of 4 steps", (), False),
        ("12,056 samples/s, 1.5 GiB", "3 samples/s, 20 GiB", (), True),
        ("runs/w-20261120-174307-f0f2", "runs/w-20270101-000000-0000", (), True),
        ("runs/w-20261120-174307-f0f2", "runs/v-20270101-000000-0000", (), False),
        ("a   1  ──", "a 1 ─────", (), True),
        ("on node v1", "on node a2", ("v1",), True),
    ],
)
def test_only_what_differs_each_time_may_differ_from_a_page(
    shown: str, printed: str, varies: tuple[str, ...], is_alike: bool
) -> None:
    assert is_shown(shown, printed, varies) is is_alike


@pytest.mark.parametrize("page", PAGES, ids=_page_id)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        is_there = file.exists() and (not anchor or anchor in anchors(file))
        broken += [] if is_there else [target]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=_page_id)
def test_files_of_the_repository_that_a_page_names_exist(page: Path) -> None:
    names = {text.rstrip("/") for text in _INLINE.findall(prose(page))}
    files = {name for name in names if re.fullmatch(rf"({'|'.join(_TOP)})/[\w./-]+", name)}
    own = {block.name[1] for block in blocks(page) if block.name}
    missing = [name for name in files - own if not (ROOT / name).exists()]
    assert sorted(missing) == []
