from collections.abc import Mapping

import pytest

from slurm_jobs.plan.stage_dependencies import barred_slices, corresponds, stage_dependencies
from slurm_jobs.spec.model import RunSpec


def spec(*, parent: int | None, child: int | None) -> RunSpec:
    stages: dict[str, dict[str, object]] = {
        "a": {"shell": "x"},
        "b": {"shell": "x", "after": {"a": "aftercorr"}},
    }
    for name, number in (("a", parent), ("b", child)):
        if number is not None:
            stages[name]["array"] = {"num_slices": number}
    return RunSpec.model_validate({"name": "n", "cluster": "local", "stages": stages})


def test_arrays_of_one_length_go_slice_by_slice() -> None:
    (found,) = stage_dependencies("b", spec(parent=4, child=4))
    assert (found.kind, found.instead) == ("aftercorr", "")


@pytest.mark.parametrize(
    ("parent", "child", "why"),
    [
        (4, 3, "`a` has 4 slices and `b` 3 slices"),
        (None, 3, "`a` has no array and `b` 3 slices"),
        (4, None, "`a` has 4 slices and `b` no array"),
    ],
)
def test_arrays_that_do_not_match_wait_for_all_and_say_so(
    parent: int | None, child: int | None, why: str
) -> None:
    (found,) = stage_dependencies("b", spec(parent=parent, child=child))
    assert found.kind == "afterok"
    assert found.instead == f"`b` waits for all of `a` (afterok instead of aftercorr): {why}"


@pytest.mark.parametrize(
    ("after", "again", "expected"),
    [
        ({}, {"a": {1}}, set()),
        ({"a": "afterok"}, {}, set()),
        ({"a": "afterok"}, {"a": set()}, set()),
        ({"a": "afterok"}, {"a": {1}}, {0, 1, 2, 3}),
        ({"a": "aftercorr"}, {"a": {1, 3}}, {1, 3}),
        ({"a": "aftercorr", "b": "aftercorr"}, {"a": {1}, "b": {2}}, {1, 2}),
        ({"a": "aftercorr", "b": "afterany"}, {"a": {1}, "b": {2}}, {0, 1, 2, 3}),
    ],
)
def test_a_parent_that_runs_again_bars_the_slices_that_come_after_it(
    after: Mapping[str, str], again: Mapping[str, set[int]], expected: set[int]
) -> None:
    slices = {name: frozenset(numbers) for name, numbers in again.items()}
    assert barred_slices(after, slices, 4) == expected


@pytest.mark.parametrize(
    ("own", "own_packed", "other", "other_packed", "expected"),
    [
        ((0, 1), None, (0, 1), None, True),
        ((1,), None, (0, 1), None, True),
        ((0, 2), None, (0, 1), None, False),
        ((4, 5, 6), 2, (4, 5, 6), 2, True),
        ((4, 5), 2, (4, 5, 6), 2, False),
        ((4, 5), 2, (4, 5), 1, False),
        ((0, 1), None, (0, 1), 1, False),
    ],
)
def test_arrays_correspond_if_each_element_has_an_equally_numbered_one(
    own: tuple[int, ...],
    own_packed: int | None,
    other: tuple[int, ...],
    other_packed: int | None,
    expected: bool,
) -> None:
    assert corresponds(own, own_packed, other, other_packed) is expected
