"""A data set of 23 samples: alone in a folder, and as made by two stages of a run."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.run_folder.orders import order_to_json
from slurm_jobs.run_folder.paths import RunPaths
from tests.pipeline.build import preprocess_23, run_consolidate, write_processor
from tests.pipeline.tools.build import change_samples
from tests.slurm_jobs.run.fabricate import make_run, submit
from tests.slurm_jobs.worker.orders import order


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 23 samples in 4 shards, that three array tasks made."""
    folder = tmp_path_factory.mktemp("dataset")
    parts_dir = preprocess_23(folder, write_processor(folder / "processor"))
    for index in range(3):
        _, made = run_consolidate(folder / "set", parts_dir, 2, task=(index, 3), num_shards=4)
    return made


@pytest.fixture
def folder(dataset_dir: Path, tmp_path: Path) -> Path:
    """A copy of it, that lies in no run."""
    return Path(shutil.copytree(dataset_dir, tmp_path / "copy"))


@pytest.fixture
def paths(dataset_dir: Path, tmp_path: Path) -> RunPaths:
    """A run whose stages `c-a` and `c-b`, of one matrix, have each made it in three tasks."""
    made = make_run(
        tmp_path / "runs" / "r", {"p": 2, "c-a": 3, "c-b": 3}, origins={"c-a": "c", "c-b": "c"}
    )
    plan = read_json(made.plan(1))
    stages = [{**s, "run": "shell" if s["name"] == "p" else "consolidate"} for s in plan["stages"]]
    write_json_atomic(made.plan(1), {**plan, "stages": stages})
    for name in ("c-a", "c-b"):
        shutil.copytree(dataset_dir, made.output_dir(name))
        give_python(made, name, sys.executable)
    return made


def give_python(paths: RunPaths, stage: str, program: str) -> None:
    token = submit(paths, stage, 3, f"{stage}-{len(list(paths.ledger_dir.glob('*')))}")
    paths.job_dir(token).mkdir(parents=True)
    made = replace(order(paths.run_dir), token=token, stage=stage, python=program)
    write_json_atomic(paths.job_json(token), order_to_json(made))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)


def unlearn(folder: Path, *keys: int) -> None:
    def change(tokens: np.ndarray) -> np.ndarray:
        tokens[1] = -100
        return tokens

    change_samples(folder, dict.fromkeys(keys, change))
