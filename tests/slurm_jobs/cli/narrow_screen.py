"""What commands print on a terminal of 80 columns."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.cli.command import run_command


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def narrow_output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    run_command(*words)
    out = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    return out


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]
