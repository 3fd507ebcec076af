from collections.abc import Callable

import pytest

Check = Callable[..., list[str]]

TRAIN = """\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {{{resources}}}
    config: {{dataset: ., num_steps: 10, {config}}}
"""


def train(resources: str, config: str) -> str:
    return TRAIN.format(resources=resources, config=config)


def test_a_sound_training_stage_has_no_problem(check: Check) -> None:
    assert check(train("tasks_per_node: 2", "device: cpu")) == []
    assert check(train("tasks_per_node: 4, gpus_per_node: 4, gpu: [a100, v100]", "")) == []
    assert check(train("", "device: cpu, strategy: single")) == []


@pytest.mark.parametrize(
    ("resources", "config", "place", "message"),
    [
        ("tasks_per_node: 2", "", "6:5", "gpus_per_node is 0; ask for one a rank"),
        ("tasks_per_node: 4, gpus_per_node: 2", "", "6:5", "gpus_per_node is 2"),
        ("", "device: cpu", "7:5", "needs two ranks or more"),
        ("nodes: 2", "device: cpu, strategy: single", "7:64", "`strategy: single` uses one"),
        ("tasks_per_node: 3", "device: cpu", "7:5", "take a multiple of 3"),
        ("tasks_per_node: 2", "device: cpu, num_lanes: 7", "7:65", "give a divisor"),
        ("tasks_per_node: 2, gpu: a100", "device: cpu", "6:36", "say how many"),
    ],
)
def test_what_contradicts_the_resources_is_told(
    check: Check, resources: str, config: str, place: str, message: str
) -> None:
    (line,) = check(train(resources, config))
    assert line.startswith(f"{place}: ")
    assert message in line


@pytest.mark.parametrize(
    ("stage", "place", "message"),
    [
        ("{run: train, shell: make}", "4:19", "`run` and `shell`; give one"),
        ("{retries: 1}", "4:3", "neither `run`"),
        ("{run: null}", "4:3", "neither `run`"),
        ("{run: trian}", "4:12", "neither a built-in stage"),
        ("{run: 'a.b: c'}", "4:12", "neither a built-in stage"),
        ("{shell: ''}", "4:14", "must not be empty"),
    ],
)
def test_a_stage_runs_one_thing(check: Check, stage: str, place: str, message: str) -> None:
    lines = check(f"name: a\ncluster: local\nstages:\n  s: {stage}\n")
    assert any(line.startswith(f"{place}: ") and message in line for line in lines), lines


def test_a_misspelt_run_is_one_problem(check: Check) -> None:
    (line,) = check("name: a\ncluster: local\nstages:\n  s: {rnu: report}\n")
    assert "did you mean `run`?" in line


def test_constraint_and_several_gpu_types_are_told_apart_only_by_features(check: Check) -> None:
    resources = "gpus_per_node: 1, gpu: [a100, v100], slurm: {constraint: '%s'}"
    text = "name: a\ncluster: local\nstages:\n  s:\n    shell: make\n    resources: {%s}\n"
    assert check(text % (resources % "ib&bigmem")) == []
    (line,) = check(text % (resources % "[ib|eth]"))
    assert "6:74: " in line
    assert "joined by &" in line


def test_names_of_stages_that_are_one_name_in_a_shell_are_refused(check: Check) -> None:
    stages = "{a-b: {shell: make}, A_b: {shell: make}}"
    (line,) = check(f"name: a\ncluster: local\nstages: {stages}\n")
    assert line.startswith("3:30: stages `a-b` and `A_b` differ only in case")
