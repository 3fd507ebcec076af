"""Exit codes of `slurm-jobs doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.cli import main
from slurm_jobs.commands.node_checks import site_check as doctor
from slurm_jobs.nodes.doctor.doctor_check import Check
from tests.slurm_jobs.cli.nodes.found_checks import OK, PROBLEM, UNKNOWN, WARNING


def ended(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(["doctor", *words])
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize(
    ("checks", "unreachable", "code"),
    [([OK, WARNING, UNKNOWN], False, 0), ([PROBLEM], False, 1), ([PROBLEM], True, 3)],
)
def test_the_exit_code_depends_on_problems_and_an_unreachable_scheduler(
    checks: list[Check],
    unreachable: bool,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def examine(_wanted: object, found: doctor.CheckResults, _say: object) -> None:
        found.checks += checks
        found.unreachable = unreachable

    monkeypatch.setattr(doctor, "examine", examine)
    assert ended(["--set", "cluster=local", "--json"]) == code
    values = json.loads(capsys.readouterr().out)
    assert values["unreachable"] is unreachable
    assert {check["name"] for check in values["checks"]} == {check.name for check in checks}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.yaml"], "nowhere.yaml"),
        (["--set", "cluster=local", "--nodes", "2"], "this machine alone"),
        (["--set", "cluster=local", "--stage", "train"], "no such stage"),
        (["--set", "cluter=local"], "cluter"),
    ],
)
def test_wrong_input_is_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(words) == 2
    assert said in capsys.readouterr().err


def test_slurm_that_is_not_there_is_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ended(["--set", "cluster=auto"]) == 3
    assert "sbatch" in capsys.readouterr().err
