"""The run that tunes a training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.resuming.given_spec import spec_of
from slurm_jobs.commands.tuning_spec import longest_phase, read_tune_run, tuning_spec
from slurm_jobs.formats.configs.command_stages import TUNE_RUN
from slurm_jobs.run.submission import create_run
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.commands.tuned_training import SPEC, load_text, made_run, wanted

__all__ = ["load_text"]


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
