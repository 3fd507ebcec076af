"""A function that hangs is named while it runs, and is never ended for it."""

from __future__ import annotations

import json
from pathlib import Path

from slurm_jobs.worker.idle import PATIENCE_VARIABLE
from tests.end_to_end.driver import Driver, stage_of, wait_for

STAGES = """
import multiprocessing, time

def wait_for(path):
    while not path.exists():
        time.sleep(0.2)

def joins(config, context):
    child = multiprocessing.Process(target=wait_for, args=(context.output_dir / "go",))
    child.start()
    child.join()
    return {"joined": True}
"""
JOIN = STAGES.splitlines().index("    child.join()") + 1
SPEC = f"""
name: idle
cluster: local
stages:
  joins:
    run: "own:joins"
    setup: &patience ["export {PATIENCE_VARIABLE}=1.5"]
    resources: {{timeout_min: 10}}
  command:
    shell: "while [ ! -e $SLURM_JOBS_OUTPUT_DIR/go ]; do sleep 0.2; done"
    setup: *patience
    resources: {{timeout_min: 10}}
"""


def test_status_and_log_say_where_an_idle_function_waits(local: Driver) -> None:
    local.write("own.py", STAGES)
    run_dir = local.submit_text(SPEC)
    reason = wait_for(lambda: reason_of(local, run_dir, "joins"), "the place")
    assert reason.startswith("rank 0 on local0 has used almost no processor time for ")
    assert f": it was at joins (own.py:{JOIN}), in join. Stacks: " in reason
    assert f"joins runs, but {reason}" in local.run("status", str(run_dir)).stdout
    log = local.run("logs", str(run_dir), "joins", "--supervisor").stdout
    assert f"slurm-jobs: {reason}" in log
    assert not list((run_dir / "tasks/command").rglob("*.idle.json"))
    for name in ("joins", "command"):
        (run_dir / "data" / name / "go").touch()
    assert local.wait(run_dir)["status"] == "completed"
    (path,) = (run_dir / "completions/joins").iterdir()
    record = json.loads(path.read_text())
    assert (record["result"], record["reason"]) == ({"joined": True}, "")
    assert reason_of(local, run_dir, "joins") == ""


def reason_of(driver: Driver, run_dir: Path, stage: str) -> str:
    (part,) = stage_of(driver.status(run_dir), stage)["slices"]
    reason: str = part["reason"]
    return reason
