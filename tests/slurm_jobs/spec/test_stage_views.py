"""Stages of a spec that come where they cannot, or have what they need."""

import pytest

from tests.slurm_jobs.spec.staged_specs import problems

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
