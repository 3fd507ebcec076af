"""The verb `profile`: which trace it takes, and what it prints."""

import json
import shutil

import pytest

from slurm_jobs.formats.timings.profiler_files import trace_path
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.report.profiles.made_up import event, step, write_trace


def write_spec(paths, **config):
    """The spec of the run, as far as it is read here: a training of two ranks."""
    paths.resolved_spec.parent.mkdir(exist_ok=True)
    train = {
        "run": "train",
        "resources": {"nodes": 1, "tasks_per_node": 2},
        "config": config,
    }
    paths.resolved_spec.write_text(json.dumps({"stages": {"train": train, "other": {}}}))
    paths.spec_origin.write_text(json.dumps({"spec_file": "my spec.yaml"}))


@pytest.fixture
def run(tmp_path):
    """A run folder whose second attempt recorded steps on ranks 0 and 1."""
    paths = RunPaths(tmp_path / "run")
    paths.run_dir.mkdir()
    paths.run_json.write_text("{}")
    write_spec(paths, num_steps=200, profile={"steps": [4, 6], "ranks": [0, 1]})
    for attempt, rank, end in ((1, 0, 500), (2, 0, 1000), (2, 1, 2000)):
        path = trace_path(paths.timing_dir("train", 0, attempt), rank)
        write_trace(path, step(4, 0, end), event("cpu_op", "aten::mm", 0, 400))
    return paths


def test_the_newest_attempts_profile_is_shown(run, command):
    code, out, err = command("profile", run.run_dir)
    assert (code, err) == (0, "")
    assert out.startswith("train, s00000.a0002, rank 0: 1 step\n")
    assert "No device" in out
    assert "No collective was recorded." in out


def test_a_rank_may_be_named_and_json_has_everything(run, command):
    code, out, _ = command("profile", run.run_dir, "--rank", "1", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["occupancy"]["wall_s"] == pytest.approx(2000e-6)
    assert found["steps"][0]["step"] == 4
    assert found["operators"] is None


def test_a_rank_without_a_profile_is_refused_with_the_recorded_ranks(run, command):
    trace_path(run.timing_dir("train", 0, 2), 1).unlink()
    write_spec(run, profile={"steps": [4, 6], "ranks": [0]})
    code, _, err = command("profile", run.run_dir, "--rank", "1")
    assert code == 2
    assert "stage train of run has no profile of rank 1; it has those of rank 0; " in err
    assert err.endswith(
        "next: slurm-jobs submit 'my spec.yaml' "
        "--set 'stages.train.config.profile={steps: [4, 6], ranks: [0, 1]}'\n"
    )


def test_the_next_command_repeats_the_overrides_of_the_run(run, command):
    write_spec(run, num_steps=200)
    origin = {"spec_file": "a.yaml", "overrides": ["stages.train.config.seed=2", "limit=50"]}
    run.spec_origin.write_text(json.dumps(origin))
    trace_path(run.timing_dir("train", 0, 2), 1).unlink()
    code, _, err = command("profile", run.run_dir, "--rank", "1")
    assert code == 2
    assert err.endswith(
        "next: slurm-jobs submit a.yaml --set stages.train.config.seed=2 --set limit=50 "
        "--set 'stages.train.config.profile={steps: [20, 40], ranks: [0, 1]}'\n"
    )


@pytest.mark.parametrize("odd", [None, "abc", [1, {}], {"a": 1}])
def test_odd_overrides_are_left_out(run, command, odd):
    write_spec(run, num_steps=200)
    run.spec_origin.write_text(json.dumps({"spec_file": "a.yaml", "overrides": odd}))
    trace_path(run.timing_dir("train", 0, 2), 1).unlink()
    _, _, err = command("profile", run.run_dir, "--rank", "1")
    assert "next: slurm-jobs submit a.yaml --set 'stages.train.config.profile=" in err


def test_a_rank_that_does_not_exist_is_refused_with_the_number_of_ranks(run, command):
    code, _, err = command("profile", run.run_dir, "--rank", "7")
    assert code == 2
    assert "no profile of rank 7; it has those of rank 0-1, and has 2 in all, from 0 on" in err


def test_a_stage_without_a_profile_is_refused_with_those_that_have_one(run, command):
    code, _, err = command("profile", run.run_dir, "--stage", "other")
    assert code == 2
    assert (
        "stage other of run has no profile; stage train has; `run: train` in this run: train" in err
    )


@pytest.mark.parametrize(
    ("config", "steps"), [({}, "[20, 40]"), ({"num_steps": 30, "profile": {}}, "[15, 29]")]
)
def test_a_run_without_a_profile_is_refused_with_the_command_to_record_it(
    run, command, config, steps
):
    shutil.rmtree(run.timing_stage_dir("train"))
    write_spec(run, **config)
    code, _, err = command("profile", run.run_dir)
    assert code == 2
    assert "run run has no profile; a new run records one" in err
    assert err.endswith(f"--set 'stages.train.config.profile={{steps: {steps}}}'\n")


def test_a_stage_that_the_run_lacks_is_refused_with_the_nearest_name(run, command):
    code, _, err = command("profile", run.run_dir, "--stage", "trian")
    assert code == 2
    assert "no stage `trian`; did you mean `train`? (stages: train, other)" in err


def test_a_rank_that_the_training_does_not_have_is_no_advice(run, command):
    shutil.rmtree(run.timing_stage_dir("train"))
    code, _, err = command("profile", run.run_dir, "--rank", "7")
    assert code == 2
    assert "ranks, from 0 on, and no 7" in err
    assert "ranks: [7]" not in err


def test_a_profile_that_does_not_exist_yet_comes_with_the_command_for_logs(run, command):
    shutil.rmtree(run.timing_stage_dir("train"))
    code, _, err = command("profile", run.run_dir)
    assert code == 2
    assert "its spec asks for steps 4 to 6 on rank 0-1: they are not made yet" in err
    assert err.endswith(f"next: slurm-jobs logs {run.run_dir} train\n")


def test_of_several_stages_one_must_be_named(run, command):
    path = trace_path(run.timing_dir("second", 0, 1), 0)
    write_trace(path, step(1, 0, 10))
    code, _, err = command("profile", run.run_dir)
    assert code == 2
    assert "stages second, train have profiles; name one with --stage" in err
    assert command("profile", run.run_dir, "--stage", "second")[0] == 0


def test_a_damaged_trace_is_an_error_with_the_file(run, command):
    path = trace_path(run.timing_dir("train", 0, 2), 0)
    path.write_bytes(b"damaged")
    code, _, err = command("profile", run.run_dir)
    assert code == 3
    assert f"{path}: no whole Chrome trace" in err
