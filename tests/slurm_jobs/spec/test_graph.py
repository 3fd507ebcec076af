"""Order and inputs of stages, and what `${stage.output_dir}` may name."""

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from slurm_jobs.base.errors import Problem
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.checks.references import reference_problems
from slurm_jobs.spec.graph import ancestors, graph_problems, stage_order
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.stage_views import stage_views
from slurm_jobs.spec.yaml.reader import read_yaml

FILES = Files(read_text=lambda _file: "", exists=lambda _file: False)


def problems(
    stages: str, find: Callable[[CheckedSpec], Iterator[Problem]] = graph_problems
) -> list[str]:
    document = read_yaml(f"stages:\n{stages}", "f")
    assert document.problems == ()
    spec = CheckedSpec(document=document, views=stage_views(document.value), files=FILES)
    return [str(problem).removeprefix("f:") for problem in find(spec)]


def references(stages: str) -> list[str]:
    return problems(stages, reference_problems)


def test_order_puts_parents_first_and_else_keeps_the_order_of_the_file() -> None:
    parents = {"d": ("b", "c"), "a": (), "c": ("a",), "b": ("a",)}
    assert stage_order(parents) == ("a", "b", "c", "d")


PREPROCESS = "  p: {run: preprocess}\n  q: {run: preprocess}\n"
TWO_SETS = PREPROCESS + "  c: {run: consolidate, after: p}\n  d: {run: consolidate, after: q}\n"


@pytest.mark.parametrize(
    ("stages", "place", "message"),
    [
        (
            *("  prep: {shell: make}\n  train: {shell: make, after: [prep, perp]}\n", "3:38"),
            "stage `train` comes after `perp`, which is not a stage of this spec; did you mean `p",
        ),
        *(
            (f"  a: {{shell: make}}\n  b:\n   after: {after}\n   shell: make\n", place, "`nope`")
            for after, place in {
                "nope": "4:11",
                "{a: afterok, nope: afterany}": "4:24",
                "[a, nope]": "4:15",
            }.items()
        ),
        ("  a: {shell: make, after: a}\n", "2:27", "stage `a` comes after itself"),
        # what built-in stages need
        ("  c: {run: consolidate}\n", "2:3", "must come after a stage that runs `preprocess`"),
        ("  t: {run: train}\n", "2:3", "or name its data set as config.dataset"),
        (
            *("  t: {run: train, config: {phases: [{dataset: d}, {name: b}]}}\n", "2:3"),
            "or name its data set as config.dataset",
        ),
        (
            *("  p: {run: preprocess, resources: {nodes: 2, tasks_per_node: 2}}\n", "2:24"),
            "runs as one task, but resources ask for 4",
        ),
        ("  r: {run: report, array: {num_slices: 2}}\n", "2:20", "`report` is one job"),
        ("  p: {run: probe, array: {num_slices: 2}}\n", "2:19", "`probe` is one job"),
        ("  p: {run: probe, resources: {tasks_per_node: 2}}\n", "2:47", "runs one task a node"),
        # what would read one of two stages, and leave out the other
        (
            *(PREPROCESS + "  c: {run: consolidate, after: [p, q]}\n", "4:36"),
            "comes after 2 stages that run `preprocess` (p, q)",
        ),
        (
            *(TWO_SETS + "  t: {run: train, after: [c, d]}\n", "6:30"),
            "stage `t` comes after 2 stages that run `consolidate` (c, d)",
        ),
        # one problem and not two
        ("  p: {run: preprocess}\n  c: {run: consolidate, after: pp}\n", "3:32", "you mean `p`?"),
    ],
)
def test_a_stage_that_cannot_come_where_it_is_is_one_problem(
    stages: str, place: str, message: str
) -> None:
    (line,) = problems(stages)
    assert line.startswith(f"{place}: ")
    assert message in line


@pytest.mark.parametrize(
    "stages",
    [
        TWO_SETS + "  t: {run: train, after: [c, d], config: {dataset: '${d.output_dir}'}}\n",
        "  t: {run: train, config: {phases: [{dataset: d}, {dataset: e}]}}\n",
        "  a: 3\n  b: {shell: make, after: a}\n",  # of wrong form, and a parent nevertheless
    ],
)
def test_stages_that_have_what_they_need_are_no_problem(stages: str) -> None:
    assert problems(stages) == []


def test_each_cycle_is_named_once_and_hides_no_other_problem() -> None:
    lines = problems(
        "  a: {shell: make, after: c}\n  b: {shell: make, after: a}\n  c: {shell: make, after: b}\n"
        "  x: {shell: make, after: {z: afterany}}\n  z: {shell: make, after: [x]}\n"
        "  free: {shell: make, after: z}\n  d: {shell: make, after: e}\n"
    )
    assert len(lines) == 3
    assert "comes after `e`, which is not a stage" in lines[0]
    assert "cycle: a after c after b after a" in lines[1]
    assert "cycle: x after z after x" in lines[2]


def test_ancestors_are_nearest_first_and_once() -> None:
    document = read_yaml("stages: {a: {}, b: {after: a}, c: {after: a}, d: {after: [b, c]}}", "f")
    assert ancestors(stage_views(document.value), "d") == ("b", "c", "a")


def test_a_long_chain_of_stages_is_no_trouble() -> None:
    lines = ["  s0: {shell: make}"]
    lines += [f"  s{i}: {{shell: make, after: s{i - 1}}}" for i in range(1, 500)]
    start = time.process_time()
    assert problems("\n".join(reversed(lines))) == []
    assert time.process_time() - start < 5


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
