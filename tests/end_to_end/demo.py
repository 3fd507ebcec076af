"""The demo's spec, made small enough for a test; every part of it is real."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_jobs.formats.timings.step_records import STEP_PHASES, read_steps, steps_path
from tests.end_to_end.driver import Driver, kill, rank_pid, stage_of, wait_for
from tests.leases import leased

CONFIGS = Path(__file__).parents[2] / "configs"
STAGES = ["render", "preprocess", "consolidate", "train", "report"]


def small(*, num_train: int = 800, num_steps: int = 24) -> list[str]:
    """Overrides of the demo's spec: fewer pictures, fewer steps, a checkpoint now and then."""
    values = {
        "stages.render.config.num_train": num_train,
        "stages.render.config.num_heldout": 16,
        "stages.render.config.num_broken": 4,
        "stages.preprocess.config.max_reject_share": 0.05,
        "stages.train.config.num_steps": num_steps,
        "stages.train.config.checkpoint.every_steps": 8,
        "stages.train.config.schedule.kind": "constant",
    }
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def held(driver: Driver) -> list[str]:
    """Overrides for `kill_preprocess_and_train`: `preprocess` waits for it."""
    line = f"while ! test -e {driver.folder}/go; do sleep 0.05; done"
    return ["--set", f"stages.preprocess.setup.0={line}"]


def copy_configs(driver: Driver) -> str:
    """Put the shipped specs into the user's folder, and return the demo's."""
    shutil.copytree(
        CONFIGS, driver.folder / "configs", ignore=shutil.ignore_patterns("__pycache__")
    )
    if driver.cluster is not None:
        for path in [driver.folder / "configs", *(driver.folder / "configs").rglob("*")]:
            shutil.chown(path, driver.cluster.config.user)
    return "configs/demo.yaml"


def data_set(run_dir: Path) -> dict[str, bytes]:
    """The consolidated data set: shards, index, description, rejects."""
    folder = run_dir / "data" / "consolidate"
    names = ["dataset.json", "index.arrow", *(p.name for p in (folder / "shards").iterdir())]
    return {
        name: (
            (folder / name) if (folder / name).exists() else folder / "shards" / name
        ).read_bytes()
        for name in sorted(names)
    }


def weights(run_dir: Path) -> bytes:
    """The exported model's weights."""
    return (run_dir / "data" / "train" / "model" / "model.safetensors").read_bytes()


def kill_preprocess_and_train(driver: Driver, run_dir: Path) -> None:
    """Kill slice 2 of preprocess in the middle; resume; kill rank 1 in the middle; resume.

    Proves on the way that `status` names both, and that `resume` runs what is
    missing and nothing else. The run was submitted with what `held` says.
    """
    _kill_slice_2(driver, run_dir)
    status = driver.wait(run_dir)
    preprocess = stage_of(status, "preprocess")
    assert preprocess["slices_by_status"] == {"completed": "0-1,3", "failed": "2"}
    assert "rank 0 on" in preprocess["slices"][2]["reason"]
    assert "was killed by SIGKILL" in preprocess["slices"][2]["reason"]
    assert {stage_of(status, n)["status"] for n in ("consolidate", "train")} == {"stranded"}
    assert stage_of(status, "report")["status"] == "completed"  # it tells of the failure

    resumed = driver.json("resume", str(run_dir))
    assert [(j["stage"], j["slices"]) for j in resumed["jobs"]] == [
        ("preprocess", "2"),
        ("consolidate", "0"),
        ("train", "0"),
        ("report", "0"),
    ]
    checkpoints = run_dir / "data" / "train" / "checkpoints"
    wait_for(lambda: list(checkpoints.glob("step-*")), "the first checkpoint")
    kill(wait_for(lambda: rank_pid(run_dir, "train", "s00000.a0001", 1), "rank 1"))
    status = driver.wait(run_dir)
    reason = stage_of(status, "train")["slices"][0]["reason"]
    assert "rank 1 on" in reason
    assert reason.endswith("was killed by SIGKILL")
    assert stage_of(status, "report")["status"] == "completed"  # afterany

    resumed = driver.json("resume", str(run_dir))
    assert [j["stage"] for j in resumed["jobs"]] == ["train", "report"]
    status = driver.wait(run_dir)
    assert status["status"] == "completed", status
    for stage, attempts in {"render": 1, "preprocess": 5, "consolidate": 1, "train": 2}.items():
        assert len(list((run_dir / "attempts" / stage).iterdir())) == attempts
    result = completion(run_dir, "train")["result"]
    assert result["resumed_from_step"] > 0
    assert_every_step_once(run_dir)


def _kill_slice_2(driver: Driver, run_dir: Path) -> None:
    """Kill it while it waits for an image, lent to us for so long, of a row in its middle."""
    wait_for(lambda: list(run_dir.glob("completions/render/*.completed.json")), "the pictures")
    folder = run_dir / "data" / "render"
    rows = (folder / "train.jsonl").read_text().splitlines()
    images = (folder / json.loads(row)["images"][0] for row in rows[len(rows) * 5 // 8 :])
    with leased(next(path for path in images if path.exists())) as is_wanted:
        (driver.folder / "go").touch()
        wait_for(is_wanted, "slice 2 at work")
        kill(wait_for(lambda: rank_pid(run_dir, "preprocess", "s00002.a0001", 0), "its pid"))


def completion(run_dir: Path, stage: str) -> Any:
    """The completed record of a stage without an array."""
    (path,) = (run_dir / "completions" / stage).glob("*.completed.json")
    return json.loads(path.read_text())


def assert_every_step_once(run_dir: Path) -> None:
    """The last attempt begins where the checkpoint stood: no step is missing."""
    from slurm_jobs.formats.timings.step_records import read_steps

    steps: list[int] = []
    for folder in sorted((run_dir / "timing" / "train").iterdir()):
        recorded = read_steps(folder / "rank-00000.steps").steps["step"].tolist()
        resumed_at = recorded[0] if recorded else len(steps)
        steps = [*steps[:resumed_at], *recorded]
    assert steps == list(range(24))


def require_same(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Byte for byte."""
    assert sorted(found) == sorted(expected)
    differing = [name for name in expected if found[name] != expected[name]]
    if differing:
        pytest.fail(f"these files of the data set differ: {', '.join(differing)}")


def assert_phases_are_the_wall_clock(run_dir: Path, *, num_ranks: int = 2) -> None:
    """What the phases of all steps add up to is the time from the first step to the last one's end.

    The steps' starts are by the wall clock, their phases by another one.
    """
    for rank in range(num_ranks):
        steps = read_steps(steps_path(run_dir / "timing/train/s00000.a0001", rank)).steps
        phases_s = sum(float(steps[name].sum(dtype=np.float64)) for name in STEP_PHASES)
        wall_s = steps["start_unix_s"][-1] + float(steps["step_s"][-1]) - steps["start_unix_s"][0]
        assert phases_s == pytest.approx(wall_s, rel=0.01), f"rank {rank}"
