"""What `run` prints of a run on this machine, of shell stages that are real processes."""

from pathlib import Path

import pytest

from slurm_jobs.cli.terminal.shown_paths import command_text
from tests.slurm_jobs.cli.command import run_command

SPEC = """
name: words
cluster: local
stages:
  good: {shell: "true"}
  bad: {shell: "echo no such word; exit 3", after: good, retries: RETRIES}
  late: {shell: "true", after: bad}
"""
CODE = "ended with exit code 3; its log ends with: no such word"


def run(folder: Path, spec: str, monkeypatch: pytest.MonkeyPatch, *, expect: int) -> Path:
    """The run's folder as it is shown from here."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")  # or what is looked for may stand on two lines
    (folder / "words.yaml").write_text(spec)
    run_command("run", "words.yaml", code=expect)
    (run_dir,) = Path("runs").iterdir()
    return run_dir


def test_a_failure_is_printed_once_with_its_log_and_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = run(tmp_path, SPEC.replace("RETRIES", "0"), monkeypatch, expect=1)
    printed = capsys.readouterr().out
    assert printed.count("exit code 3") == 1
    log = run_dir / "logs" / "bad" / "s00000.a0001.rank-00000.log"
    assert printed.splitlines()[-5:] == [
        "",
        f"bad failed (local: FAILED): rank 0 on local0 {CODE}",
        f"  log: {log}",
        f"next: {command_text('logs', str(run_dir), 'bad')}",
        f"then: {command_text('resume', str(run_dir))}",
    ]
    assert log.read_text() == "no such word\n"
    assert "(bad failed)" in printed  # the report's first sentence
    page = (run_dir / "report" / "report.html").read_text()
    assert "exit code 3" in page  # who opens it has not read the terminal


@pytest.mark.slow
def test_each_failure_of_a_retried_task_is_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, SPEC.replace("RETRIES", "1"), monkeypatch, expect=1)
    told = [line for line in capsys.readouterr().out.splitlines() if "exit code 3" in line]
    assert [line.strip() for line in told] == [
        f"failed: bad, slice 0, attempt 1, job 2: rank 0 on local0 {CODE}",
        f"bad failed (local: FAILED): attempt 2: rank 0 on local0 {CODE}",
    ]


def test_a_run_that_completed_ends_with_what_to_try_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = SPEC.replace("exit 3", "true").replace("RETRIES", "0")
    run_dir = run(tmp_path, spec, monkeypatch, expect=0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4] == "Try next:"
    assert lines[-1] == f"  {command_text('report', str(run_dir), '--json')}"
    assert not [line for line in lines if "failed" in line and "allocated" not in line]


def test_what_is_noted_of_a_spec_is_printed_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = "slurm_jobs.commands.submit.dependency_notes"
    monkeypatch.setattr(noted, lambda _plan: ("a thing",))
    spec = SPEC.replace("exit 3", "true").replace("RETRIES", "0")
    run(tmp_path, spec, monkeypatch, expect=0)
    printed = capsys.readouterr().out
    assert printed.index("note: a thing") < printed.index("run folder: ")
