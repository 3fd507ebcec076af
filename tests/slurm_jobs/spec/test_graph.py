import time
from collections.abc import Callable

import pytest

from slurm_jobs.spec.graph import ancestors, graph_problems, stage_order, stage_views
from slurm_jobs.spec.yaml import read_yaml

Check = Callable[..., list[str]]


def problems(stages: str) -> list[str]:
    document = read_yaml(f"stages:\n{stages}", "f")
    assert document.problems == ()
    found = graph_problems(stage_views(document.value), document)
    return [str(problem).removeprefix("f:") for problem in found]


def test_order_puts_parents_first_and_else_keeps_the_order_of_the_file() -> None:
    parents = {"d": ("b", "c"), "a": (), "c": ("a",), "b": ("a",)}
    assert stage_order(parents) == ("a", "b", "c", "d")


def test_an_unknown_parent_suggests_the_nearest() -> None:
    stages = "  prep: {shell: make}\n  train: {shell: make, after: [prep, perp]}\n"
    assert problems(stages) == [
        (
            "3:38: stage `train` comes after `perp`, which is no stage of this spec; did you mean "
            "`prep`? (stages: prep, train)"
        )
    ]


@pytest.mark.parametrize(
    ("after", "column"), [("nope", 11), ("{a: afterok, nope: afterany}", 24), ("[a, nope]", 15)]
)
def test_an_unknown_parent_is_told_where_it_stands(after: str, column: int) -> None:
    (line,) = problems(f"  a: {{shell: make}}\n  b:\n   after: {after}\n   shell: make\n")
    assert line.startswith(f"4:{column}: stage `b` comes after `nope`")


def test_a_stage_after_itself_is_refused() -> None:
    assert problems("  a: {shell: make, after: a}\n") == ["2:27: stage `a` comes after itself"]


def test_each_cycle_is_named_once() -> None:
    stages = (
        "  a: {shell: make, after: c}\n  b: {shell: make, after: a}\n  c: {shell: make, after: b}\n"
        "  x: {shell: make, after: {z: afterany}}\n  z: {shell: make, after: [x]}\n"
        "  free: {shell: make, after: z}\n"
    )
    lines = problems(stages)
    assert len(lines) == 2
    assert "cycle: a after c after b after a" in lines[0]
    assert "cycle: x after z after x" in lines[1]


def test_a_cycle_does_not_hide_other_problems() -> None:
    stages = (
        "  a: {shell: make, after: b}\n  b: {shell: make, after: a}\n  c: {shell: make, after: d}\n"
    )
    lines = problems(stages)
    assert len(lines) == 2
    assert "comes after `d`, which is no stage" in lines[0]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("  c: {run: consolidate}\n", "must come after a stage that runs `preprocess`"),
        ("  t: {run: train}\n", "or name its data set as config.dataset"),
        (
            "  t: {run: train, config: {phases: [{dataset: d}, {name: b}]}}\n",
            "or name its data set as config.dataset",
        ),
        (
            "  p: {run: preprocess, resources: {nodes: 2, tasks_per_node: 2}}\n",
            "runs as one task, but resources ask for 4",
        ),
        ("  r: {run: report, array: {num_slices: 2}}\n", "`report` is one job"),
        ("  p: {run: probe, array: {num_slices: 2}}\n", "`probe` is one job"),
        ("  p: {run: probe, resources: {tasks_per_node: 2}}\n", "runs one task a node"),
    ],
)
def test_built_in_stages_say_what_they_need(stages: str, message: str) -> None:
    (line,) = problems(stages)
    assert message in line


PREPROCESS = "  p: {run: preprocess}\n  q: {run: preprocess}\n"
TWO_SETS = PREPROCESS + "  c: {run: consolidate, after: p}\n  d: {run: consolidate, after: q}\n"


def test_what_would_read_one_of_two_stages_and_leave_out_the_other_is_refused() -> None:
    (line,) = problems(PREPROCESS + "  c: {run: consolidate, after: [p, q]}\n")
    assert "comes after 2 stages that run `preprocess` (p, q)" in line
    assert "preprocess all rows in one stage" in line
    (line,) = problems(TWO_SETS + "  t: {run: train, after: [c, d]}\n")
    assert "6:30: stage `t` comes after 2 stages that run `consolidate` (c, d)" in line
    assert "`dataset: ${c.output_dir}`" in line


def test_a_training_may_come_after_two_data_sets_if_it_names_one() -> None:
    named = "{run: train, after: [c, d], config: {dataset: '${d.output_dir}'}}"
    assert problems(f"{TWO_SETS}  t: {named}\n") == []


def test_a_training_whose_phases_all_name_their_data_needs_no_other() -> None:
    phases = "{phases: [{dataset: d}, {dataset: e}]}"
    assert problems(f"  t: {{run: train, config: {phases}}}\n") == []


def test_a_misspelt_parent_is_one_problem_and_not_two() -> None:
    assert len(problems("  p: {run: preprocess}\n  c: {run: consolidate, after: pp}\n")) == 1


def test_a_stage_of_wrong_form_still_counts_as_a_parent() -> None:
    assert problems("  a: 3\n  b: {shell: make, after: a}\n") == []


def test_ancestors_are_nearest_first_and_once() -> None:
    document = read_yaml("stages: {a: {}, b: {after: a}, c: {after: a}, d: {after: [b, c]}}", "f")
    assert ancestors(stage_views(document.value), "d") == ("b", "c", "a")


def test_a_long_chain_of_stages_is_no_trouble() -> None:
    lines = ["  s0: {shell: make}"]
    lines += [f"  s{i}: {{shell: make, after: s{i - 1}}}" for i in range(1, 500)]
    start = time.process_time()
    assert problems("\n".join(reversed(lines))) == []
    assert time.process_time() - start < 5
