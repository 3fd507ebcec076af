"""The demo's chain on this machine: what it makes, and that kills change nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.demo import (
    assert_phases_are_the_wall_clock,
    completion,
    copy_configs,
    data_set,
    held,
    kill_preprocess_and_train,
    require_same,
    small,
    weights,
)
from tests.end_to_end.driver import Driver


def test_undisturbed_run_makes_data_model_generations_and_report(undisturbed: Path) -> None:
    description = json.loads((undisturbed / "data/consolidate/dataset.json").read_text())
    assert description["num_samples"] == 796
    rejects = (undisturbed / "data/consolidate/rejects.jsonl").read_text().splitlines()
    assert len(rejects) == 4
    generations = (undisturbed / "data/train/generations.jsonl").read_text().splitlines()
    assert len(generations) == 16
    assert completion(undisturbed, "train")["result"]["strategy"] == "fsdp2"
    page = (undisturbed / "report/report.html").read_text()
    assert "<script" not in page
    report = json.loads((undisturbed / "report/report.json").read_text())
    assert report["header"]["status"] in {
        "completed",
        "running",
    }  # the report stage itself still ran
    for rank in (0, 1):
        assert (undisturbed / f"timing/train/s00000.a0001/rank-{rank:05d}.steps").exists()
    assert_phases_are_the_wall_clock(undisturbed)


@pytest.mark.slow  # the same on Slurm is not
def test_killed_task_and_killed_rank_change_nothing_of_the_result(
    local: Driver, undisturbed: Path
) -> None:
    run_dir = local.submit(copy_configs(local), *small(), *held(local))
    kill_preprocess_and_train(local, run_dir)
    require_same(data_set(run_dir), data_set(undisturbed))
    assert weights(run_dir) == weights(undisturbed)


@pytest.mark.slow
def test_limit_takes_the_first_samples_through_the_whole_chain(local: Driver) -> None:
    run_dir = local.submit(copy_configs(local), *small(num_steps=2), "--limit", "60")
    assert local.wait(run_dir)["status"] == "completed"
    description = json.loads((run_dir / "data/consolidate/dataset.json").read_text())
    rejects = (run_dir / "data/consolidate/rejects.jsonl").read_text().splitlines()
    assert description["num_samples"] + len(rejects) == 60
