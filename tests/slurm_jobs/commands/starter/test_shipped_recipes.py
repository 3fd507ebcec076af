"""Recipes that ship with slurm-jobs pass their check with the files that each needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.cluster.limits import ClusterLimits, Partition
from slurm_jobs.commands.starter.place_choice import choose_place
from slurm_jobs.commands.starter.shipped_recipes import recipe_names
from slurm_jobs.commands.starter.spec_changes import fitting_changes
from tests.slurm_jobs.cli.command import command
from tests.slurm_jobs.cli.specs.begun import Init, begin, init
from tests.slurm_jobs.commands.starter.node_kinds import KINDS

__all__ = ["begin", "command", "init"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("recipe", recipe_names())
def test_each_recipe_passes_its_check_with_the_files_that_it_needs(init: Init, recipe: str) -> None:
    said = init("--recipe", recipe).out
    assert f"configs/{recipe}.yaml: no problems found" in said
    assert f"run configs/{recipe}.yaml" in said


def test_all_recipes_come_with_profiles_and_files_of_accelerate(init: Init, tmp_path: Path) -> None:
    init("--recipe", "all")
    names = {
        str(p.relative_to(tmp_path / "configs")) for p in (tmp_path / "configs").rglob("*.yaml")
    }
    assert {f"{recipe}.yaml" for recipe in recipe_names()} <= names
    assert {"accelerate/ddp.yaml", "clusters/test-cluster.yaml", "clusters/local.yaml"} <= names


def recipe(**resources: object) -> dict:
    return {"train": {"resources": resources}}


ONE_GPU = choose_place(
    ClusterLimits(partitions={"p": Partition(name="p", kinds=KINDS, max_time_min=60)})
)


def test_a_recipe_asks_for_no_more_than_the_cluster_has() -> None:
    asked = recipe(
        nodes=4, tasks_per_node=2, cpus_per_task=16, gpus_per_node=2, gpu=["a100", "v100"],
        mem_gb=72, timeout_min=480,
    )  # fmt: skip
    ((path, value),) = fitting_changes(asked, ONE_GPU)
    assert path == ("stages", "train", "resources")
    assert value == {
        "nodes": 2, "tasks_per_node": 1, "cpus_per_task": 8, "gpus_per_node": 1, "gpu": "a100",
        "mem_gb": 16, "timeout_min": 60,
    }  # fmt: skip


def test_a_recipe_that_fits_is_left_as_it_is() -> None:
    fits = recipe(tasks_per_node=1, cpus_per_task=8, gpus_per_node=1, gpu="a100", mem_gb=8)
    assert list(fitting_changes(fits, ONE_GPU)) == []
    assert list(fitting_changes(recipe(cpus_per_task=64, timeout_min=60), ONE_GPU)) == []
