"""Order of stages, their ancestors, and cycles."""

import time

from slurm_jobs.spec.graph import ancestors, stage_order
from slurm_jobs.spec.stage_views import stage_views
from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.staged_specs import problems


def test_order_puts_parents_first_and_else_keeps_the_order_of_the_file() -> None:
    parents = {"d": ("b", "c"), "a": (), "c": ("a",), "b": ("a",)}
    assert stage_order(parents) == ("a", "b", "c", "d")


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
