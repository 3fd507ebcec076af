"""The stage `probe`: on one node, on several over gloo, and when it is stopped."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import pytest

from pipeline.nodes.probe_stage import _node_name, asked_cores, run
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.node_records.probe_files import ProbePaths, read_probe
from slurm_jobs.formats.node_records.probe_measures import MEASURES, NodeProbe
from slurm_jobs.worker.job_identity import free_port
from tests.contexts import make_context

SMALL = {"budget_s": 2.0, "file_mb": 4, "num_small_files": 5}


def _kept(root: Path) -> NodeProbe:
    (path,) = ProbePaths(root).files_of("node-0")
    return read_probe(path)


def test_a_node_is_measured_and_its_record_kept_next_to_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")
    context = make_context("probe", tmp_path / "run")
    result = run(SMALL, context)
    probe = _kept(tmp_path)
    assert result["node"] == probe.node == "node-0"
    assert probe.run_id == "test"
    assert probe.num_asked_cores == 2
    assert {"cores_usable", "local_read_bytes_per_s", "shared_open_s"} <= set(probe.numbers)
    assert set(probe.numbers) <= {measure.name for measure in MEASURES}
    assert "--nodes 2" in probe.reasons["network"]
    # What is missing has its reason: a reader never wonders whether it was looked at.
    without = {m.group for m in MEASURES if m.name not in probe.numbers}
    groups_with = {m.group for m in MEASURES if m.name in probe.numbers}
    assert without - groups_with - {"nccl"} <= set(probe.reasons)
    left = [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".json"]
    assert left == []


def test_the_whole_keeps_to_its_budget(tmp_path: Path) -> None:
    start_s = time.monotonic()
    run(
        {**SMALL, "file_mb": 512, "num_small_files": 10_000},
        make_context("probe", tmp_path / "run"),
    )
    assert time.monotonic() - start_s < 25  # 2 s, at least three repeats each, and imports


def test_several_tasks_on_a_node_are_refused(tmp_path: Path) -> None:
    context = make_context("probe", tmp_path / "run", num_local_ranks=2, num_ranks=2)
    with pytest.raises(StageConfigError, match="tasks_per_node: 1"):
        run(SMALL, context)


def test_a_probe_with_a_stop_request_fails_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.nodes.probe_stage.stop_requested", lambda: True)
    with pytest.raises(StageError, match="asked to stop"):
        run(SMALL, make_context("probe", tmp_path / "run"))
    assert ProbePaths(tmp_path).files_of("node-0") == []


def test_a_stopped_probe_keeps_its_measurements_and_names_the_missing_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = itertools.count()
    monkeypatch.setattr("pipeline.nodes.probe_stage.stop_requested", lambda: next(asked) == 2)
    with pytest.raises(StageError, match="before these were measured: link, local, shared"):
        run(SMALL, make_context("probe", tmp_path / "run"))
    probe = _kept(tmp_path)
    assert {"cores_usable", "other_busy_cores"} <= set(probe.numbers)
    assert "local_read_bytes_per_s" not in probe.numbers
    missing = {name for name, reason in probe.reasons.items() if "--minutes gives more" in reason}
    assert missing == {
        *("link", "local", "shared", "matmul", "host_to_device", "network", "nccl"),
    }
    assert probe.is_partial


def test_a_probe_killed_between_two_measures_leaves_the_same_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr("pipeline.nodes.probe_stage.measure_links", kill)
    with pytest.raises(SystemExit):
        run(SMALL, make_context("probe", tmp_path / "run"))
    probe = _kept(tmp_path)
    assert "cores_usable" in probe.numbers
    assert "--minutes gives more" in probe.reasons["link"]


def test_a_node_of_the_local_scheduler_has_the_name_of_the_host() -> None:
    assert _node_name("local0", None) == _node_name("local1", "n7") == os.uname().nodename
    assert _node_name("local0", "local0") == "local0"  # Slurm calls one so
    assert _node_name("gpu-01", "gpu-01") == _node_name("gpu-01", None) == "gpu-01"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_probe_folder_that_cannot_be_written_is_refused_before_measuring(
    tmp_path: Path,
) -> None:
    ProbePaths(tmp_path).own_dir.mkdir(mode=0o500)
    with pytest.raises(StageError, match="name another folder"):
        run(SMALL, make_context("probe", tmp_path / "run"))


def test_a_file_instead_of_the_folder_of_probes_is_refused(tmp_path: Path) -> None:
    ProbePaths(tmp_path).own_dir.write_text("")
    with pytest.raises(StageError, match="name another folder"):
        run(SMALL, make_context("probe", tmp_path / "run"))


def test_nodes_that_cannot_meet_keep_what_each_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other one never comes.
    monkeypatch.setattr("pipeline.nodes.measures.network.JOIN_MIN", 0.01)
    context = make_context(
        "probe", tmp_path / "run", num_ranks=2, num_nodes=2, main_port=free_port()
    )
    run(SMALL, context)
    probe = _kept(tmp_path)
    assert "could not talk to each other" in probe.reasons["network"]
    assert "local_read_bytes_per_s" in probe.numbers


def test_a_missing_package_is_named_and_the_rest_is_still_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pipeline.nodes.measures.devices", "pipeline.nodes.measures.network"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # import raises ModuleNotFoundError
    run(SMALL, make_context("probe", tmp_path / "run"))
    probe = _kept(tmp_path)
    assert "package torch is missing" in probe.reasons["matmul"]
    assert "pip install" in probe.reasons["matmul"]
    assert "local_read_bytes_per_s" in probe.numbers


def test_requested_cores_come_from_slurm_or_from_the_allowed_cores() -> None:
    assert asked_cores("16") == 16
    assert asked_cores(None) >= 1
