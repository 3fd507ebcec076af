"""Runs in which one record is no ordinary file: every command ends, and names it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.golden.command import fixed_surroundings
from tests.golden.stored_runs import unpack
from tests.slurm_jobs.cli.command import Command, Ended

RUNS = ("finished", pytest.param("unfinished", marks=pytest.mark.slow))
ANOTHER = "another-20261127-071358-0001"
LIMIT_S = 30
"""A command takes 0.1 s here; one that waits for a pipe would take for ever."""
_VARIABLE = re.compile(r"\d+|(?<=/)[0-9a-f]{8,16}(?=[/.])|t\d\d")


class TooLongError(BaseException):
    """No command may catch it."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


_opened: list[Path] = []


def _note_opened(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | os.PathLike):
        _opened.append(Path(arguments[0]))


sys.addaudithook(_note_opened)


def one_of_each_kind(files: Collection[Path]) -> list[Path]:
    """One file of each kind, by its path without numbers."""
    return sorted({_VARIABLE.sub("N", str(path)): path for path in sorted(files)}.values())


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def listener(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)  # a socket's path has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 10 << 30)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def pipe_behind_a_link(path: Path) -> None:
    os.mkfifo(path.with_name(f"{path.name}.pipe"))
    path.symlink_to(f"{path.name}.pipe")


_closed: set[Path] = set()


def closed(path: Path) -> None:
    path.write_text("text")
    path.chmod(0)
    _closed.add(path)  # root, who runs the tests at some places, may read everything


@pytest.fixture(autouse=True)
def _closed_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(path) in _closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)


PLANTS = (pipe, endless, folder, listener, sparse, loop, pipe_behind_a_link, closed)


@contextmanager
def planted(path: Path, plant: Callable[[Path], None]) -> Iterator[None]:
    aside = path.with_name(f"{path.name}.aside")
    path.rename(aside)
    try:
        plant(path)
        yield
    finally:
        _closed.discard(path)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.pipe").unlink(missing_ok=True)
        aside.rename(path)


def words_of(run_dir: Path) -> list[tuple[str, ...]]:
    run = str(run_dir)
    return [
        ("runs", "--dir", str(run_dir.parent)),
        ("status", run),
        ("report", run),
        ("logs", run),
        ("logs", run, "--grep", "loss"),
        ("compare", run, str(run_dir.with_name(ANOTHER))),
        ("resume", run, "--dry-run"),
        ("clean", run, "--dry-run"),
        ("cancel", run, "--yes"),
    ]


def steady(ended: Ended) -> str:
    return re.sub(r"[\d.,]+ ?(s|min|h|days?)?\b", "N", f"{ended.code} {ended.out} {ended.err}")


@pytest.fixture(scope="module", params=RUNS)
def run_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = unpack(request.param, tmp_path_factory.mktemp("planted") / "one")
    shutil.copytree(run, run.with_name(ANOTHER))
    return run


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_each_command_ends_and_names_a_file_that_is_none(
    run_dir: Path, plant: Callable[[Path], None], command: Command, tmp_path: Path
) -> None:
    wrong: list[str] = []
    num_read = 0
    with fixed_surroundings(tmp_path):
        for words in words_of(run_dir):
            command(*words)
            _opened.clear()
            usual = steady(command(*words))
            files = [f for f in {*_opened} if run_dir in f.parents and f.is_file()]
            for path in one_of_each_kind(files):
                num_read += 1
                with planted(path, plant), limited(LIMIT_S):
                    ended = command(*words)
                text = ended.out + ended.err
                what = f"{words[0]}, {path.relative_to(run_dir)}: {text}"
                is_named = path.name in "".join(text.split())  # a line may be broken anywhere
                is_plain = plant is sparse and words[0] == "logs"  # logs may have any length
                is_named |= is_plain or steady(ended) == usual
                if "Traceback" in text or not is_named:
                    wrong.append(f"not named: {what}")
                if words[0] == "runs" and ANOTHER not in text:
                    wrong.append(f"hides other runs: {what}")
    assert not wrong, "\n".join(wrong)
    assert num_read > 50


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("name", ["spec.yaml", "cluster.yaml", "images/train.jsonl"])
def test_check_ends_and_names_a_spec_or_profile_that_is_no_file(
    name: str, plant: Callable[[Path], None], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    texts = {
        "spec.yaml": SPEC,
        "cluster.yaml": "scheduler: local\n",
        "images/train.jsonl": '{"image": "a.png", "text": "a"}\n',
    }
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    with planted(tmp_path / name, plant):
        for verb in ("check", "plan", "submit"):
            with limited(LIMIT_S):
                ended = command(verb, tmp_path / "spec.yaml")
            assert ended.code == 2, ended
            assert name.startswith("images/") or name in ended.err


SPEC = """
name: a
runs_dir: runs
cluster: cluster.yaml
stages:
  preprocess:
    run: preprocess
    config: {manifest: images/train.jsonl, processor: processor}
    resources: {timeout_min: 5}
"""
