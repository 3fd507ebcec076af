"""A training's config that contradicts its resources or its stage."""

import pytest

from tests.slurm_jobs.spec.checks.stages.trainings import CPUS, phases, train
from tests.slurm_jobs.spec.conftest import Check


@pytest.mark.parametrize(
    ("resources", "config"),
    [
        (CPUS, "device: cpu"),
        ("tasks_per_node: 4, gpus_per_node: 4, gpu: [a100, v100]", ""),
        ("", "device: cpu, strategy: single"),
        (CPUS, "device: cpu, profile: {ranks: [5]}"),
        (CPUS, "device: cpu, num_microbatches: 3, batching: {kind: packed, max_tokens: 64}"),
        (CPUS, "device: cpu, num_microbatches: auto"),
        (CPUS, "device: cpu, profile: {steps: [9, 9]}"),
        (CPUS, "device: cpu, learn: ['vision.*', '*.layers.1.*', 'language.model.*', 'heads.*']"),
    ],
)
def test_a_training_that_may_be_right_has_no_problem(
    check: Check, resources: str, config: str
) -> None:
    assert check(train(resources, config)) == []


@pytest.mark.parametrize(
    ("resources", "config", "place", "message"),
    [
        ("tasks_per_node: 4, gpus_per_node: 2", "", "6:5", "gpus_per_node is 2"),
        (CPUS, "device: cpu, learn: [adapters]", "7:61", "there are none"),
        (
            *(CPUS, "device: cpu, learn: [heads], levels: [{name: a}]", "7:61"),
            "learn names heads, and there are none",
        ),
        ("tasks_per_node: 2, gpu: a100", "device: cpu", "6:36", "say how many"),
        # no rule follows from a value that is wrong
        ("tasks_per_node: 3", "device: cpu, num_lanes: x", "7:65", ""),
        ("", "device: cpu, strategy: singel", "7:64", ""),
        (CPUS, "device: cpu, global_batch_size: x, num_lanes: 6", "7:73", ""),
        ("", "device: cup, strategy: single", "7:49", ""),
        ("tasks_per_node: x", "device: cpu", "6:33", ""),
    ],
)
def test_a_config_that_contradicts_the_resources_is_one_problem(
    check: Check, resources: str, config: str, place: str, message: str
) -> None:
    (line,) = check(train(resources, config))
    assert line.startswith(f"{place}: ")
    assert message in line


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("config.device=cuda", "trains on GPUs with tasks_per_node: 2"),
        ("config.strategy=single", "stage `train` has 2 ranks, but"),
        ("resources.tasks_per_node=1", "needs two ranks or more"),
        ("config.phases.0.name=b", "phases.1.name is b, as is phases.0.name: give each a name"),
        ("config.phases.1.name=a", "phases.1.name is a, as is phases.0.name: give each a name"),
        ("config.phases.1.global_batch_size=12", "of phase b is 12: give a multiple of 8"),
        ("config.phases.1.num_microbatches=3", "cannot be divided into 3"),
        ("config.profile.steps=[4, 5]", "begins at step 4, and the training has 4, counted from"),
        ("config.profile.steps=[3, 3]", ""),
    ],
)
def test_what_was_set_on_the_command_line_is_a_problem_there(
    check: Check, override: str, words: str
) -> None:
    override = f"stages.train.{override}"
    text = phases("batching: {kind: shuffled}")
    assert check(text) == []
    lines = check(text, overrides=(override,))
    assert any(words in line for line in lines) == bool(words)
    assert all(line.startswith("--set ") for line in lines)


@pytest.mark.parametrize(
    ("resources", "config", "override", "words"),
    [
        ("nodes: 3", "device: cpu", "", "lanes cannot be divided"),
        ("", "device: cpu", "resources.tasks_per_node=3", "lanes cannot be divided"),
        ("", "device: cpu", "resources={nodes: 3}", "lanes cannot be divided"),
        ("tasks_per_node: 2, gpus_per_node: 2", "", "resources.gpus_per_node=1", "trains on GPUs"),
    ],
)
def test_ranks_are_a_problem_of_the_resources_that_were_set(
    check: Check, resources: str, config: str, override: str, words: str
) -> None:
    overrides = (f"stages.train.{override}",) if override else ()
    lines = check(train(resources, f"strategy: ddp, {config}"), overrides=overrides)
    (line,) = [line for line in lines if words in line]
    assert line.startswith(f"--set {overrides[0]}: " if override else "7:5: ")


@pytest.mark.parametrize(
    ("nsight", "device", "is_refused"),
    [("true", "cuda", True), ("true", "cpu", False), ("false", "cuda", False)],
)
def test_two_profilers_of_one_gpu_are_refused(
    check: Check, nsight: str, device: str, is_refused: bool
) -> None:
    resources = "tasks_per_node: 2, gpus_per_node: 2"
    text = train(resources, f"device: {device}, profile: {{steps: [2, 3]}}")
    lines = check(text.replace("run: train\n", f"run: train\n    nsight: {nsight}\n"))
    said = "6:5: stage `train` has `nsight: true` and `profile.steps`"
    assert [line.startswith(said) for line in lines] == [True] * is_refused
