"""Resumes that did not come to their end, and stages that come and go, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, stage_of, wait_for, words_of

pytestmark = [pytest.mark.cluster]

FORK = """\
name: fork
cluster: auto
stages:
  p: {shell: "echo $RANDOM$RANDOM > $SLURM_JOBS_OUTPUT_DIR/out"}
  c: {after: p, shell: "cp $SLURM_JOBS_P_OUTPUT_DIR/out $SLURM_JOBS_OUTPUT_DIR/"}
  d: {after: p, shell: "cp $SLURM_JOBS_P_OUTPUT_DIR/out $SLURM_JOBS_OUTPUT_DIR/"}
"""
STUBBORN = """\
name: stubborn
cluster: auto
stages:
  p:
    shell: >-
      trap '' TERM; echo begins >> log; while ! test -e go; do sleep 0.1; done; echo ends >> log
  q: {shell: "true"}
"""


def _out(run_dir: Path, stage: str) -> str:
    return (run_dir / "data" / stage / "out").read_text()


def test_what_a_refused_resume_did_not_come_to_is_not_complete(on_slurm: Driver) -> None:
    run_dir = on_slurm.submit_text(FORK)
    assert on_slurm.wait(run_dir)["status"] == "completed"
    refused = "stages.c.resources.slurm.nodelist=nosuch"
    on_slurm.run("resume", str(run_dir), "--again", "p", "--set", refused, check=3)
    status = on_slurm.wait(run_dir)
    assert words_of(status) == {"p": "completed", "c": "stranded", "d": "stranded"}
    reason = "its inputs were submitted later; `resume` runs it again"
    assert stage_of(status, "d")["slices"][0]["reason"] == reason

    mended = ("--set", "stages.c.resources.slurm={}")
    resumed = on_slurm.json("resume", str(run_dir), *mended)
    assert [job["stage"] for job in resumed["jobs"]] == ["c", "d"]
    assert on_slurm.wait(run_dir)["status"] == "completed"
    assert _out(run_dir, "c") == _out(run_dir, "d") == _out(run_dir, "p")


def test_a_stage_that_comes_back_waits_for_its_job_that_still_ends(
    on_slurm: Driver, cluster: Cluster
) -> None:
    with cluster.kill_wait(120):
        run_dir = on_slurm.submit_text(STUBBORN)
        log = on_slurm.folder / "log"
        wait_for(log.exists, "p at work")
        on_slurm.write("spec.yaml", f"{STUBBORN.partition('  p:')[0]}  q: {{shell: 'true'}}\n")
        on_slurm.run("resume", str(run_dir), "--update-spec")
        on_slurm.write("spec.yaml", STUBBORN)
        resumed = on_slurm.json("resume", str(run_dir), "--update-spec")
        assert [job["stage"] for job in resumed["jobs"]] == ["p"]
        waiting = cluster.job_info(resumed["jobs"][0]["job_id"])
        assert (waiting["JobState"], waiting["Reason"]) == ("PENDING", "Dependency")
        on_slurm.write("go", "")
        assert on_slurm.wait(run_dir)["status"] == "completed"
    assert log.read_text().split() == ["begins", "ends", "begins", "ends"]
