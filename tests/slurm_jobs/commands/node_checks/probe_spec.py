"""The spec of a probe, made of a user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.cluster.limits import ClusterLimits, NodeKind, Partition
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.spec.checked_spec import LoadedSpec

SPEC = """\
name: a-name-of-thirty-eight-letters-in-alll
cluster: profile.yaml
environment: {EVERY: stage}
setup: ["module load cuda"]
stages:
  prepare: {shell: "true"}
  learn:
    run: train
    python: /envs/train/bin/python
    setup: ["source own.sh"]
    environment: {OWN: "1"}
    node_local_dir: /nvme
    retries: 3
    resources:
      nodes: 4
      tasks_per_node: 4
      cpus_per_task: 8
      gpus_per_node: 4
      mem_gb: 100
      timeout_min: 720
      slurm: {partition: gpu, exclude: bad1}
    config: {dataset: /nowhere/set, num_steps: 10, global_batch_size: 64, num_lanes: 16}
"""
PROFILE = "scheduler: slurm\nslurm: {partition: cpu}\n"


def loaded_spec(tmp_path: Path, text: str = SPEC, profile: str = PROFILE) -> LoadedSpec:
    (tmp_path / "profile.yaml").write_text(profile)
    (tmp_path / "spec.yaml").write_text(text)
    return load(tmp_path / "spec.yaml")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """The data set is there, as far as `check` looks."""
    return SPEC.replace("dataset: /nowhere/set", 'dataset: "${prepare.output_dir}/set"').replace(
        "    run: train\n", "    run: train\n    after: prepare\n"
    )


def known_limits(num_nodes: int) -> ClusterLimits:
    """A stand-in for what Slurm says of a partition with so many nodes."""
    kind = NodeKind(num_nodes=num_nodes, cpus=64, mem_mb=500_000, gpus={"": 4})
    return ClusterLimits(partitions={"gpu": Partition(name="gpu", kinds=(kind,))})
