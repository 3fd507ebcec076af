"""Causes that lie in what Slurm was asked for, nodes, arrays, preprocessing and around the steps.

Short runs get no advice on most of these: the tests lower the limits, and nothing else.
"""

from __future__ import annotations

import importlib
import json
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from slurm_jobs.report.stage import ask, make_report
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.run_folder.paths import RunPaths
from tests.cluster.cluster import Cluster
from tests.cluster.config import CPU_NODES
from tests.end_to_end.causes import PLANTS, Cause, spec_of
from tests.end_to_end.causes_page import compare
from tests.end_to_end.driver import Driver, kill, rank_pid, wait_for
from tests.shapes_data import make_shapes

pytestmark = [pytest.mark.slow, pytest.mark.alone]

NODE_LOCAL = "node_local_dir: /tmp\n"
LOCAL = "scheduler: local\n" + NODE_LOCAL
USER_STAGES = """\
import time
from pathlib import Path


def hold(config, context):
    index = context.slice_index
    held = bytearray(b"x") * (config["hold_mb"] << 20)
    time.sleep(config["sleep_s"][index])
    Path(context.output_dir / f"out-{index}").write_text(str(len(held)))
"""
DISK_OF_SHORT_STEPS = {"checkpoint"}
"""A save on a slow disk takes 5 % of so few and short steps, which is then truly found."""
LOOPS = "pipeline.nodes.measures.cores:_turns_until"
TOKENISES = "pipeline.preprocess.encode:SampleEncoder.tokenise"


@pytest.fixture
def advise_short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if runs of seconds were worth advice."""
    for name in (
        "stages.array_imbalance",
        "stages.queue_wait",
        "stages.slurm_requests",
        "training.around_the_steps",
        "training.checkpoint_and_evaluation",
    ):
        module = importlib.import_module(f"slurm_jobs.report.rules.{name}")
        monkeypatch.setattr(module, "SHORT_RUN_S", 0.0)
    data = importlib.import_module("slurm_jobs.report.rules.stages.tokenising")
    monkeypatch.setattr(data, "_MIN_WORK_S", 0.0)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of equal length."""
    return make_shapes(tmp_path_factory.mktemp("shapes"), num_train=512, num_heldout=4)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("uneven")
    return make_shapes(root, num_train=512, num_heldout=4, length_of=lambda i: i * i * 7 % 90)


def report_of(run_dir: Path) -> RunReport:
    paths = RunPaths(run_dir)
    asked = ask(paths)
    return make_report(paths, asked.accounting, answer=asked.answer)


def accounted_report(run_dir: Path) -> RunReport | None:
    """The report, once the accounting knows the end of every start."""
    report = report_of(run_dir)
    longest = report.stages[0].longest_s
    return report if longest.value and not longest.at_least else None


@pytest.fixture
def ask_slurm(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are made here, where limits are lowered: this process asks as the user's would."""
    for name, value in cluster.env().items():
        if name.startswith("SLURM"):
            monkeypatch.setenv(name, value)


@pytest.fixture
def run_array(on_slurm: Driver, cluster: Cluster, ask_slurm: None) -> Callable[..., RunReport]:
    """Runs an array of four on the test cluster, for `queue_s` without a node that takes it."""

    def run(sleep_s: list[float], *, hold_mb: int, queue_s: float, **resources: Any) -> RunReport:
        on_slurm.write("planted_stages.py", USER_STAGES)
        stage = {
            "run": "planted_stages:hold",
            "array": {"num_slices": 4},
            "resources": {"cpus_per_task": 1, **resources},
            "config": {"sleep_s": sleep_s, "hold_mb": hold_mb},
        }
        profile = "scheduler: slurm\nslurm: {partition: cpu}\nnode_local_dir: /tmp\n"
        on_slurm.write("cluster.yaml", profile)
        spec = {"name": "planted", "cluster": "cluster.yaml", "stages": {"work": stage}}
        on_slurm.write("spec.yaml", json.dumps(spec))
        if queue_s:
            for node in CPU_NODES:
                cluster.set_node_down(node)
        run_dir = on_slurm.submit("spec.yaml")
        submitted_s = time.monotonic()
        if queue_s:
            wait_for(lambda: time.monotonic() > submitted_s + queue_s, "a long queue")
            for node in CPU_NODES:
                cluster.resume_node(node)
        status = on_slurm.wait(run_dir)
        assert status["status"] == "completed", status
        return wait_for(partial(accounted_report, run_dir), "the accounting, which lags")

    return run


@pytest.mark.cluster
@pytest.mark.usefixtures("advise_short_runs")
def test_an_array_that_is_even_and_uses_what_it_requested_has_no_finding(
    run_array: Callable[..., RunReport],
) -> None:
    report = run_array([46.0] * 4, hold_mb=210, queue_s=0, timeout_min=1, mem_gb=0.3)
    compare("nothing, an array on Slurm that uses what it asked for", report, frozenset())


@pytest.mark.cluster
@pytest.mark.usefixtures("advise_short_runs")
def test_a_queue_a_slow_task_and_requests_far_above_use_are_found(
    run_array: Callable[..., RunReport],
) -> None:
    """All at once: none hides another."""
    report = run_array([1.0, 1.0, 1.0, 10.0], hold_mb=1, queue_s=20, timeout_min=30, mem_gb=2)
    expected = {"queue-wait", "array-imbalance", "memory-request", "time-request"}
    what = "nodes down for 20 s, then one of four array tasks takes 10 s, of 30 min and 2 GB asked"
    compare(what, report, expected)


@pytest.mark.cluster
def test_memory_above_the_request_is_found_where_no_limit_is_enforced(
    run_array: Callable[..., RunReport],
) -> None:
    """In an array that runs for seconds, which other rules on requests do not judge."""
    report = run_array([3.0] * 4, hold_mb=600, queue_s=0, timeout_min=1, mem_gb=0.5)
    compare("array tasks hold 600 MB, of 0.5 GB asked", report, {"memory-exceeded"})
    assert report.findings[0].next_knob.startswith("mem_gb: 1 ")


@pytest.mark.cluster
@pytest.mark.usefixtures("ask_slurm")
def test_the_training_on_a_node_that_probes_found_slow_names_the_node(
    on_slurm: Driver, cluster: Cluster
) -> None:
    shapes = make_shapes(on_slurm.folder / "shapes", num_train=512, num_heldout=4)
    for path in (shapes, *shapes.rglob("*")):
        shutil.chown(path, cluster.config.user)
    data = {"plain": shapes / "consolidate", "held_out": shapes, "big": shapes}
    on_slurm.write("local.yaml", "scheduler: slurm\nslurm: {partition: high}\n" + NODE_LOCAL)
    slowed = {"where": LOOPS, "native_s": 0.2, "node": "cpu2"}  # of a window of 0.3 s
    on_slurm.write("spec.yaml", spec_of(Cause(name="", delays=[slowed]), data))
    for node in ("cpu1", "cpu2", "v1"):
        probed = on_slurm.json("probe", "spec.yaml", "--file-mb", "8", "--nodelist", node)
        assert [probe["node"] for probe in probed["nodes"]] == [node]
    for node, what, expected in (
        ("cpu1", "nothing, on one of three nodes of which another is slow", set()),
        (
            "cpu2",
            "the cores of one of three probed nodes give a third of their turns",
            {"slow-node"},
        ),
    ):
        where = f"stages.train.resources.slurm.nodelist={node}"
        run_dir = on_slurm.submit("spec.yaml", "--set", where)
        status = on_slurm.wait(run_dir)
        assert status["status"] == "completed", on_slurm.run("logs", str(run_dir), "train").stdout
        compare(what, report_of(run_dir), expected)


@pytest.mark.usefixtures("advise_short_runs")
def test_start_up_that_takes_longer_than_the_steps_is_found(local: Driver, shapes: Path) -> None:
    report = report_of(_train(local, shapes, Cause(name="", config={"num_steps": 30})))
    expected = {"around-the-steps", "time-request"}
    what = "thirty steps after a start-up of seconds, of 10 min asked"
    compare(what, report, expected, DISK_OF_SHORT_STEPS)


def test_steps_that_a_kill_had_done_again_are_found(local: Driver, shapes: Path) -> None:
    saves = {"every_min": None, "every_steps": 40, "mode": "sync"}
    config = {"num_steps": 80, "global_batch_size": 16, "checkpoint": saves}
    run_dir = _submit(local, shapes, Cause(name="", config=config))
    steps = steps_path(RunPaths(run_dir).timing_dir("train", 0, 1), 0)
    wait_for(lambda: steps.exists() and len(read_steps(steps).steps) >= 55, "step 55")
    kill(rank_pid(run_dir, "train", "s00000.a0001", 0) or 0)
    assert local.wait(run_dir)["status"] == "failed"
    local.run("resume", str(run_dir))
    assert local.wait(run_dir)["status"] == "completed"
    what = "a kill fifteen steps after a checkpoint"
    compare(what, report_of(run_dir), {"repeated-steps"}, DISK_OF_SHORT_STEPS)


PREPROCESSING = {
    "nothing, a preprocessing": ({}, [], set()),
    "a third of the texts longer than `max_tokens`, and dropped": (
        {"max_tokens": 80, "too_long": "drop", "max_too_long_share": 1.0},
        [],
        {"left-out"},
    ),
    "a tokenizer that takes 20 ms a text": (
        {},
        [{"where": TOKENISES, "sleep_s": 0.02}],
        {"tokenising"},
    ),
}
"""By what is planted: config, delays, and the rules that must find it."""


@pytest.mark.parametrize("what", PREPROCESSING)
@pytest.mark.usefixtures("advise_short_runs")
def test_causes_in_preprocessing_are_found(local: Driver, uneven: Path, what: str) -> None:
    config, delays, expected = PREPROCESSING[what]
    given = {"manifest": uneven / "render/train.jsonl", "processor": uneven / "render/processor"}
    stage = {
        "run": "preprocess",
        "environment": {"PYTHONPATH": str(PLANTS), "TEST_PLANTS": json.dumps(delays)},
        "resources": {"timeout_min": 1},
        "config": {**given, **config, "max_reject_share": 1.0},
    }
    local.write("local.yaml", LOCAL)
    spec = {"name": "planted", "cluster": "local.yaml", "stages": {"preprocess": stage}}
    run_dir = local.submit(str(local.write("spec.yaml", json.dumps(spec, default=str))))
    assert local.wait(run_dir)["status"] == "completed"
    compare(what, report_of(run_dir), expected, {"time-request"})


def _submit(local: Driver, shapes: Path, cause: Cause) -> Path:
    data = {"plain": shapes / "consolidate", "held_out": shapes, "big": shapes}
    local.write("local.yaml", LOCAL)
    return local.submit(str(local.write("planted.yaml", spec_of(cause, data))))


def _train(local: Driver, shapes: Path, cause: Cause) -> Path:
    run_dir = _submit(local, shapes, cause)
    assert local.wait(run_dir)["status"] == "completed"
    return run_dir
