"""`init` on the test cluster: what it writes is what Slurm would run."""

from __future__ import annotations

import json

import pytest
import yaml

from slurm_jobs.commands.starter.shipped_recipes import recipe_names
from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver


@pytest.mark.cluster
def test_profile_and_recipes_fit_the_cluster_as_they_are_written(
    on_slurm: Driver, cluster: Cluster
) -> None:
    for recipe in recipe_names():
        found = json.loads(on_slurm.run("init", "--recipe", recipe, "--json").stdout)
        assert found["problems"] == []
    name = cluster.config.cluster_name
    text = (on_slurm.folder / "configs" / "clusters" / f"{name}.yaml").read_text()
    profile = yaml.safe_load(text)
    assert (profile["slurm"], profile["gpu_slurm"]) == ({"partition": "cpu"}, {"partition": "gpu"})
    assert "#     2 nodes: 8 cores, 16 GB, 4 x a100\n" in text
    said = on_slurm.run("check", "configs/demo.yaml", "--cluster").stdout
    assert "no problems found" in said


@pytest.mark.cluster
def test_images_become_a_spec_for_all_gpus_of_a_node(on_slurm: Driver) -> None:
    for name in ("cat", "dog"):
        on_slurm.write(f"pics/{name}/1.jpg", "GIF89a")
    said = on_slurm.run("init", "--data", "pics", "--partition", "gpu", "--yes").stdout
    assert "GPU jobs: partition gpu: 2 nodes of 8 cores" in said
    assert "configs/finetune.yaml: no problems found" in said
    spec = yaml.safe_load((on_slurm.folder / "configs" / "finetune.yaml").read_text())
    asked = spec["stages"]["train"]["resources"]
    assert (asked["tasks_per_node"], asked["gpus_per_node"]) == (4, 4)
    assert asked["cpus_per_task"] == 2
    script = on_slurm.run("plan", "configs/finetune.yaml").stdout
    assert f"--gpus-per-node={asked['gpu']}:4" in script


@pytest.mark.cluster
def test_a_partition_without_gpus_is_refused_with_those_that_have_them(on_slurm: Driver) -> None:
    said = on_slurm.run("init", "--partition", "cpu", "--yes", check=2).stderr
    assert "--partition cpu: not here, or not yours (you have: gpu" in said
