"""The run that a probe makes of a spec. Slurm's answers are the test's own where it has any."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError, SpecError
from slurm_jobs.commands.node_checks import submit_probe as probe
from slurm_jobs.commands.node_checks.submit_probe import ProbeRequest, probe_spec
from tests.slurm_jobs.commands.node_checks.probe_spec import known_limits, loaded_spec, spec

__all__ = ["spec"]


def test_a_probe_is_one_task_a_node_with_all_that_the_training_has_there(
    tmp_path: Path, spec: str
) -> None:
    loaded = loaded_spec(tmp_path, spec)
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
    made = probe_spec(loaded_spec(tmp_path, spec), "learn", request, num_nodes=1).spec
    assert made.stages["probe"].resources.slurm == {"partition": "gpu", "nodelist": "bad1"}


def test_names_of_nodes_mean_nothing_on_this_machine_alone(tmp_path: Path) -> None:
    text = "name: a\ncluster: local\nstages:\n  x: {shell: 'true'}\n"
    with pytest.raises(InputError, match="this machine only"):
        probe.submit_probe(loaded_spec(tmp_path, text), ProbeRequest(nodelist="n1"))


def test_what_the_cluster_could_never_run_is_refused_at_the_training_line(
    tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loaded_spec(tmp_path, spec)
    for module in ("node_checks.one_stage_spec", "submit"):
        monkeypatch.setattr(f"slurm_jobs.commands.{module}.limits_of", lambda _: known_limits(3))
    with pytest.raises(SpecError) as refused:
        probe.submit_probe(loaded, ProbeRequest(num_nodes=4))
    (problem,) = refused.value.problems
    line = (tmp_path / "spec.yaml").read_text().splitlines()[problem.line - 1]
    assert line.strip() == "nodes: 4"
    assert "more than the 3" in problem.message
