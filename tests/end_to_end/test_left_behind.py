"""Nothing that an attempt left behind runs beside the next one, on this machine."""

from __future__ import annotations

import json
import subprocess
import time

from slurm_jobs.schedulers.local import LocalBook
from tests.end_to_end.driver import (
    COMMAND,
    Driver,
    is_alive,
    kill,
    processes_naming,
    runner_pid,
    wait_for,
)

TICKER = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
attempt, folder = sys.argv[1:]
open(f"{folder}/ticks-{attempt}", "w").close()
while True:
    time.sleep(0.1)
"""


def test_what_a_shell_stage_started_ends_with_its_killed_runner(local: Driver) -> None:
    local.write("tick.py", TICKER)
    run_dir = local.submit_stages(
        """\
  a: {shell: "python3 tick.py $SLURM_JOBS_ATTEMPT $SLURM_JOBS_OUTPUT_DIR; echo done"}
"""
    )
    wait_for((run_dir / "data/a/ticks-1").exists, "the first attempt at work")
    kill(runner_pid(run_dir))
    wait_for(lambda: not processes_naming(f"tick.py 1 {run_dir}"), "the end of its processes")
    local.run("resume", str(run_dir))
    wait_for((run_dir / "data/a/ticks-2").exists, "the second attempt at work")
    assert processes_naming(f"tick.py 1 {run_dir}") == []
    local.run("cancel", str(run_dir), "--yes")
    wait_for(lambda: not processes_naming(str(run_dir)), "the end of all")


def test_an_attempt_begins_when_the_one_of_the_killed_runner_has_ended(
    local: Driver,
) -> None:
    run_dir = local.submit_stages("  a: {run: 'user_stages:saves_slowly'}\n")
    wait_for((run_dir / "data/a/on").exists, "the first attempt at work")
    kill(runner_pid(run_dir))
    wait_for((run_dir / "data/a/saving").exists, "the first attempt to save")
    resume = subprocess.Popen([*COMMAND, "resume", str(run_dir)], cwd=local.folder)
    wait_for(LocalBook(run_dir / "local").has_runner, "the resume to wait for it")
    end_s = time.monotonic() + 0.5
    while time.monotonic() < end_s:
        if (run_dir / "attempts/a/s00000.a0002.json").exists():
            assert not processes_naming(f"{run_dir}/tasks/a/s00000.a0001")
        time.sleep(0.02)
    (run_dir / "data/a/saved").touch()
    assert resume.wait(timeout=60) == 0
    assert local.wait(run_dir)["status"] == "completed"
    assert not (run_dir / "data/a/beside").exists()
    state = json.loads((run_dir / "local/states/1.json").read_text())
    second = json.loads((run_dir / "attempts/a/s00000.a0002.json").read_text())
    assert state["state"] == "NODE_FAIL"
    assert state["end_unix_s"] <= second["started_unix_s"]


def test_a_retry_begins_when_nothing_of_the_attempt_before_lives(local: Driver) -> None:
    local.write("tick.py", TICKER)
    local.write(
        "spec.yaml",
        """
name: ranks
cluster: local
stages:
  a:
    shell: |
      cd $SLURM_JOBS_OUTPUT_DIR
      if [ $SLURM_JOBS_ATTEMPT = 2 ]; then pgrep -f "[t]ick.py 1 $PWD" > alive-$RANK; exit 0; fi
      if [ $RANK = 1 ]; then until [ -e ticks-1 ]; do sleep 0.05; done; exit 1; fi
      python3 FOLDER/tick.py 1 $PWD; echo done
    retries: 1
    resources: {tasks_per_node: 2}
""".replace("FOLDER", str(local.folder)),
    )
    run_dir = local.submit("spec.yaml")
    assert local.wait(run_dir)["status"] == "completed"
    found = [(run_dir / f"data/a/alive-{rank}").read_text() for rank in (0, 1)]
    assert found == ["", ""]


def test_a_process_in_its_own_session_ends_with_its_rank(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a:
    shell: |
      cd $SLURM_JOBS_OUTPUT_DIR
      setsid sh -c 'echo $$ > pid; exec sleep 1000' &
      until [ -s pid ]; do sleep 0.01; done
"""
    )
    assert local.wait(run_dir)["status"] == "completed"
    assert not is_alive(int((run_dir / "data/a/pid").read_text()))
