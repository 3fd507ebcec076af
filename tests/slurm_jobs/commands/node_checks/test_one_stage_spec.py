"""The stage that a probe takes its place from, and the number of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.cluster.limits import ClusterLimits
from slurm_jobs.commands.node_checks import one_stage_spec
from slurm_jobs.commands.node_checks import submit_probe as probe
from slurm_jobs.commands.node_checks.one_stage_spec import source_stage
from slurm_jobs.commands.node_checks.submit_probe import ProbeRequest
from slurm_jobs.spec.checked_spec import LoadedSpec
from tests.slurm_jobs.commands.node_checks.probe_spec import known_limits, loaded_spec, spec

__all__ = ["spec"]


def test_the_training_is_meant_where_no_stage_is_named(tmp_path: Path, spec: str) -> None:
    loaded = loaded_spec(tmp_path, spec)
    assert source_stage(loaded.spec, None) == "learn"
    assert source_stage(loaded.spec, "prepare") == "prepare"
    with pytest.raises(InputError, match="did you mean `learn`"):
        source_stage(loaded.spec, "lern")


def test_several_stages_that_differ_are_not_guessed_among(tmp_path: Path) -> None:
    text = "name: a\ncluster: local\nstages:\n  x: {shell: 'true', resources: {cpus_per_task: 2}}\n"
    several = loaded_spec(tmp_path, text + "  y: {shell: 'true'}\n")
    with pytest.raises(InputError, match="x, y; name one with --stage"):
        source_stage(several.spec, None)
    alike = loaded_spec(tmp_path, text + "  y: {shell: 'true', resources: {cpus_per_task: 2}}\n")
    assert source_stage(alike.spec, None) == "x"


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
    assert _num_nodes(loaded_spec(tmp_path, spec), monkeypatch, known_limits(there)) == taken


def test_as_many_nodes_are_taken_as_are_named(
    tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loaded_spec(tmp_path, spec)
    assert _num_nodes(loaded, monkeypatch, known_limits(9), nodelist="n[1-3]") == 3
    assert _num_nodes(loaded, monkeypatch, known_limits(9), nodelist="n[1-3]", num_nodes=1) == 1
    with pytest.raises(InputError, match=r"n\[1-"):
        _num_nodes(loaded, monkeypatch, known_limits(9), nodelist="n[1-")
