"""Keys of a stage that need or exclude each other."""

import pytest

from tests.slurm_jobs.spec.conftest import Check


@pytest.mark.parametrize(
    ("stages", "place", "message"),
    [
        ("s: {run: train, shell: make}", "4:19", "`run` and `shell`; give one"),
        ("s: {retries: 1}", "4:3", "neither `run`"),
        ("s: {run: null}", "4:3", "neither `run`"),
        ("s: {}", "4:3", "neither `run`"),
        ("s:", "4:3", "found nothing"),
        ("s: {run: trian}", "4:12", "neither a built-in stage"),
        ("s: {run: work.run}", "4:12", "did you mean `work:run`?"),
        ("s: {run: code/work.py}", "4:12", "write `code.work:FUNCTION`"),
        ("s: {run: 'a.b: c'}", "4:12", "neither a built-in stage"),
        ("s: {shell: ''}", "4:14", "must not be empty"),
        ("s: {rnu: report}", "4:7", "did you mean `run`?"),
        ("a-b: {shell: make}\n  A_b: {shell: make}", "5:3", "`a-b` and `A_b` differ only in case"),
    ],
)
def test_a_stage_runs_one_thing_under_a_name_of_its_own(
    check: Check, stages: str, place: str, message: str
) -> None:
    lines = check(f"name: a\ncluster: local\nstages:\n  {stages}\n")
    assert any(line.startswith(f"{place}: ") and message in line for line in lines), lines


def test_features_next_to_several_gpu_types_may_not_be_alternatives(
    check: Check,
) -> None:
    resources = "gpus_per_node: 1, gpu: [a100, v100], slurm: {constraint: '%s'}"
    text = "name: a\ncluster: local\nstages:\n  s:\n    shell: make\n    resources: {%s}\n"
    assert check(text % (resources % "ib&bigmem")) == []
    (line,) = check(text % (resources % "[ib|eth]"))
    assert "6:74: " in line
    assert "joined by &" in line


@pytest.mark.parametrize("num_slices", [1, 3, 4])
def test_consolidate_may_be_an_array_that_starts_after_all_slices(
    check: Check, num_slices: int
) -> None:
    text = f"""\
name: a
cluster: local
stages:
  p: {{run: preprocess, array: {{num_slices: 4}}, config: {{manifest: m.csv, processor: .}}}}
  c:
    run: consolidate
    after: p
    array: {{num_slices: {num_slices}}}
"""
    assert not [line for line in check(text) if "`c`" in line]
    lines = check(text.replace("after: p", "after: {p: aftercorr}"))
    said = "7:16: each task of `c` reads what all slices before it made"
    assert any(line.startswith(said) for line in lines)
