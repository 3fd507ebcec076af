"""A stage's own list of what it does not need once it is complete, on this machine."""

from __future__ import annotations

from tests.end_to_end.driver import Driver

STAGE = """
from slurm_jobs.base.errors import StageError

def train(config, context):
    state = context.output_dir / "state"
    if context.attempt == 1:
        state.mkdir()
        (state / "step").write_text("1")
    result = {"found": (state / "step").read_text(), "remove_after_end": ["state"]}
    if context.attempt < 3:
        raise StageError("again")
    return result
"""
SPEC = """
name: ends
cluster: local
stages:
  train: {run: "ends_stage:train", retries: 2}
"""


def test_a_state_is_removed_when_the_stage_is_complete_and_not_before(local: Driver) -> None:
    local.write("ends_stage.py", STAGE)
    run_dir = local.submit_text(SPEC)
    assert local.wait(run_dir)["status"] == "completed"  # attempts 2 and 3 read the state
    assert list((run_dir / "data/train").iterdir()) == []
