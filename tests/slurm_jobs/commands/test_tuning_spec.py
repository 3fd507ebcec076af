"""The run that tunes a training, and the spec that comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.resuming.given_spec import spec_of
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.tuned_spec import write_tuned_spec
from slurm_jobs.commands.tuning_spec import TuningOptions, longest_phase, read_tune_run, tuning_spec
from slurm_jobs.formats.configs.command_stages import TUNE_RUN
from slurm_jobs.run.submission import create_run
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.tuning.trial_model import budget_settings

SPEC = """\
name: shapes   # a name
cluster: local
stages:
  render: {shell: "true"}
  prepare:
    run: preprocess
    after: render
    array: {num_slices: 2}
    config:
      manifest: "${render.output_dir}/rows.jsonl"
      processor: "${render.output_dir}/processor"
  merge: {run: consolidate, after: prepare}
  train:
    run: train
    after: merge
    nsight: true
    resources: {cpus_per_task: 3, timeout_min: 600, tasks_per_node: 2}
    config:
      device: cpu
      num_loader_threads: 1   # few
      num_steps: 100
      trackers: {use: [tensorboard]}
  report: {run: report, after: train}
"""
PHASES = """\
      phases:
        - {name: first, num_steps: 10, num_microbatches: 2}
        - {name: second, num_steps: 50}
"""


def wanted(**values: Any) -> TuningOptions:
    return TuningOptions(**{"stage": None, "budget_min": 12.0, "data_run": None, **values})


@pytest.fixture
def load_text(tmp_path: Path) -> Callable[..., LoadedSpec]:
    def make(text: str = SPEC, overrides: tuple[str, ...] = ()) -> LoadedSpec:
        file = tmp_path / "spec.yaml"
        file.write_text(text)
        return load(file, overrides=overrides)

    return make


def made_run(loaded: LoadedSpec, **values: Any) -> RunPaths:
    tuned = tuning_spec(loaded, wanted(**values))
    assert loaded.profile is not None
    return create_run(tuned, loaded.profile)


def test_the_stages_before_the_training_stay_and_those_after_it_go(load_text) -> None:
    spec = tuning_spec(load_text(), wanted()).spec
    assert list(spec.stages) == ["render", "prepare", "merge", "train"]
    assert spec.stages["prepare"] == load_text().spec.stages["prepare"]
    stage = spec.stages["train"]
    assert (stage.run, stage.after, stage.nsight) == (TUNE_RUN, {"merge": "afterok"}, False)
    assert stage.resources.tasks_per_node == 2
    assert stage.resources.timeout_min == 12 + 15
    assert stage.config["budget_min"] == 12
    assert stage.config["cpus_per_task"] == 3
    assert stage.config["train"]["num_loader_threads"] == 1
    assert "trackers" not in stage.config["train"]
    assert spec.name == "shapes-tune"


def test_a_spec_without_one_plain_training_is_refused_with_what_to_do(load_text) -> None:
    none = SPEC.replace("run: train", "run: 'a:b'").replace("    nsight: true\n", "")
    two = (
        SPEC
        + "  more: {run: train, after: merge, resources: {tasks_per_node: 2}, "
        + "config: {num_steps: 3, device: cpu}}\n"
    )
    with pytest.raises(InputError, match=r"has no training"):
        tuning_spec(load_text(none), wanted())
    with pytest.raises(InputError, match=r"several trainings \(train, more\); name one"):
        tuning_spec(load_text(two), wanted())
    with pytest.raises(InputError, match="no training is called so"):
        tuning_spec(load_text(), wanted(stage="report"))
    assert "more" in tuning_spec(load_text(two), wanted(stage="more")).spec.stages


def test_an_array_of_trainings_is_refused(load_text) -> None:
    text = SPEC.replace("    nsight: true\n", "    array: {num_slices: 2}\n")
    try:
        loaded = load_text(text)
    except InputError:
        return  # specs may refuse it before
    with pytest.raises(InputError, match="an array of trainings"):
        tuning_spec(loaded, wanted())


def finished_run(tmp_path: Path, stages: dict[str, Any]) -> Path:
    paths = RunPaths(tmp_path / "done")
    paths.resolved_spec.parent.mkdir(parents=True)
    paths.resolved_spec.write_text(json.dumps({"stages": stages}))
    for name in stages:
        paths.output_dir(name).mkdir(parents=True)
        (paths.output_dir(name) / "dataset.json").touch()
    return paths.run_dir


def test_the_data_of_a_finished_run_stand_in_for_the_stages_before(load_text, tmp_path) -> None:
    run_dir = finished_run(tmp_path, {"merge": {"run": "consolidate"}})
    spec = tuning_spec(load_text(), wanted(data_run=run_dir)).spec
    assert list(spec.stages) == ["train"]
    assert spec.stages["train"].after == {}
    assert spec.stages["train"].config["train"]["dataset"] == str(run_dir / "data" / "merge")


def test_data_of_a_run_are_refused_when_the_spec_names_another_data_set(
    load_text, tmp_path
) -> None:
    run_dir = finished_run(tmp_path, {"merge": {"run": "consolidate"}})
    place = "stages.train.config.dataset"
    loaded = load_text()
    loaded.spec.stages["train"].config["dataset"] = str(tmp_path / "mine")
    with pytest.raises(InputError, match=rf"{place} names another data set.*--set {place}=null"):
        tuning_spec(loaded, wanted(data_run=run_dir))
    spec = tuning_spec(load_text(overrides=(f"{place}=null",)), wanted(data_run=run_dir)).spec
    assert spec.stages["train"].config["train"]["dataset"] == str(run_dir / "data" / "merge")


def test_a_run_without_a_finished_data_set_is_refused(load_text, tmp_path) -> None:
    run_dir = finished_run(tmp_path, {"merge": {"run": "consolidate"}})
    (run_dir / "data" / "merge" / "dataset.json").unlink()
    with pytest.raises(InputError, match="has not made its data set yet") as refused:
        tuning_spec(load_text(), wanted(data_run=run_dir))
    assert str(refused.value).endswith(f"\nnext: slurm-jobs status {run_dir}")


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


def test_epochs_count_where_no_phase_says_its_steps() -> None:
    assert longest_phase([{"num_epochs": 1.0}, {"num_epochs": 3.0}, {"num_epochs": 2.0}]) == 1
    assert longest_phase([{"num_steps": 5}, {"num_steps": 5}]) == 0


def test_a_run_that_tunes_nothing_is_no_target(load_text) -> None:
    loaded = load_text()
    run_dir = create_run(loaded, loaded.profile).run_dir
    with pytest.raises(InputError, match="tunes nothing"):
        read_tune_run(run_dir)


def test_a_run_that_tunes_is_not_made_the_training_by_its_file(load_text) -> None:
    with pytest.raises(InputError, match="tunes a training"):
        spec_of(made_run(load_text()), (), update_spec=True)
