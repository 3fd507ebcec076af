"""A stage with a matrix becomes one for each combination."""

import pytest

from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import PlannedStage
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import LOCAL
from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.conftest import Check
from tests.slurm_jobs.spec.matrix_specs import HEAD, SWEEP, stages


def planned(text: str) -> dict[str, PlannedStage]:
    values = {**read_yaml(text, "f").value, "stages": stages(text)}
    return {s.name: s for s in make_plan(RunSpec.model_validate(values), LOCAL).stages}


def test_a_stage_becomes_one_for_each_combination_in_its_place() -> None:
    names = [f"{stage}-{task}-{n}" for stage in ("train", "test") for task in "ab" for n in (1, 2)]
    assert list(stages(SWEEP)) == ["data", *names, "report"]


def test_a_reference_that_is_all_of_a_value_keeps_its_kind() -> None:
    stage = stages(SWEEP)["train-b-2"]
    assert stage["resources"] == {"nodes": 2}
    assert stage["config"] == {"nodes": 2, "name": "b on 2"}
    assert stage["environment"] == {"NODES": "2"}


def test_a_chain_goes_combination_by_combination_and_others_wait_for_all() -> None:
    found = stages(SWEEP)
    assert found["test-a-2"]["after"] == {"train-a-2": "afterok"}
    assert found["test-a-2"]["config"] == {"of": "${train-a-2.output_dir}/m"}
    assert found["train-a-1"]["after"] == "data"
    tests = [name for name in found if name.startswith("test-")]
    assert found["report"]["after"] == dict.fromkeys(tests, "afterany")


def test_stages_with_matrices_of_their_own_wait_for_all_combinations() -> None:
    text = (
        HEAD
        + """\
  a: {shell: x, matrix: {n: [1, 2]}}
  b: {shell: x, after: [a], matrix: {n: [1, 2]}}
"""
    )
    assert stages(text)["b-1"]["after"] == {"a-1": "afterok", "a-2": "afterok"}


def test_a_list_says_each_combination() -> None:
    text = HEAD + "  a: {shell: x, matrix: [{lr: 1e-5, n: 1}, {lr: 3e-4, n: 8}]}\n"
    assert list(stages(text)) == ["a-1e-05-1", "a-0_0003-8"]


def test_a_list_among_the_values_of_a_combination_stays_a_list() -> None:
    matrix = "[{task: t, classes: [red, green]}, {task: u, classes: [small]}]"
    config = '{levels: [{classes: "${matrix.classes}"}]}'
    found = stages(HEAD + f"  a: {{shell: x, matrix: {matrix}, config: {config}}}\n")
    levels = {name: stage["config"]["levels"] for name, stage in found.items()}
    assert levels == {
        "a-t-red_green": [{"classes": ["red", "green"]}],
        "a-u-small": [{"classes": ["small"]}],
    }


def test_a_shell_has_the_values_and_the_folder_of_its_parent() -> None:
    found = planned(SWEEP)
    assert found["test-b-1"].environment == {
        "SLURM_JOBS_MATRIX_TASK": "b",
        "SLURM_JOBS_MATRIX_NODES": "1",
    }
    assert found["train-b-1"].origin == "train"


def test_the_values_are_part_of_what_decides_a_stages_work() -> None:
    before, after = planned(SWEEP), planned(SWEEP.replace("task: [a, b]", "task: [a, c]"))
    assert before["train-a-1"].fingerprint == after["train-a-1"].fingerprint
    long = HEAD + f"  a: {{shell: x, matrix: {{p: [{'x' * 50}]}}}}\n"
    other = long.replace("xxx]", "xxy]")
    assert planned(long)["a-1"].fingerprint != planned(other)["a-1"].fingerprint


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "shell: x\n    after",
            'shell: "echo ${matrix.task}"\n    after',
            "write `$SLURM_JOBS_MATRIX_TASK` here: `${matrix.task}` is replaced in `config` only",
        ),
        (
            "task: [a, b]",
            "task: []",
            "stages.train.matrix.task: expected a list of values, found an empty list",
        ),
    ],
)
def test_an_invalid_matrix_is_refused(check: Check, old: str, new: str, said: str) -> None:
    (line,) = check(SWEEP.replace(old, new))
    assert line.endswith(said)


def test_a_wrong_matrix_hides_the_references_to_it_and_no_other_problem(check: Check) -> None:
    wrong = SWEEP.replace("task: [a, b]", "task: []")
    wrong = wrong.replace(
        "{shell: x, after: train", '{shell: "${train-a-1.output_dir}", after: train'
    )
    lines = check(wrong.replace("data: {shell: x}", "data: {shell: x, retries: x}"))
    assert [line.partition(",")[0].split(": ", 1)[1] for line in lines] == [
        "stages.data.retries: expected a whole number",
        "stages.train.matrix.task: expected a list of values",
    ]


@pytest.mark.parametrize(
    ("matrix", "places"),
    [
        ("{1: [2]}", {"8:14": "1"}),
        ("{'a b': [2]}", {"8:14": "a b"}),
        ("{'': [1]}", {"8:14": ""}),
        ("{a: [1], b-c: [2], 'd e': []}", {"8:22": "b-c", "8:32": "d e"}),
        ("[{a: 1, 'a b': 2}, {'a b': 3}]", {"8:21": "a b"}),
    ],
)
def test_a_wrong_name_of_an_axis_is_one_problem_at_its_line(
    check: Check, matrix: str, places: dict[str, str]
) -> None:
    assert check(SWEEP.replace("{task: [a, b], nodes: [1, 2]}", matrix)) == [
        f"{place}: stages.train.matrix: `{axis}` is not a valid axis: a letter, then at most 39 "
        "letters, digits and _"
        for place, axis in places.items()
    ]
