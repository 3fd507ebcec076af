"""What a resume asks for, and which slices and types of GPU it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.commands.read_spec import load
from slurm_jobs.commands.resume import (
    ResumeRequest,
    kinds_begun_on,
    kinds_kept,
    resume,
    slices_named,
)
from slurm_jobs.commands.slice_requests import with_kinds
from slurm_jobs.commands.submit import submit
from slurm_jobs.plan import Done, Plan, PlannedStage, make_plan
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.errors import InputError
from slurm_jobs.shared.files import read_json, write_json_atomic
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import LOCAL, ClusterProfile
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm, queue_row

SPEC = """\
name: s
cluster: auto
stages:
  a:
    shell: "true"
    matrix: {r: [1]}
    resources: {mem_gb: 4, timeout_min: 10}
    on_resume: {raise_mem_gb: 2, raise_timeout_min: 2}
"""


@pytest.fixture
def raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run of one combination, which failed after its resources had been raised."""
    slurm = make_fake_slurm(tmp_path / "bin", monkeypatch)
    for program in ("scontrol", "sinfo", "sacctmgr"):
        slurm.says(program, "")
    slurm.says("sbatch", "Submitted batch job 1")
    (tmp_path / "spec.yaml").write_text(SPEC)
    paths = submit(load(tmp_path / "spec.yaml")).paths
    plan = read_json(paths.plan(1))
    plan["stages"][0]["resources"] |= {"mem_gb": 16.0, "timeout_min": 90.0}
    write_json_atomic(paths.plan(1), plan)
    slurm.says("squeue", queue_row("1", "FAILED"))
    return paths


def asked(paths: RunPaths, override: str) -> tuple[float | None, float]:
    request = ResumeRequest(overrides=(override,), update_spec=True, dry_run=True)
    (job,) = resume(paths.run_dir, request).plan.jobs
    return job.resources.mem_gb, job.resources.timeout_min


@pytest.mark.parametrize("name", ["a", "a-1"])
def test_what_was_raised_is_as_set_by_a_combinations_name_or_its_stages(
    raised: RunPaths, name: str
) -> None:
    assert asked(raised, f"stages.{name}.retries=1") == (16, 90)
    assert asked(raised, f"stages.{name}.resources.mem_gb=2") == (2, 90)
    assert asked(raised, f"stages.{name}.resources.timeout_min=5") == (16, 5)


@pytest.mark.parametrize(
    "whole",
    [
        "stages.a.resources={SET}",
        "stages.a={shell: 'true', matrix: {r: [1]}, resources: {SET}, on_resume: {RAISE}}",
        "stages={a: {shell: 'true', matrix: {r: [1]}, resources: {SET}, on_resume: {RAISE}}}",
    ],
)
def test_what_was_raised_stays_where_what_is_set_whole_does_not_say_it(
    raised: RunPaths, whole: str
) -> None:
    override = whole.replace("RAISE", "raise_mem_gb: 2, raise_timeout_min: 2")
    assert asked(raised, override.replace("SET", "mem_gb: 2")) == (2, 90)
    assert asked(raised, override.replace("SET", "mem_gb: 2, timeout_min: 5")) == (2, 5)


@pytest.fixture
def stages(tmp_path: Path) -> tuple[PlannedStage, ...]:
    file = tmp_path / "again.yaml"
    a = "{shell: x, matrix: {n: [2, 9]}, array: {num_slices: '${matrix.n}'}}"
    file.write_text(f"name: s\ncluster: local\nstages: {{a: {a}, z: {{shell: x}}}}\n")
    return make_plan(load(file).spec, LOCAL).stages


def test_again_takes_the_name_of_a_combination_or_for_all_of_them_that_of_the_file(
    stages: tuple[PlannedStage, ...],
) -> None:
    assert slices_named(["a-2"], stages) == {"a-2": {0, 1}}
    assert slices_named(["a", "z"], stages) == {"a-2": {0, 1}, "a-9": set(range(9)), "z": {0}}
    assert slices_named(["a:1", "a-9:7"], stages) == {"a-2": {1}, "a-9": {1, 7}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:0-3", "`a-2` has the slices 0 to 1: a-2:0-1"),
        ("b", "no stage `b` (stages: a-2, a-9, z)"),
        (":0", "no stage ``"),
    ],
)
def test_again_of_what_is_not_there_is_refused(
    stages: tuple[PlannedStage, ...], text: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        slices_named([text], stages)
    assert str(caught.value).startswith(f"--again {text}: {said}")


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
