"""Which trace of a run `profile` takes, and the command that records one where there is none."""

import json
import shutil

import pytest

from slurm_jobs.formats.timings.profiler_files import trace_path
from tests.slurm_jobs.cli.command import command
from tests.slurm_jobs.report.profiles.made_up import step, write_trace
from tests.slurm_jobs.report.profiles.profiled_run import run, write_spec

__all__ = ["command", "run"]


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
