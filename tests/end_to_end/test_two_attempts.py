"""A Slurm that says that a running job is gone, so that a second attempt at its slice begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.end_to_end.driver import COMMAND, Driver, wait_for
from tests.end_to_end.stale_squeue import with_stale_squeue

pytestmark = [pytest.mark.cluster]

SPEC = """\
name: twice
cluster: auto
stages:
  a:
    shell: >-
      trap 'sleep 1; echo ended >> log; exit 1' TERM; echo begins >> log;
      while ! test -e go; do sleep 0.1; done; echo completed >> log
    resources: {timeout_min: 30}
"""
LIAR = """\
#!/bin/bash
test "$1" = --all || exec /usr/bin/scontrol "$@"
while read -r _; do echo "slurm_load_jobs error: Invalid job id specified" >&2; done
exit 1
"""


def test_a_second_attempt_waits_though_slurm_denies_that_the_first_lives(
    on_slurm: Driver,
) -> None:
    lied_to = with_stale_squeue(on_slurm, accounts=False).driver
    lied_to.write("bin/scontrol", LIAR).chmod(0o755)
    lied_to.write("spec.yaml", SPEC)
    truthful = replace(on_slurm, command=COMMAND)
    run_dir = truthful.submit("spec.yaml")
    log = on_slurm.folder / "log"
    wait_for(log.exists, "the first attempt at work")
    (job,) = lied_to.json("resume", str(run_dir))["jobs"]
    assert job["stage"] == "a"
    wait_for(lambda: log.read_text().count("begins") == 2, "the second attempt at work")
    assert log.read_text().split() == ["begins", "ended", "begins"]
    on_slurm.write("go", "")
    assert "completed" in truthful.run("watch", str(run_dir)).stdout
    assert log.read_text().split() == ["begins", "ended", "begins", "completed"]
    ends = {path.name.split(".")[3] for path in (run_dir / "completions/a").iterdir()}
    assert ends == {"superseded", "completed"}
