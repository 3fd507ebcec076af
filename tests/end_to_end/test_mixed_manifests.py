"""A data set of two manifests, from the spec to the report, and another mixture of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_jobs.formats.timings.manifest_losses import loss_field, targets_field
from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from tests.end_to_end.demo import copy_configs, small
from tests.end_to_end.driver import Driver, words_of

MANIFESTS = (
    "stages.preprocess.config.manifest=[{path: '${render.output_dir}/train.jsonl', name: many}, "
    "{path: '${render.output_dir}/heldout.jsonl', name: few, repeat: 2.5}]"
)


def _mixture(run_dir: Path) -> dict[str, Any]:
    info = json.loads((run_dir / "data" / "consolidate" / "dataset.json").read_text())
    assert sum(each["num_samples"] for each in info["manifests"]) == info["num_samples"]
    assert sum(each["num_tokens"] for each in info["manifests"]) == info["num_tokens"]
    return {each["name"]: each for each in info["manifests"]}


def _check_losses_by_manifest(run_dir: Path, report: dict[str, Any]) -> None:
    """Their mean is the loss of each step, and all learned tokens of all ranks are counted."""
    folder = run_dir / "timing/train/s00000.a0001"
    ranks = [read_steps(steps_path(folder, rank)).steps for rank in range(2)]
    means = np.stack([ranks[0][loss_field(number)] for number in range(2)])
    nums = np.stack([ranks[0][targets_field(number)] for number in range(2)])
    assert (nums > 0).all()
    assert np.average(means, axis=0, weights=nums) == pytest.approx(ranks[0]["loss"], rel=1e-5)
    num_targets = sum(steps["num_supervised_tokens"] for steps in ranks)
    assert nums.sum(axis=0).tolist() == num_targets.tolist()
    (training,) = report["training"]
    losses = {each["name"]: each for each in training["manifest_losses"]}
    assert [losses[name]["num_targets"] for name in ("many", "few")] == nums.sum(axis=1).tolist()
    assert losses["few"]["last_loss"] == pytest.approx(float(means[1][-1]))


def test_two_manifests_are_trained_and_mixed_again_without_preprocessing(local: Driver) -> None:
    spec = copy_configs(local)
    run_dir = local.submit(spec, *small(num_train=100, num_steps=4), "--set", MANIFESTS)
    assert set(words_of(local.wait(run_dir)).values()) == {"completed"}
    mixture = _mixture(run_dir)
    assert mixture["few"]["num_samples"] == 40
    assert mixture["many"]["num_samples"] == mixture["many"]["num_rows"] - 4
    report = json.loads((run_dir / "report" / "report.json").read_text())
    (data,) = report["data"]
    assert [entry["num_samples"] for entry in data["mixture"]] == [
        each["num_samples"] for each in mixture.values()
    ]
    assert "40" in local.run("report", str(run_dir)).stdout
    _check_losses_by_manifest(run_dir, report)

    again = ("--set", "stages.consolidate.config.mixture.few.repeat=1")
    resumed = local.json("resume", str(run_dir), *again)
    assert {job["stage"] for job in resumed["jobs"]} == {"consolidate", "train", "report"}
    assert set(words_of(local.wait(run_dir)).values()) == {"completed"}
    assert _mixture(run_dir)["few"]["num_samples"] == 16
