"""A stop request on Slurm, which may reach every process of a step, ends no stage's children."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
WAYS = ("pool-fork", "pool-spawn", "joblib", "subprocess")
STAGES = Path(__file__).with_name("stages_with_children.py")
NUM_RANKS = 2
"""Several ranks are a step. The cluster of these tests has `proctrack/linuxproc`, by which all
processes of a step get its signals."""


COMMAND = """
  command:
    shell: |
      touch $SLURM_JOBS_OUTPUT_DIR/at-work-$RANK
      until [ -e $SLURM_JOBS_OUTPUT_DIR/released ]; do sleep 0.1; done
"""


def test_stages_of_two_ranks_stop_or_go_on_and_complete(on_slurm: Driver) -> None:
    assert on_slurm.cluster is not None
    on_slurm.write("children.py", STAGES.read_text())
    resources = (
        f"    resources: {{tasks_per_node: {NUM_RANKS}, timeout_min: 10, signal_lead_s: 0}}\n"
    )
    stages = COMMAND + resources
    for way in WAYS:
        stages += f"  {way}:\n    run: children:run\n    config: {{way: {way}}}\n{resources}"
    run_dir = on_slurm.submit_stages(f"{stages}")
    for stage in ("command", *WAYS):
        for rank in range(NUM_RANKS):
            mark = run_dir / "data" / stage / f"at-work-{rank}"
            wait_for(mark.exists, f"{stage} at work", timeout_s=600)
        attempt = json.loads((run_dir / "attempts" / stage / "s00000.a0001.json").read_text())
        words = ["scancel", "--batch", "--signal=USR2", attempt["job_id"]]
        on_slurm.cluster.run_as_user(words, cwd=on_slurm.folder)

    def ends(stage: str) -> list[tuple[str, str]]:
        records = sorted((run_dir / "completions" / stage).glob("*.json"))
        read = [json.loads(path.read_text()) for path in records]
        return [(end["outcome"], end["reason"]) for end in read]

    for way in WAYS:
        wait_for(lambda way=way: ends(way), f"the first end of {way}", timeout_s=300)
    (run_dir / "data/command/released").touch()
    on_slurm.wait(run_dir, timeout_s=600)
    for way in WAYS:
        assert [outcome for outcome, _ in ends(way)] == ["stopped", "completed"], ends(way)
    assert ends("command") == [("completed", "")]
