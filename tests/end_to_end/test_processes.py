"""How a stage may end, what it may return, and who may watch it, on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.driver import COMMAND, Driver, stage_of, wait_for


@pytest.mark.parametrize("how", ["exit", "os._exit"])
def test_a_process_that_ends_before_its_function_returns_has_failed(
    local: Driver, how: str
) -> None:
    local.write(
        "spec.yaml",
        f"""
name: leaves
cluster: local
stages:
  a: {{run: "user_stages:leaves", config: {{how: {how}}}}}
  b: {{run: "user_stages:work", after: a}}
""",
    )
    status = local.wait(local.submit("spec.yaml"))
    (part,) = stage_of(status, "a")["slices"]
    assert part["status"] == "failed"
    assert "before its function returned" in part["reason"]
    assert stage_of(status, "b")["status"] == "stranded"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('"text"', "it returned str"),
        ("5", "it returned int"),
        ("[1, 2]", "it returned list"),
        ('{outputs: ["a.txt"]}', "`outputs` in a stage's result gives the size in bytes"),
    ],
)
def test_a_result_that_is_no_mapping_fails_the_stage_and_says_so(
    local: Driver, value: str, words: str
) -> None:
    local.write(
        "spec.yaml",
        f"""
name: returns
cluster: local
stages:
  a: {{run: "user_stages:returns", retries: 3, config: {{value: {value}}}}}
""",
    )
    run_dir = local.submit("spec.yaml")
    (part,) = stage_of(local.wait(run_dir), "a")["slices"]
    assert (part["status"], part["attempt"]) == ("failed", 1)
    assert words in part["reason"]
    local.run("report", str(run_dir))


def test_numbers_of_numpy_are_numbers_in_a_result(local: Driver) -> None:
    local.write(
        "spec.yaml",
        "name: one\ncluster: local\nstages:\n  a: {run: 'user_stages:returns_numpy'}\n",
    )
    run_dir = local.submit("spec.yaml")
    assert local.wait(run_dir)["status"] == "completed"
    (path,) = (run_dir / "completions/a").iterdir()
    assert json.loads(path.read_text())["result"] == {"mean": 0.5, "count": 3}


def test_a_result_of_another_type_in_an_old_record_does_not_stop_a_resume(
    local: Driver,
) -> None:
    local.write("spec.yaml", "name: one\ncluster: local\nstages:\n  a: {shell: 'true'}\n")
    run_dir = local.submit("spec.yaml")
    local.wait(run_dir)
    (path,) = (run_dir / "completions/a").iterdir()
    record = json.loads(path.read_text())
    for result in ("text", {"outputs": ["a"]}, [1]):
        path.write_text(json.dumps({**record, "result": result}))
        assert "nothing is missing" in local.run("resume", str(run_dir)).stdout


def test_a_shell_command_that_exits_with_75_unasked_failed_and_is_retried(
    local: Driver,
) -> None:
    local.write(
        "spec.yaml",
        "name: code\ncluster: local\nstages:\n  a: {shell: 'exit 75', retries: 1}\n",
    )
    run_dir = local.submit("spec.yaml")
    (part,) = stage_of(local.wait(run_dir), "a")["slices"]
    assert (part["status"], part["attempt"]) == ("failed", 2)
    assert part["reason"].endswith("rank 0 on local0 ended with exit code 75")


def test_a_shell_command_that_was_asked_and_ends_with_75_has_stopped(local: Driver) -> None:
    local.write(
        "spec.yaml",
        """
name: code
cluster: local
stages:
  a:
    shell: |
      trap 'exit 75' TERM
      touch $SLURM_JOBS_OUTPUT_DIR/on
      while true; do sleep 0.05; done
""",
    )
    run_dir = local.submit("spec.yaml")
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
    local.write(
        "spec.yaml",
        """
name: early
cluster: local
stages:
  a:
    run: user_stages:until_stopped
    config: {until: 100000}
""",
    )
    run_dir = local.submit("spec.yaml")
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
    local.write(
        "spec.yaml",
        """
name: grows
cluster: local
stages:
  first: {shell: "until [ -e go ]; do sleep 0.05; done"}
  s:
    shell: |
      echo slice $SLURM_JOBS_SLICE attempt $SLURM_JOBS_ATTEMPT
      [ $SLURM_JOBS_SLICE$SLURM_JOBS_ATTEMPT != 11 ]
    after: first
    array: {num_slices: 3, max_running: 1}
    retries: 1
""",
    )
    run_dir = local.submit("spec.yaml")
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
