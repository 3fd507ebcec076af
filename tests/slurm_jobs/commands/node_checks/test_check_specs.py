"""Specs of a look at nodes and of a drill, made of a user's spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.commands.cluster_limits import profile_of
from slurm_jobs.commands.node_checks.check_specs import (
    drill_spec,
    load_or_make,
    node_spec,
    spec_facts,
)
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.formats.configs.command_stages import DRILL_RUN, NODE_RUN
from slurm_jobs.run.snapshot import own_functions
from slurm_jobs.spec.checked_spec import LoadedSpec

SPEC = """\
name: captions
cluster: profile.yaml
stages:
  prepare: {shell: "true", array: {num_slices: 40}, python: /envs/cpu/bin/python}
  learn:
    run: mine:learn
    setup: ["module load cuda"]
    resources:
      nodes: 4
      tasks_per_node: 4
      cpus_per_task: 8
      gpus_per_node: 4
      mem_gb: 100
      timeout_min: 720
      slurm: {partition: gpu, no_requeue: true}
"""


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedSpec:
    (tmp_path / "mine.py").write_text("def learn(config, context): ...\n")
    (tmp_path / "profile.yaml").write_text("scheduler: slurm\nslurm: {partition: cpu}\n")
    (tmp_path / "spec.yaml").write_text(SPEC)
    return load(tmp_path / "spec.yaml")


def test_a_look_has_all_that_the_stage_has_on_a_node(loaded: LoadedSpec) -> None:
    made = node_spec(loaded, profile_of(loaded), "learn", 3).spec
    (stage,) = made.stages.values()
    asked = stage.resources
    assert (made.name, stage.run, stage.setup) == (
        "captions-doctor",
        NODE_RUN,
        ["module load cuda"],
    )
    assert (asked.nodes, asked.tasks_per_node, asked.cpus_per_task) == (3, 1, 32)
    assert (asked.gpus_per_node, asked.slurm["partition"]) == (4, "gpu")
    assert own_functions(made) == []  # it is in every snapshot


def test_a_drill_asks_for_little_and_has_srun_start_its_ranks(loaded: LoadedSpec) -> None:
    (stage,) = drill_spec(loaded, profile_of(loaded), "learn").spec.stages.values()
    asked = stage.resources
    assert stage.run == DRILL_RUN
    assert (asked.nodes, asked.tasks_per_node, asked.gpus_per_node, asked.mem_gb) == (1, 2, 1, 2)
    assert asked.timeout_min == 2


def test_what_checks_depend_on_is_read_off_the_spec(loaded: LoadedSpec) -> None:
    facts = spec_facts(loaded, profile_of(loaded), "learn")
    assert facts.partitions == ("cpu", "gpu")
    assert (facts.num_slices, facts.may_requeue, facts.trains) == (40, False, False)
    assert facts.pythons == ("/envs/cpu/bin/python",)


def test_without_a_spec_this_machine_or_its_slurm_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    made = load_or_make(None, ["runs_dir=elsewhere"])
    assert made.spec.cluster == "local"
    assert made.spec.runs_dir == str(tmp_path / "elsewhere")
    assert list(tmp_path.iterdir()) == []
