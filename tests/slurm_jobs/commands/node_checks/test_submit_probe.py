"""The run that a probe makes of a spec. Slurm's answers are the test's own where it has any."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError, SpecError
from slurm_jobs.cluster.limits import ClusterLimits, NodeKind, Partition
from slurm_jobs.commands.node_checks import one_stage_spec
from slurm_jobs.commands.node_checks import submit_probe as probe
from slurm_jobs.commands.node_checks.one_stage_spec import source_stage
from slurm_jobs.commands.node_checks.submit_probe import ProbeRequest, probe_spec
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


def _loaded(tmp_path: Path, text: str = SPEC, profile: str = PROFILE) -> LoadedSpec:
    (tmp_path / "profile.yaml").write_text(profile)
    (tmp_path / "spec.yaml").write_text(text)
    return load(tmp_path / "spec.yaml")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """The data set is there, as far as `check` looks."""
    return SPEC.replace("dataset: /nowhere/set", 'dataset: "${prepare.output_dir}/set"').replace(
        "    run: train\n", "    run: train\n    after: prepare\n"
    )


def test_a_probe_is_one_task_a_node_with_all_that_the_training_has_there(
    tmp_path: Path, spec: str
) -> None:
    loaded = _loaded(tmp_path, spec)
    made = probe_spec(loaded, "learn", ProbeRequest(minutes=7.0), num_nodes=2).spec
    assert list(made.stages) == ["probe"]
    stage = made.stages["probe"]
    asked = stage.resources
    assert (stage.run, stage.retries, stage.after) == ("probe", 0, {})
    assert (asked.nodes, asked.tasks_per_node, asked.cpus_per_task) == (2, 1, 32)
    assert (asked.gpus_per_node, asked.mem_gb, asked.timeout_min) == (4, 100, 7.0)
    assert asked.slurm == {"partition": "gpu", "exclude": "bad1"}
    assert stage.python == "/envs/train/bin/python"
    assert (stage.setup, made.setup) == (["source own.sh"], ["module load cuda"])
    assert (stage.environment, made.environment) == ({"OWN": "1"}, {"EVERY": "stage"})
    assert stage.node_local_dir == "/nvme"
    assert len(made.name) <= 40
    assert made.name.endswith("-probe")
    assert made.runs_dir == loaded.spec.runs_dir  # the reports of runs there read it


def test_a_node_that_is_named_is_not_excluded(tmp_path: Path, spec: str) -> None:
    request = ProbeRequest(nodelist="bad1")
    made = probe_spec(_loaded(tmp_path, spec), "learn", request, num_nodes=1).spec
    assert made.stages["probe"].resources.slurm == {"partition": "gpu", "nodelist": "bad1"}


def test_the_training_is_meant_where_no_stage_is_named(tmp_path: Path, spec: str) -> None:
    loaded = _loaded(tmp_path, spec)
    assert source_stage(loaded.spec, None) == "learn"
    assert source_stage(loaded.spec, "prepare") == "prepare"
    with pytest.raises(InputError, match="did you mean `learn`"):
        source_stage(loaded.spec, "lern")


def test_several_stages_that_differ_are_not_guessed_among(tmp_path: Path) -> None:
    text = "name: a\ncluster: local\nstages:\n  x: {shell: 'true', resources: {cpus_per_task: 2}}\n"
    several = _loaded(tmp_path, text + "  y: {shell: 'true'}\n")
    with pytest.raises(InputError, match="x, y; name one with --stage"):
        source_stage(several.spec, None)
    alike = _loaded(tmp_path, text + "  y: {shell: 'true', resources: {cpus_per_task: 2}}\n")
    assert source_stage(alike.spec, None) == "x"


def _limits(num_nodes: int) -> ClusterLimits:
    """A stand-in for what Slurm says of a partition with so many nodes."""
    kind = NodeKind(num_nodes=num_nodes, cpus=64, mem_mb=500_000, gpus={"": 4})
    return ClusterLimits(partitions={"gpu": Partition(name="gpu", kinds=(kind,))})


def _num_nodes(
    loaded: LoadedSpec,
    monkeypatch: pytest.MonkeyPatch,
    limits: ClusterLimits,
    **request: object,
) -> int:
    made: list[LoadedSpec] = []
    monkeypatch.setattr(one_stage_spec, "limits_of", lambda _profile: limits)
    monkeypatch.setattr(probe, "submit", lambda spec, **_: made.append(spec))
    probe.submit_probe(loaded, ProbeRequest(**request))  # type: ignore[arg-type]
    return made[0].spec.stages["probe"].resources.nodes


@pytest.mark.parametrize(("there", "taken"), [(1, 1), (2, 2), (9, 2)])
def test_two_nodes_are_taken_where_the_partition_has_them(
    tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch, there: int, taken: int
) -> None:
    assert _num_nodes(_loaded(tmp_path, spec), monkeypatch, _limits(there)) == taken


def test_as_many_nodes_are_taken_as_are_named(
    tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = _loaded(tmp_path, spec)
    assert _num_nodes(loaded, monkeypatch, _limits(9), nodelist="n[1-3]") == 3
    assert _num_nodes(loaded, monkeypatch, _limits(9), nodelist="n[1-3]", num_nodes=1) == 1
    with pytest.raises(InputError, match=r"n\[1-"):
        _num_nodes(loaded, monkeypatch, _limits(9), nodelist="n[1-")


def test_names_of_nodes_mean_nothing_on_this_machine_alone(tmp_path: Path) -> None:
    text = "name: a\ncluster: local\nstages:\n  x: {shell: 'true'}\n"
    with pytest.raises(InputError, match="this machine only"):
        probe.submit_probe(_loaded(tmp_path, text), ProbeRequest(nodelist="n1"))


def test_what_the_cluster_could_never_run_is_refused_at_the_training_line(
    tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = _loaded(tmp_path, spec)
    for module in ("node_checks.one_stage_spec", "submit"):
        monkeypatch.setattr(f"slurm_jobs.commands.{module}.limits_of", lambda _: _limits(3))
    with pytest.raises(SpecError) as refused:
        probe.submit_probe(loaded, ProbeRequest(num_nodes=4))
    (problem,) = refused.value.problems
    line = (tmp_path / "spec.yaml").read_text().splitlines()[problem.line - 1]
    assert line.strip() == "nodes: 4"
    assert "more than the 3" in problem.message
