"""Variables in options of sbatch, which sbatch itself never expands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.resume import ResumeRequest, resume
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from slurm_jobs.spec.load import read_profile
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm, queue_row
from tests.slurm_jobs.spec.conftest import Check, Notes

OPTIONS = ("account", "mail-user", "comment", "licenses", "container-mounts")
SPEC = """\
name: s
cluster: auto
stages:
  a:
    shell: "true"
    resources: {{slurm: {{{option}: {value}}}}}
"""


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "MY_ACCOUNT": "vision",
        "EMPTY_HERE": "",
        "HOME": "/home/me",
        "WITH_BACKSLASH": "a\\b",
        "SLURM_JOB_ID": "77",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("$MY_ACCOUNT", "vision"),
        ("${MY_ACCOUNT}@x.org", "vision@x.org"),
        ("$HOME:/work,$HOME/a:/a", "/home/me:/work,/home/me/a:/a"),
        ("$$MY_ACCOUNT", "$MY_ACCOUNT"),
        ("about 5$, or $5 of $-signs", "about 5$, or $5 of $-signs"),
        ("%j ~/x", "%j ~/x"),
        ('$MY_ACCOUNT\'s "best"', 'vision\'s "best"'),
    ],
)
@pytest.mark.parametrize("option", OPTIONS)
def test_variables_in_options_of_a_stage_and_a_profile_are_expanded(
    tmp_path: Path, option: str, given: str, value: str
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(SPEC.format(option=option, value=json.dumps(given)))
    assert load(file).spec.stages["a"].resources.slurm == {option: value}
    for key in ("slurm", "gpu_slurm"):
        file.write_text(f"{key}: {{{option}: {json.dumps(given)}}}\nmain_addr: $MY_ACCOUNT\n")
        profile = read_profile(str(file), disk_files())
        assert getattr(profile, key) == {option: value}
        assert profile.main_addr == "vision"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("$MY_ACOUNT", "no environment variable `MY_ACOUNT` is set here; did you mean `$MY_ACC"),
        ("$QQQ_NOT_SET", "no environment variable `QQQ_NOT_SET` is set here; set it, or write the"),
        ("$PART", "no environment variable `PART` is set here; set it"),  # not the near `$PATH`
        ("x-${EMPTY_HERE}", "`EMPTY_HERE` is empty here: set it, or write the value"),
        ("${A:-b}", "`${A:-b}` is not a variable"),
        ("${a.output_dir}", "`${a.output_dir}` is not a variable"),
        ("job $SLURM_JOB_ID", "`$SLURM_JOB_ID` is a variable of a job"),
        ("$WITH_BACKSLASH", "with its variables replaced, `a\\b` holds a line break, control"),
    ],
)
def test_a_variable_that_cannot_be_expanded_is_refused_at_its_place(
    tmp_path: Path, check: Check, given: str, words: str
) -> None:
    text = SPEC.format(option="comment", value=json.dumps(given))
    (line,) = check(text)
    assert line.startswith("6:34: stages.a.resources.slurm.comment: ")
    assert words in line
    file = tmp_path / "p.yaml"
    file.write_text(f"gpu_slurm:\n  comment: {json.dumps(given)}\n")
    with pytest.raises(SpecError) as caught:
        read_profile(str(file), disk_files())
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (2, 12)
    assert words in problem.message


def test_a_resume_keeps_what_a_variable_held_at_the_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = make_fake_slurm(tmp_path / "bin", monkeypatch)
    for program in ("scontrol", "sinfo", "sacctmgr"):
        slurm.says(program, "")
    slurm.says("sbatch", "Submitted batch job 1")
    file = tmp_path / "s.yaml"
    file.write_text(SPEC.format(option="comment", value='"$MY_ACCOUNT for $$HOME"'))
    paths = submit(load(file)).paths
    slurm.says("squeue", queue_row("1", "FAILED"))
    monkeypatch.delenv("MY_ACCOUNT")
    (job,) = resume(paths.run_dir, ResumeRequest(dry_run=True)).plan.jobs
    assert job.resources.slurm == {"comment": "vision for $HOME"}
    with_override = ("stages.a.resources.slurm.comment=$HOME",)
    request = ResumeRequest(dry_run=True, overrides=with_override, update_spec=True)
    with pytest.raises(SpecError, match="no environment variable `MY_ACCOUNT`"):
        resume(paths.run_dir, ResumeRequest(dry_run=True, update_spec=True))
    (job,) = resume(paths.run_dir, request).plan.jobs
    assert job.resources.slurm == {"comment": "/home/me"}


def test_a_variable_alone_is_noted_where_nothing_expands_it(notes: Notes) -> None:
    text = 'name: a\ncluster: local\nenvironment: {ENTITY: "$USER", PRICE: "$5", TEXT: "a $USER"}\n'
    (line,) = notes(text + "stages:\n  a: {shell: make}\n")
    assert "environment.ENTITY: `$USER` stays as it is written" in line
