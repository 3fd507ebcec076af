"""How a stage may end, what it may return, and who may watch it, on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.run.observe import status_of
from tests.end_to_end.driver import COMMAND, Driver, stage_of, wait_for

OWN_STAGES = """
from slurm_jobs.base.errors import StageStoppedError

def no_json(config, context):
    return {"x": object()}

def no_name(config, context):
    return undefined_name

def no_number(config, context):
    raise ValueError("no number")

def stops(config, context):
    raise StageStoppedError("as it likes")
"""
STAGES: dict[str, dict[str, Any]] = {
    "leaves": {"run": "user_stages:leaves", "config": {"how": "exit"}},
    "leaves_at_once": {"run": "user_stages:leaves", "config": {"how": "os._exit"}},
    "text": {"run": "user_stages:returns", "retries": 3, "config": {"value": "text"}},
    "number": {"run": "user_stages:returns", "retries": 3, "config": {"value": 5}},
    "list": {"run": "user_stages:returns", "retries": 3, "config": {"value": [1, 2]}},
    "outputs": {
        "run": "user_stages:returns",
        "retries": 3,
        "config": {"value": {"outputs": ["a.txt"]}},
    },
    "no_json": {"run": "own:no_json"},
    "no_name": {"run": "own:no_name"},
    "no_number": {"run": "own:no_number"},
    "stops_unasked": {"run": "own:stops"},
    "exits_as_stopped": {"run": "user_stages:work", "config": {"exit": 75}},
    "exits": {"run": "user_stages:work", "config": {"exit": 7}},
    "dies": {"run": "user_stages:work", "config": {"die": "SIGSEGV"}},
    "shell": {"shell": "exit 3"},
    "shell_as_stopped": {"shell": "exit 75", "retries": 1},
    "fails_in_setup": {"shell": "true", "setup": ["echo loading", "false", "echo not reached"]},
    "ends_in_setup": {"shell": "true", "setup": ["exit 0"]},
    "after_one_that_leaves": {"shell": "true", "after": "leaves"},
    "numpy": {"run": "user_stages:returns_numpy"},
    "quoted": {
        "shell": """printf '%s' "$TEXT" > "$SLURM_JOBS_OUTPUT_DIR/t\"""",
        "environment": {"TEXT": "a'b $(touch pwned) `x`"},
    },
}
AS_STOPPED = "exit code 75 (stopped and saved), and was not asked to stop"
REASONS = {
    "leaves": "before its function returned",
    "leaves_at_once": "before its function returned",
    "text": "it returned str",
    "number": "it returned int",
    "list": "it returned list",
    "outputs": "`outputs` in a stage's result gives the size in bytes",
    "stops_unasked": AS_STOPPED,
    "exits_as_stopped": AS_STOPPED,
    "exits": "exit code 7",
    "dies": "killed by SIGSEGV",
    "shell": "exit code 3",
    "shell_as_stopped": "rank 0 on local0 ended with exit code 75",
    "fails_in_setup": "before its supervisor started",
    "ends_in_setup": "a line of `setup:` has ended the job (`exit 0`, `exec`)",
}
"""Part of the reason of each stage that does not complete."""
UPDATE_CODE = " --update-code"


@pytest.fixture(scope="module")
def ended(local_of_file: Driver) -> Path:
    """A run whose stages end in all these ways."""
    local_of_file.write("own.py", OWN_STAGES)
    spec = {"name": "ends", "cluster": "local", "stages": STAGES}
    run_dir = local_of_file.submit_text(json.dumps(spec))
    local_of_file.wait(run_dir)
    return run_dir


@pytest.fixture(scope="module")
def status(local_of_file: Driver, ended: Path) -> Any:
    return local_of_file.status(ended)


@pytest.mark.parametrize("name", REASONS)
def test_the_end_of_a_stage_is_the_reason_of_its_failure(status: Any, name: str) -> None:
    (part,) = stage_of(status, name)["slices"]
    assert part["status"] == ("unknown" if name == "ends_in_setup" else "failed")
    assert REASONS[name] in part["reason"]


def test_a_result_that_is_no_mapping_is_not_tried_again(status: Any) -> None:
    attempts = {
        stage["name"]: stage["slices"][0]["attempt"]
        for stage in status["stages"]
        if "retries" in STAGES[stage["name"]]
    }
    assert attempts == {"text": 1, "number": 1, "list": 1, "outputs": 1, "shell_as_stopped": 2}


def test_what_comes_after_a_process_that_left_is_stranded(status: Any) -> None:
    assert stage_of(status, "after_one_that_leaves")["status"] == "stranded"


def test_a_run_whose_results_are_no_mappings_has_a_report(
    local_of_file: Driver, ended: Path
) -> None:
    local_of_file.run("report", str(ended))


def test_the_line_of_the_set_up_that_failed_is_in_the_log(
    local_of_file: Driver, ended: Path
) -> None:
    log = local_of_file.run("logs", str(ended), "fails_in_setup").stdout
    assert "loading" in log
    assert "the job ended in set-up line 2, exit code 1: false" in log
    assert "not reached" not in log
    assert not (ended / "attempts/fails_in_setup").exists()


@pytest.mark.parametrize(
    ("name", "offered"), [("no_json", UPDATE_CODE), ("no_name", UPDATE_CODE), ("no_number", "")]
)
def test_the_suggested_resume_takes_current_code_where_code_was_at_fault(
    ended: Path, name: str, offered: str
) -> None:
    whole = status_of(ended)
    *_, last = problem_lines(ended, replace(whole, stages=(whole.stage(name),)))
    assert last.startswith("then: ")
    assert last.partition(ended.name)[2] == offered


def test_numbers_of_numpy_are_numbers_in_a_result(ended: Path) -> None:
    (path,) = (ended / "completions/numpy").iterdir()
    assert json.loads(path.read_text())["result"] == {"mean": 0.5, "count": 3}


def test_a_variable_reaches_a_command_as_it_is_written(local_of_file: Driver, ended: Path) -> None:
    assert (ended / "data/quoted/t").read_text() == "a'b $(touch pwned) `x`"
    assert not (local_of_file.folder / "pwned").exists()


def test_a_result_of_another_type_in_an_old_record_does_not_stop_a_resume(
    local: Driver,
) -> None:
    run_dir = local.submit_stages("  a: {shell: 'true'}\n")
    local.wait(run_dir)
    (path,) = (run_dir / "completions/a").iterdir()
    record = json.loads(path.read_text())
    for result in ("text", {"outputs": ["a"]}, [1]):
        path.write_text(json.dumps({**record, "result": result}))
        assert "nothing is missing" in local.run("resume", str(run_dir)).stdout


def test_a_shell_command_that_was_asked_and_ends_with_75_has_stopped(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a:
    shell: |
      trap 'exit 75' TERM
      touch $SLURM_JOBS_OUTPUT_DIR/on
      while true; do sleep 0.05; done
"""
    )
    wait_for((run_dir / "data/a/on").exists, "the command at work")
    os.kill(_supervisor(run_dir), signal.SIGTERM)
    local.wait(run_dir)
    (name,) = [path.name for path in (run_dir / "completions/a").iterdir()]
    assert name.endswith(".stopped.json")


def _supervisor(run_dir: Path) -> int:
    """Pid of stage a's supervisor; it takes signals since before this record of it."""
    attempt = run_dir / "attempts/a/s00000.a0001.json"
    wait_for(attempt.exists, "the supervisor")
    pid: int = json.loads(attempt.read_text())["pid"]
    return pid


def test_a_stop_that_comes_while_ranks_start_reaches_them(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a:
    run: user_stages:until_stopped
    config: {until: 100000}
"""
    )
    # The supervisor's record exists before it starts anything: the earliest moment to signal.
    os.kill(_supervisor(run_dir), signal.SIGUSR2)
    wait_for(lambda: list(run_dir.glob("completions/a/s00000.a0001.*.stopped.json")), "the stop")
    local.run("cancel", str(run_dir), "--yes")


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_a_submission_is_finished_though_its_reader_has_left(local: Driver, verb: str) -> None:
    stages = "".join(f"  s{i}: {{shell: 'true'}}\n" for i in range(6))
    local.write("spec.yaml", f"name: pipe\ncluster: local\nstages:\n{stages}")
    process = subprocess.Popen(
        [*COMMAND, verb, "spec.yaml"], cwd=local.folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("submitted s0")
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    (run_dir,) = (local.folder / "runs").iterdir()
    assert local.wait(run_dir)["status"] == "completed"


def test_following_a_log_shows_slices_and_attempts_that_begin_later(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  first: {shell: "until [ -e go ]; do sleep 0.05; done"}
  s:
    shell: |
      echo slice $SLURM_JOBS_SLICE attempt $SLURM_JOBS_ATTEMPT
      [ $SLURM_JOBS_SLICE$SLURM_JOBS_ATTEMPT != 11 ]
    after: first
    array: {num_slices: 3, max_running: 1}
    retries: 1
"""
    )
    following = subprocess.Popen(
        [*COMMAND, "logs", str(run_dir), "s", "--follow"],
        cwd=local.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for((run_dir / "attempts/first/s00000.a0001.json").exists, "the first stage")
    (local.folder / "go").touch()
    output, _ = following.communicate(timeout=120)
    words = [line for line in output.splitlines() if line.startswith("slice")]
    assert sorted(words) == [
        "slice 0 attempt 1",
        "slice 1 attempt 1",
        "slice 1 attempt 2",
        "slice 2 attempt 1",
    ]
    assert following.returncode == 0


def test_a_stage_of_the_newest_run_wins_over_a_run_whose_id_begins_so(local: Driver) -> None:
    local.write(
        "spec.yaml",
        "name: train-x\ncluster: local\nstages:\n  prepare: {shell: 'echo prepare'}\n"
        "  train: {shell: 'echo the stage', after: prepare}\n",
    )
    local.wait(local.submit("spec.yaml"))
    assert local.run("logs", "train").stdout == "the stage\n"
    assert local.run("logs", "train-x", "prepare").stdout == "prepare\n"
    said = local.run("logs", "trian", check=2).stderr
    assert "nor is it a stage of the newest run (prepare, train)" in said
