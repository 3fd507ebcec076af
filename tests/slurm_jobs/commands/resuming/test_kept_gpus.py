"""Types of GPU to which slices that run again are bound."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.commands.resuming.kept_gpus import kinds_begun_on, kinds_kept
from slurm_jobs.commands.resuming.slice_requests import with_kinds
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Done, Plan
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile


def plan(
    kinds: dict[str, dict[int, str]] | None = None,
    *,
    gpu: tuple[str, ...] = ("a100", "v100"),
    max_running: int | None = None,
) -> Plan:
    """What is missing of `g`, of whose five slices the first is complete, and of `t`."""
    resources = {"gpus_per_node": 1, "gpu": list(gpu)}
    array = {"num_slices": 5, "max_running": max_running}
    stages = {
        "g": {"shell": "x", "array": array, "resources": resources},
        "t": {"shell": "x", "after": "g", "resources": resources},
    }
    spec = RunSpec.model_validate({"name": "a", "stages": stages})
    done = Done(completed={"g": frozenset({0})})
    return make_plan(spec, ClusterProfile(), done=done, requests=with_kinds({}, kinds or {}))


def begin(paths: RunPaths, stage: str, index: int, gpu: str, fingerprint: str) -> None:
    path = paths.attempt(stage, index, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"started_unix_s": 1.0, "fingerprint": fingerprint, "gpu": gpu}
    write_json_atomic(path, record)


def test_each_slice_that_runs_again_keeps_to_the_type_that_it_was_begun_on(tmp_path: Path) -> None:
    paths, first = RunPaths(tmp_path), plan()
    for index, gpu in enumerate(("v100", "v100", "a100", "v100")):  # nothing is known of slice 4
        begin(paths, "g", index, gpu, first.stage("g").fingerprint)
    begin(paths, "t", 0, "a100", "that of other work")
    kinds = kinds_begun_on(paths, first, {})
    assert kinds == {"g": {1: "v100", 2: "a100", 3: "v100"}}
    then = plan(kinds)
    assert [(job.stage, job.slices, job.resources.gpu_choice) for job in then.jobs] == [
        ("g", (1, 3), ("v100",)),
        ("g", (2,), ("a100",)),
        ("g", (4,), ("a100", "v100")),
        ("t", (0,), ("a100", "v100")),
    ]
    assert kinds_kept(then) == [
        "g: gpu v100 only for slices 1,3 (started on it)",
        "g: gpu a100 only for slices 2 (started on it)",
    ]


def test_slices_that_were_all_begun_on_one_type_stay_one_job(tmp_path: Path) -> None:
    paths, first = RunPaths(tmp_path), plan()
    for index in range(1, 5):
        begin(paths, "g", index, "v100", first.stage("g").fingerprint)
    then = plan(kinds_begun_on(paths, first, {}))
    assert [job.stage for job in then.jobs] == ["g", "t"]
    assert kinds_kept(then) == ["g: gpu v100 only (started on it)"]


def test_a_type_that_the_stage_takes_no_longer_binds_nothing(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    for gpu in (("a100", "h100"), ("a100",)):
        now = plan(gpu=gpu)
        begin(paths, "g", 1, "v100", now.stage("g").fingerprint)
        assert kinds_begun_on(paths, now, {}) == {}
    assert kinds_kept(plan()) == []


def test_jobs_of_one_stage_on_several_types_keep_its_throttle_together() -> None:
    kinds = {"g": {1: "v100", 2: "a100", 3: "v100"}}
    shared = [job.max_running for job in plan(kinds, max_running=3).jobs if job.stage == "g"]
    assert shared == [1, 1, 1]
    after = [job.after_previous for job in plan(kinds, max_running=2).jobs if job.stage == "g"]
    assert after == [False, True, True]
