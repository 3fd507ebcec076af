"""Folders to drive `slurm-jobs` in; whatever a test leaves running is ended by pid."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver

STAGES = Path(__file__).parent / "user_stages.py"


def _end_processes(text: str) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
            if text in line:
                os.kill(int(path.parent.name), signal.SIGKILL)
        except (OSError, ValueError):
            continue


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Driver]:
    """A user's folder on this machine, with stages of the user's own in it."""
    (tmp_path / "user_stages.py").write_bytes(STAGES.read_bytes())
    yield Driver(tmp_path)
    _end_processes(str(tmp_path))
