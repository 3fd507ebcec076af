"""What `${stage.output_dir}` may name, and that it means something in a config alone."""

import subprocess
from collections.abc import Callable

import pytest

from slurm_jobs.spec.graph import reference_problems, stage_views
from slurm_jobs.spec.yaml import read_yaml

Check = Callable[..., list[str]]


def problems(stages: str) -> list[str]:
    document = read_yaml(f"stages:\n{stages}", "f")
    assert document.problems == ()
    found = reference_problems(stage_views(document.value), document)
    return [str(problem).removeprefix("f:") for problem in found]


def test_a_reference_names_a_stage_that_comes_before() -> None:
    stages = (
        "  first: {shell: make}\n  second: {shell: make, after: first}\n"
        "  third: {shell: make, after: second, config: {x: ['${first.output_dir}/y']}}\n"
        "  other: {shell: make, config: {x: '${third.output_dir}'}}\n"
        "  wrong: {shell: make, after: third, config: {x: '${thrid.output_dir}'}}\n"
        "  form: {shell: make, config: {x: '${HOME}/y'}}\n"
    )
    lines = problems(stages)
    assert len(lines) == 3
    assert lines[0].startswith("5:36: stages.other.config.x: `${third.output_dir}` names `third`")
    assert "(before it: nothing)" in lines[0]
    assert "did you mean `third`? (before it: third, second, first)" in lines[1]
    said = "`${HOME}` is no reference; `${stage.output_dir}` and `${matrix.AXIS}` are the only"
    assert said in lines[2]


def test_a_reference_in_a_shell_is_refused_and_names_the_variable() -> None:
    stages = (
        "  my-first: {shell: 'ls ${my-first.output_dir}'}\n"
        "  second: {shell: 'ls ${my-first.output_dir} ${HOME}', after: my-first}\n"
        "  third: {shell: 'ls ${my-first.output_dir}', after: second}\n"
        "  fourth: {shell: 'echo ${third.output} ${HOME%.output_dir} ${x-y}', after: third}\n"
    )
    reference = "`${my-first.output_dir}` has a meaning in `config` alone; here it is"
    variable = "`$SLURM_JOBS_MY_FIRST_OUTPUT_DIR`"
    assert problems(stages) == [
        f"2:21: stages.my-first.shell: {reference} `$SLURM_JOBS_OUTPUT_DIR`",
        f"3:19: stages.second.shell: {reference} {variable}",
        (
            f"4:18: stages.third.shell: {reference} {variable}, which is set if `third` comes "
            "after `my-first`: name it in `after`"
        ),
    ]


def test_a_reference_in_set_up_lines_and_the_environment_is_refused() -> None:
    stages = (
        "  a: {shell: make}\n"
        "  b: {shell: make, after: a, setup: ['cd ${a.output_dir}'], "
        "environment: {D: '${a.output_dir}/x'}}\n"
    )
    assert problems(stages) == [
        "3:38: stages.b.setup[0]: `${a.output_dir}` has a meaning in `config` alone",
        "3:78: stages.b.environment.D: `${a.output_dir}` has a meaning in `config` alone",
    ]


def test_a_reference_in_what_all_stages_share_is_refused() -> None:
    shared = (
        "setup: ['cd ${a.output_dir} ${HOME}']\nenvironment: {D: '${a.output_dir} ${b.output_dir}'}"
    )
    assert problems(f"  a: {{shell: make}}\n{shared}\n") == [
        "3:9: setup[0]: `${a.output_dir}` has a meaning in `config` alone",
        "4:18: environment.D: `${a.output_dir}` has a meaning in `config` alone",
    ]


MISSPELT = (
    "`${cuont.output_dir}` names `cuont`, which is no stage of this spec; did you mean `count`?"
)
ALL = "(stages: count, total), and has a meaning in `config` alone"


def test_a_misspelt_reference_in_a_shell_is_refused_with_the_nearest_stage() -> None:
    stages = (
        "  count: {shell: make}\n"
        "  total: {after: count, shell: 'cat ${cuont.output_dir}/* ${HOME} ${x.y}'}\n"
    )
    (line,) = problems(stages)
    assert line == (
        f"3:32: stages.total.shell: {MISSPELT} {ALL}; here the folder of a stage `name` in `after` "
        "is `$SLURM_JOBS_NAME_OUTPUT_DIR`; for a program that replaces it, write `\\$` in double "
        "quotes"
    )


def test_a_misspelt_reference_in_set_up_lines_is_refused_too() -> None:
    stages = "  count: {shell: make}\n  total: {shell: make, setup: ['cd ${cuont.output_dir}']}\n"
    shared = "setup: ['cd ${cuont.output_dir}']\n"
    assert problems(stages + shared) == [
        f"4:9: setup[0]: {MISSPELT} {ALL}",
        f"3:32: stages.total.setup[0]: {MISSPELT} {ALL}",
    ]


def test_what_follows_the_folder_in_the_braces_hides_no_reference() -> None:
    (line,) = problems("  a: {shell: 'ls ${a.output_dir/x} ${a.output_dirs}'}\n")
    assert "`${a.output_dir/x}` has a meaning in `config` alone" in line


@pytest.mark.parametrize(
    "shell",
    [
        "${HOME}",
        "${HOME:-output_dir}",
        "${x%.output_dir}",
        "${x/a.output_dir/b}",
        "${#x}",
        "${!x}",
        "${x[0]}",
        "${x-y}",
        "${x:-name.output_dir}",
        r'"\${model.output_dir}"',
    ],
)
def test_what_bash_understands_passes(shell: str) -> None:
    document = read_yaml("", "f")
    ran = subprocess.run(
        ["/bin/bash", "-c", f"x=a b=c; echo {shell}"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    values = {"stages": {"a": {"shell": f"x=a; echo {shell}"}}}
    assert reference_problems(stage_views(values), document) == []


def test_a_stage_with_a_matrix_is_told_by_its_name_in_the_file(check: Check) -> None:
    text = (
        "name: m\ncluster: local\nstages:\n"
        "  train: {shell: make, matrix: {a: [1, 2]}}\n"
        "  test: {shell: 'ls ${train.output_dir}', after: train, matrix: train}\n"
        "  best: {shell: 'ls ${train.output_dir}', after: train}\n"
    )
    test, best = check(text)
    alone = "`${train.output_dir}` has a meaning in `config` alone; here"
    assert test == f"5:17: stages.test.shell: {alone} it is `$SLURM_JOBS_TRAIN_OUTPUT_DIR`"
    assert best == (
        f"6:17: stages.best.shell: {alone} each combination has its own, the first "
        "`$SLURM_JOBS_TRAIN_1_OUTPUT_DIR`"
    )
