"""What `slurm-jobs doctor` prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.cli import main
from slurm_jobs.commands.node_checks import site_check as doctor
from slurm_jobs.nodes.doctor.check_text import lines_of
from slurm_jobs.nodes.doctor.doctor_check import Check

PROBLEM = Check(
    name="torch",
    standing="problem",
    told="torch 2.15 has no code for Tesla V100 (compute capability 7.0), but for sm_80",
    remedy="pip install 'torch<2.15' --index-url https://download.pytorch.org/whl/cu126",
    where="v1, v2",
)
WARNING = Check(name="limits", standing="warning", told="only 1024 open files", remedy="ulimit -n")
UNKNOWN = Check(name="quota", standing="unknown", told="there is no `quota` here")
OK = Check(name="requeue", standing="ok", told="jobs may be requeued")


def ended(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(["doctor", *words])
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_worst_comes_first_and_what_is_well_is_named_at_the_end() -> None:
    lines = lines_of([OK, UNKNOWN, WARNING, PROBLEM], 80)
    heads = [line[:11].strip() for line in lines if line[:1].strip()]
    assert heads[:4] == ["PROBLEM", "warning", "not known", "ok"]
    assert lines[0].startswith("PROBLEM    torch (v1, v2): torch 2.15 has no code")
    assert "ok         requeue" in lines
    assert lines[-1] == "1 problem, 1 warning, 1 unknown, 1 ok"
    assert max(map(len, lines)) <= 80


def test_all_says_in_words_what_is_well() -> None:
    assert "ok         requeue: jobs may be requeued" in lines_of([OK], 80, in_words=True)
    assert lines_of([OK], 80)[-1] == "no problems, 1 ok"


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
