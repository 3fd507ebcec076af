"""What `${stage.output_dir}` may name, and where."""

import subprocess

import pytest

from slurm_jobs.spec.checks.references import reference_problems
from tests.slurm_jobs.spec.staged_specs import problems


def references(stages: str) -> list[str]:
    return problems(stages, reference_problems)


def test_a_reference_names_a_stage_that_comes_before() -> None:
    stages = (
        "  first: {shell: make}\n  second: {shell: make, after: first}\n"
        "  third: {shell: make, after: second, config: {x: ['${first.output_dir}/y']}}\n"
        "  other: {shell: make, config: {x: '${third.output_dir}'}}\n"
        "  wrong: {shell: make, after: third, config: {x: '${thrid.output_dir}'}}\n"
        "  form: {shell: make, config: {x: '${HOME}/y'}}\n"
    )
    lines = references(stages)
    assert len(lines) == 3
    assert lines[0].startswith("5:36: stages.other.config.x: `${third.output_dir}` names `third`")
    assert "(before it: nothing)" in lines[0]
    assert "did you mean `third`? (before it: third, second, first)" in lines[1]
    said = "`${HOME}` is not a reference; `${stage.output_dir}` and `${matrix.AXIS}` are the only"
    assert said in lines[2]


def test_a_reference_in_a_shell_is_refused_and_names_the_variable() -> None:
    stages = (
        "  my-first: {shell: 'ls ${my-first.output_dir}'}\n"
        "  second: {shell: 'ls ${my-first.output_dir} ${HOME}', after: my-first}\n"
        "  third: {shell: 'ls ${my-first.output_dir}', after: second}\n"
        "  fourth: {shell: 'echo ${third.output} ${HOME%.output_dir} ${x-y}', after: third}\n"
    )
    reference = "`${my-first.output_dir}` is replaced in `config` only; here it is"
    variable = "`$SLURM_JOBS_MY_FIRST_OUTPUT_DIR`"
    assert references(stages) == [
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
    assert references(stages) == [
        "3:38: stages.b.setup[0]: `${a.output_dir}` is replaced in `config` only",
        "3:78: stages.b.environment.D: `${a.output_dir}` is replaced in `config` only",
    ]


def test_a_reference_in_what_all_stages_share_is_refused() -> None:
    shared = (
        "setup: ['cd ${a.output_dir} ${HOME}']\nenvironment: {D: '${a.output_dir} ${b.output_dir}'}"
    )
    assert references(f"  a: {{shell: make}}\n{shared}\n") == [
        "3:9: setup[0]: `${a.output_dir}` is replaced in `config` only",
        "4:18: environment.D: `${a.output_dir}` is replaced in `config` only",
    ]


MISSPELT = (
    "`${cuont.output_dir}` names `cuont`, which is not a stage of this spec; did you mean `count`?"
)
ALL = "(stages: count, total), and is replaced in `config` only"


def test_a_misspelt_reference_in_a_shell_is_refused_with_the_nearest_stage() -> None:
    stages = (
        "  count: {shell: make}\n"
        "  total: {after: count, shell: 'cat ${cuont.output_dir}/* ${HOME} ${x.y}'}\n"
    )
    (line,) = references(stages)
    assert line == (
        f"3:32: stages.total.shell: {MISSPELT} {ALL}; here the folder of a stage `name` in `after` "
        "is `$SLURM_JOBS_NAME_OUTPUT_DIR`; if another program replaces it, write `\\$` in double "
        "quotes"
    )


def test_a_misspelt_reference_in_set_up_lines_is_refused_too() -> None:
    stages = "  count: {shell: make}\n  total: {shell: make, setup: ['cd ${cuont.output_dir}']}\n"
    shared = "setup: ['cd ${cuont.output_dir}']\n"
    assert references(stages + shared) == [
        f"4:9: setup[0]: {MISSPELT} {ALL}",
        f"3:32: stages.total.setup[0]: {MISSPELT} {ALL}",
    ]


def test_what_follows_the_folder_in_the_braces_hides_no_reference() -> None:
    (line,) = references("  a: {shell: 'ls ${a.output_dir/x} ${a.output_dirs}'}\n")
    assert "`${a.output_dir/x}` is replaced in `config` only" in line


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
    ran = subprocess.run(
        ["/bin/bash", "-c", f"x=a b=c; echo {shell}"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert references(f"  a:\n   shell: |\n    x=a; echo {shell}\n") == []
