"""A complete run with a file of each kind, without a Slurm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.run.fabricate import end, make_run, submit

STAGES = ("preprocess", "consolidate", "train", "own")
FILES = (
    "report/report.html",
    "logs/train/slurm-3.log",
    "timing/train/s00000.a0001/rank-00000.steps",
    "data/preprocess/parts/part-00000.tar",
    "data/consolidate/shards/shard-000000.tar",
    "data/train/model/model.safetensors",
    "data/train/adapters/adapter.safetensors",
    "data/train/evaluation.json",
    "data/train/checkpoints/step-00000004/0.distcp",
    "data/train/checkpoints/step-00000008/0.distcp",
    "data/train/checkpoints.before-attempt-2/step-00000004.f/0.distcp",
    "data/own/answers.jsonl",
)
AFTER = {
    "consolidate": {"preprocess": "afterok"},
    "train": {"consolidate": "afterok"},
    "own": {"train": "afterok"},
}
NUM_BYTES = 50_000


def cleanable_run(
    run_dir: Path,
    *,
    complete: tuple[str, ...] = STAGES,
    keep_after_end: int | None = None,
    **meta_values: Any,
) -> RunPaths:
    """Jobs 1 to 4 of four stages have ended; the stages in `complete` have their record."""
    paths = make_run(run_dir, dict.fromkeys(STAGES, 1), after=AFTER, **meta_values)
    plan = json.loads(paths.plan(1).read_text())
    for values in plan["stages"]:
        values["run"] = values["name"] if values["name"] != "own" else "own:f"
    write_json_atomic(paths.plan(1), plan)
    checkpoint = {"checkpoint": {"keep_after_end": keep_after_end}}
    stages = {name: {"run": name, "config": {}} for name in STAGES}
    stages["train"]["config"] = checkpoint
    paths.resolved_spec.parent.mkdir()
    write_json_atomic(paths.resolved_spec, {"stages": stages})
    for number, name in enumerate(STAGES, 1):
        submit(paths, name, 1, str(number))
        end(paths, name, [0], "completed" if name in complete else "failed")
    for name in FILES:
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).write_bytes(b"x" * NUM_BYTES)
    return paths


def files_left(paths: RunPaths) -> set[str]:
    """Those of `FILES` that are still there."""
    return {name for name in FILES if (paths.run_dir / name).exists()}


def files_gone(paths: RunPaths) -> set[str]:
    """Those that are not, up to the folder's second part: `data/train/checkpoints/...`."""
    return set(FILES) - files_left(paths)
