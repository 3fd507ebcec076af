"""An epoch's packs: a function of lengths, budget, strategy and seed alone."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.packing import pack_order as plan_module
from pipeline.data.packing.algorithms import STRATEGIES
from pipeline.data.packing.budget import PackBudget, join_packs
from pipeline.data.packing.pack_order import pack_order
from pipeline.data.packing.pack_statistics import waits
from pipeline.data.permutation import make_permutation
from tests.pipeline.data.packing.lengths import Sized, captions, documents, sized_samples, sums

BUDGET = PackBudget(max_tokens=4096, max_images=16)


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=30, deadline=None)
@given(sized=sized_samples(), seed=st.integers(0, 2**32))
def test_every_sample_of_the_index_is_in_one_pack(name: str, sized: Sized, seed: int) -> None:
    tokens, images, budget = sized
    packs = join_packs(pack_order(tokens, images, budget=budget, strategy=name, words=[seed, 3]))
    assert np.array_equal(np.sort(packs.items), np.arange(len(tokens)))
    assert max(sums(packs, tokens)) <= budget.max_tokens


@pytest.mark.parametrize("name", STRATEGIES)
def test_equal_words_give_equal_packs_and_others_give_others(name: str) -> None:
    tokens, images = captions(3000)
    made = [
        join_packs(pack_order(tokens, images, budget=BUDGET, strategy=name, words=words))
        for words in ([7, 0], [7, 0], [7, 1])
    ]
    assert np.array_equal(made[0].items, made[1].items)
    assert np.array_equal(made[0].bounds, made[1].bounds)
    assert not np.array_equal(made[0].items, made[2].items)


def digest(name: str, longest: int) -> str:
    """Of 9,000 samples' packs of at most 1,000 tokens and 8 images."""
    tokens = np.arange(9000) * 7919 % longest + 1
    images = np.arange(9000) % 4
    budget = PackBudget(max_tokens=1000, max_images=8)
    packs = join_packs(pack_order(tokens, images, budget=budget, strategy=name, words=[7, 3]))
    data = packs.items.astype("<i8").tobytes() + packs.bounds.astype("<i8").tobytes()
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "longest", "kept"),
    [
        ("none", 500, "bebb9246d14de22e"),
        ("greedy", 500, "fc3a02185a6f6609"),
        ("ffd", 500, "b68bf58a42c994c8"),
        ("bfd", 500, "e0e012b963557489"),
        ("knapsack", 500, "ca7ca9b7e44550cf"),
        ("exact", 500, "a3672be03dbf8c4f"),
        ("exact", 200, "51022ac7c44b32d3"),
        ("exact", 990, "33fdcc82de3ed89d"),
    ],
)
def test_the_packs_of_an_earlier_version_are_kept(name: str, longest: int, kept: str) -> None:
    # Kept plans and resumed trainings depend on them: a change needs another files.FORMAT_VERSION.
    # `exact` fills by images where samples are short, and by windows where they are long.
    assert digest(name, longest) == kept


def test_left_out_samples_are_in_no_pack() -> None:
    tokens, images = captions(500)
    keep = tokens < 320
    packs = join_packs(
        pack_order(tokens, images, budget=BUDGET, strategy="exact", words=[0], keep=keep)
    )
    assert np.array_equal(np.sort(packs.items), np.flatnonzero(keep))


def test_samples_above_the_budget_are_refused_before_anything_is_packed() -> None:
    tokens, images = captions(500)
    tokens[77] = 5000
    with pytest.raises(ValueError, match=r"1 of 500 samples .* 5000$"):
        pack_order(tokens, images, budget=BUDGET, strategy="exact", words=[0])
    keep = np.arange(500) != 77
    assert len(
        join_packs(
            pack_order(tokens, images, budget=BUDGET, strategy="exact", words=[0], keep=keep)
        )
    )


def test_an_unknown_strategy_is_refused_with_those_that_there_are() -> None:
    tokens, images = captions(10)
    with pytest.raises(ValueError, match=r"'best'.*none, constrained, greedy, ffd, bfd, knapsack"):
        pack_order(tokens, images, budget=BUDGET, strategy="best", words=[0])
    with pytest.raises(ValueError, match="one entry a sample"):
        pack_order(tokens, images[:-1], budget=BUDGET, strategy="exact", words=[0])


@pytest.mark.parametrize("make", [captions, documents])
def test_packs_do_not_depend_on_the_number_of_processes(
    make: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "STRETCH_SIZE", 1000)
    tokens, images = make(5500)
    settings_ = {"budget": BUDGET, "strategy": "exact", "words": [1, 2]}
    alone = join_packs(pack_order(tokens, images, **settings_))
    shared = join_packs(pack_order(tokens, images, **settings_, num_processes=2))
    assert np.array_equal(alone.items, shared.items)
    assert np.array_equal(alone.bounds, shared.bounds)


def test_each_stretch_of_the_order_is_packed_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "STRETCH_SIZE", 1000)
    tokens, images = captions(2500)
    parts = list(pack_order(tokens, images, budget=BUDGET, strategy="exact", words=[5]))
    order = make_permutation(2500, [5]).slice(0, 2500)
    for number, part in enumerate(parts):
        stretch = order[number * 1000 : (number + 1) * 1000]
        assert np.array_equal(np.sort(part.items), np.sort(stretch))
    assert waits(join_packs(parts), order).max_samples < 1000


def test_stretches_are_packed_when_they_are_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "STRETCH_SIZE", 100)
    monkeypatch.setitem(STRATEGIES, "counted", lambda *lists: packed.append(1) or ([1], [0]))
    packed: list[int] = []
    tokens, images = captions(2500)
    parts = pack_order(tokens, images, budget=BUDGET, strategy="counted", words=[5])
    assert len(list(itertools.islice(parts, 3))) == len(packed) == 3
