"""The spec that comes of a tuning: the user's own text with the changes."""

from __future__ import annotations

import json

from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.tuned_spec import write_tuned_spec
from slurm_jobs.commands.tuning_spec import read_tune_run
from slurm_jobs.tuning.trial_model import budget_settings
from tests.slurm_jobs.commands.tuned_training import SPEC, load_text, made_run

__all__ = ["load_text"]

PHASES = """\
      phases:
        - {name: first, num_steps: 10, num_microbatches: 2}
        - {name: second, num_steps: 50}
"""


def test_the_new_spec_is_the_users_own_text_with_the_changes(load_text) -> None:
    run = read_tune_run(made_run(load_text()).run_dir)
    run.paths.output_dir("train").mkdir(parents=True)
    kept = [
        {"key": "num_loader_threads", "value": 4},
        {"key": "sharding.reshard_after_forward", "value": False},
        {"key": "compile", "value": {}},
    ]
    spec = write_tuned_spec(run, kept)
    assert not spec.is_whole, spec.why
    assert spec.path.read_text() == SPEC.replace(
        "num_loader_threads: 1   # few", "num_loader_threads: 4   # few"
    ).replace(
        "[tensorboard]}\n",
        "[tensorboard]}\n      sharding: {reshard_after_forward: false}\n      compile: {}\n",
    )


def test_line_ends_of_windows_stay(tmp_path) -> None:
    (tmp_path / "spec.yaml").write_bytes(SPEC.replace("\n", "\r\n").encode())
    run = read_tune_run(made_run(load(tmp_path / "spec.yaml")).run_dir)
    run.paths.output_dir("train").mkdir(parents=True)
    kept = [{"key": "num_loader_threads", "value": 4}, {"key": "compile", "value": {}}]
    spec = write_tuned_spec(run, kept)
    assert not spec.is_whole, spec.why
    new = spec.path.read_bytes().decode()
    assert new.count("\r\n") == new.count("\n") == SPEC.count("\n") + 1
    assert "num_loader_threads: 4   # few\r\n" in new


def test_overrides_of_changed_keys_are_dropped_and_the_others_are_kept(load_text) -> None:
    sets = ("stages.train.config.num_loader_threads=2", "stages.train.config.num_steps=50")
    run = read_tune_run(made_run(load_text(overrides=sets)).run_dir)
    run.paths.output_dir("train").mkdir(parents=True)
    spec = write_tuned_spec(run, [{"key": "num_loader_threads", "value": 4}])
    assert not spec.is_whole, spec.why
    assert spec.overrides == sets[1:]
    assert "num_loader_threads: 4" in spec.path.read_text()


def test_what_a_resume_set_for_the_tuning_is_no_part_of_the_spec(load_text) -> None:
    sets = ("stages.train.config.num_steps=50",)
    paths = made_run(load_text(overrides=sets))
    origin = json.loads(paths.spec_origin.read_text())
    origin["overrides"] += budget_settings("train", 60)
    assert origin["overrides"][-1] == "stages.train.resources.timeout_min=75"
    paths.spec_origin.write_text(json.dumps(origin))
    assert read_tune_run(paths.run_dir).overrides == sets


def test_a_time_limit_of_the_submit_stays_where_a_resume_sets_the_same(load_text) -> None:
    sets = ("stages.train.resources.timeout_min=35",)
    paths = made_run(load_text(overrides=sets))
    resumed = [*budget_settings("train", 20), "stages.train.resources.timeout_min=60"]
    assert sets[0] in resumed
    origin = json.loads(paths.spec_origin.read_text())
    paths.spec_origin.write_text(
        json.dumps({**origin, "overrides": [*origin["overrides"], *resumed]})
    )
    assert read_tune_run(paths.run_dir).overrides == sets


def test_an_alias_makes_the_new_spec_whole_and_it_says_so(load_text, tmp_path) -> None:
    text = SPEC.replace("    config:\n      device", "    config: &it\n      device")
    text += "  again: {run: train, after: merge, resources: {tasks_per_node: 2}, config: *it}\n"
    run = read_tune_run(made_run(load_text(text), stage="train").run_dir)
    run.paths.output_dir("train").mkdir(parents=True)
    spec = write_tuned_spec(run, [{"key": "num_loader_threads", "value": 4}])
    assert spec.is_whole
    assert "others" in spec.why
    (tmp_path / "whole.yaml").write_text(spec.path.read_text())
    whole = load(tmp_path / "whole.yaml").spec.stages
    assert whole["train"].config["num_loader_threads"] == 4
    assert whole["again"].config["num_loader_threads"] == 1


def test_one_combination_of_a_matrix_makes_the_new_spec_whole(load_text, tmp_path) -> None:
    text = SPEC.replace("    nsight: true\n", "    matrix: {lr: [1e-3, 2e-3]}\n")
    text = text.replace(
        "num_steps: 100", 'num_steps: 100\n      optimizer: {learning_rate: "${matrix.lr}"}'
    )
    run = read_tune_run(made_run(load_text(text), stage="train-0_001").run_dir)
    run.paths.output_dir("train-0_001").mkdir(parents=True)
    spec = write_tuned_spec(run, [{"key": "num_loader_threads", "value": 4}])
    assert spec.is_whole
    assert "matrix" in spec.why
    (tmp_path / "whole.yaml").write_text(spec.path.read_text())
    stages = load(tmp_path / "whole.yaml").spec.stages
    assert stages["train-0_001"].config["num_loader_threads"] == 4
    assert stages["train-0_002"].config["num_loader_threads"] == 1


def test_of_phases_the_longest_is_tried_and_its_own_keys_are_set_there(load_text) -> None:
    text = SPEC.replace("      num_steps: 100\n", PHASES)
    run = read_tune_run(made_run(load_text(text)).run_dir)
    run.paths.output_dir("train").mkdir(parents=True)
    assert run.phase == 1
    kept = [{"key": "num_microbatches", "value": 2}, {"key": "num_loader_threads", "value": 2}]
    spec = write_tuned_spec(run, kept)
    assert not spec.is_whole, spec.why
    new = spec.path.read_text()
    assert "{name: second, num_steps: 50, num_microbatches: 2}" in new
    assert "num_loader_threads: 2   # few" in new
