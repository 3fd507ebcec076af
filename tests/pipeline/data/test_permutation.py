"""The seeded permutation that has no table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.permutation import make_permutation


@settings(max_examples=200, deadline=None)
@given(
    size=st.integers(1, 3000),
    words=st.lists(st.integers(0, 2**63), min_size=1, max_size=4),
)
def test_every_number_comes_exactly_once(size: int, words: list[int]) -> None:
    found = make_permutation(size, words).slice(0, size)
    assert np.array_equal(np.sort(found), np.arange(size))


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 10**12), seed=st.integers(0, 2**32), data=st.data())
def test_a_position_gives_the_same_value_alone_or_in_a_batch(
    size: int, seed: int, data: st.DataObject
) -> None:
    permutation = make_permutation(size, [seed])
    places = np.array(
        data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)), dtype=np.int64
    )
    together = permutation.at(places)
    assert [int(permutation.at(np.array([p]))[0]) for p in places] == together.tolist()
    assert together.min() >= 0
    assert together.max() < size
    assert len(set(together.tolist())) == len(set(places.tolist()))


def test_the_order_of_an_earlier_version_is_kept() -> None:
    # A data set and a resumed training depend on it: never change these numbers.
    assert make_permutation(10, [0, 0]).slice(0, 10).tolist() == [5, 3, 6, 4, 8, 0, 7, 9, 2, 1]
    big = make_permutation(10**9, [7, 3]).at(np.array([0, 1, 999_999_999]))
    assert big.tolist() == [653898103, 724379969, 353622938]


@pytest.mark.parametrize("size", [6, 48, 1000])
def test_places_are_uniform_over_seeds(size: int) -> None:
    # Chi squared of what stands at the first and the last place, over 4,000 seeds; 5 sigma.
    num_seeds = 4000
    orders = np.concatenate(
        [make_permutation(size, [seed]).slice(0, size)[None] for seed in range(num_seeds)]
    )
    counts = np.stack([np.bincount(orders[:, place], minlength=size) for place in (0, size - 1)])
    expected = num_seeds / size
    chi_squared = ((counts - expected) ** 2 / expected).sum(axis=1)
    assert (abs(chi_squared - (size - 1)) < 5 * np.sqrt(2 * (size - 1)) + 5).all()


def test_neighbours_are_not_correlated() -> None:
    found = make_permutation(100_000, [5]).slice(0, 100_000).astype(float)
    for lag in (1, 2, 3, 64):
        correlation = np.corrcoef(found[:-lag], found[lag:])[0, 1]
        assert abs(correlation) < 5 / np.sqrt(len(found))


def test_other_words_are_another_order() -> None:
    orders = {tuple(make_permutation(50, w).slice(0, 50)) for w in ([0, 1], [1, 0], [0], [0, 2])}
    assert len(orders) == 4
