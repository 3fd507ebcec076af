from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.plan.array_pieces import (
    ArrayPiece,
    by_request,
    cut_slices,
    num_tasks,
    pack_for,
    share_out,
)
from slurm_jobs.plan.planned import SliceRequest
from slurm_jobs.run_folder.orders import array_indices


def cut(
    slices: Sequence[int], size: int | None, *, per_task: int = 1, at_once: int | None = None
) -> tuple[ArrayPiece, ...]:
    return cut_slices(
        {SliceRequest(): slices}, slices_per_task=per_task, max_running=at_once, max_array_size=size
    )


@given(
    st.sets(st.integers(min_value=0, max_value=400), min_size=1),
    st.none() | st.integers(min_value=1, max_value=50),
    st.integers(min_value=1, max_value=9),
)
def test_pieces_hold_every_slice_once_and_stay_within_the_sites_arrays(
    numbers: set[int], size: int | None, per_task: int
) -> None:
    slices = tuple(sorted(numbers))
    pieces = cut(slices, size, per_task=per_task)
    assert [i for piece in pieces for i in piece.slices] == list(slices)
    for piece in pieces:
        indices = array_indices(piece.slices, piece.slices_per_task)
        assert size is None or (max(indices) < size and len(indices) <= size)


def test_an_array_that_the_site_takes_keeps_its_slices_numbers() -> None:
    (piece,) = cut([3, 5, 1000], 1001)
    assert (piece.slices, piece.slices_per_task) == ((3, 5, 1000), None)


def test_slices_beyond_the_largest_index_get_arrays_of_their_own() -> None:
    pieces = cut(range(7), 3)
    assert [(p.slices, p.slices_per_task) for p in pieces] == [
        ((0, 1, 2), None),
        ((3, 4, 5), 1),
        ((6,), 1),
    ]


@pytest.mark.parametrize(
    ("num_tasks", "max_running", "shares"),
    [
        ((1001, 1), 128, [127, 1]),
        ((1, 1001), 128, [1, 127]),
        ((1000, 1000, 500), 50, [20, 20, 10]),
        ((10, 20), 6, [2, 4]),
        ((1, 1, 1), 5, [2, 2, 1]),
        ((900, 1, 1, 1), 4, [1, 1, 1, 1]),
        ((4,), 64, [64]),
    ],
)
def test_arrays_share_a_throttle_in_proportion_to_their_tasks(
    num_tasks: tuple[int, ...], max_running: int, shares: list[int]
) -> None:
    assert share_out(max_running, num_tasks) == shares


def test_slices_beyond_the_largest_index_add_one_to_the_throttle() -> None:
    pieces = cut(range(1002), 1001, at_once=128)
    assert [(len(p.slices), p.max_running) for p in pieces] == [(1001, 127), (1, 1)]


def test_an_array_of_packed_tasks_counts_tasks_for_its_share() -> None:
    alike = {SliceRequest(gpu_kept="a100"): range(100), SliceRequest(): range(100, 110)}
    pieces = cut_slices(alike, slices_per_task=10, max_running=4, max_array_size=None)
    assert [p.max_running for p in pieces] == [3, 1]


def test_arrays_that_run_side_by_side_do_not_wait_for_each_other() -> None:
    assert [p.max_running for p in cut(range(7), 3, at_once=8)] == [4, 3, 1]
    assert not any(p.after_previous for p in cut(range(7), 3, at_once=8))


def test_arrays_run_one_after_another_if_the_throttle_cannot_be_shared() -> None:
    pieces = cut(range(7), 3, at_once=2)
    assert [p.max_running for p in pieces] == [2, 2, 2]
    assert [p.after_previous for p in pieces] == [False, True, True]


def test_slices_with_different_requests_share_no_array_and_one_throttle() -> None:
    own, large = SliceRequest(gpu_kept="v100"), SliceRequest(mem_gb=16)
    alike = by_request(range(6), {1: own, 2: large, 3: own, 4: own})
    assert alike == {SliceRequest(): (0, 5), own: (1, 3, 4), large: (2,)}
    pieces = cut_slices(alike, slices_per_task=2, max_running=5, max_array_size=None)
    assert [(p.request, p.slices, p.max_running) for p in pieces] == [
        (SliceRequest(), (0, 5), 1),
        (own, (1, 3, 4), 3),
        (large, (2,), 1),
    ]


@given(
    st.integers(min_value=1, max_value=500),
    st.lists(st.integers(min_value=1, max_value=2000), min_size=1, max_size=40),
)
def test_shares_add_up_to_the_throttle(max_running: int, num_tasks: list[int]) -> None:
    shares = share_out(max_running, num_tasks)
    if max_running < len(num_tasks):
        assert shares == [None] * len(num_tasks)
        return
    assert sum(share or 0 for share in shares) == max_running
    assert min(share or 0 for share in shares) >= 1
    if max_running <= sum(num_tasks):  # otherwise a part of it could not be used
        for share, number in zip(shares, num_tasks, strict=True):
            assert share is not None
            assert share <= number


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (None, {"a": 1, "b": 10, "one": 1}),
        (1000, {"a": 1, "b": 10, "one": 1}),
        (100, {"a": 10, "b": 10, "one": 10}),
        (3, {"a": 900, "b": 900, "one": 900}),
    ],
)
def test_tasks_work_through_just_so_many_slices_that_the_site_takes_them(
    room: int | None, expected: dict[str, int]
) -> None:
    num_missing = {"a": [900], "b": [90], "one": [1]}
    packed = pack_for(num_missing, {"b": 10}, room)
    assert packed == expected
    assert room is None or num_tasks(num_missing, packed) <= room


def test_where_nothing_fits_the_callers_count_shows_it() -> None:
    num_missing = {"a": [5], "b": [1], "c": [1]}
    assert num_tasks(num_missing, pack_for(num_missing, {}, 2)) == 3


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.lists(st.integers(min_value=1, max_value=300), min_size=1, max_size=3),
    ),
    st.integers(min_value=0, max_value=400),
)
def test_one_slice_fewer_a_task_would_not_fit(num_missing: dict[str, list[int]], room: int) -> None:
    packed = pack_for(num_missing, {}, room)
    least = max(packed.values(), default=1)
    if num_tasks(num_missing, packed) <= room and least > 1:
        assert num_tasks(num_missing, dict.fromkeys(num_missing, least - 1)) > room
