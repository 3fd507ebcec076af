"""The formula by hand, and peaks of cards; `test_model_work.py` has real passes."""

import pytest

from pipeline.timing.flops import ModelWork, PartWork, WorkCounts, mfu, model_flops

NOTHING = PartWork()


def language(num_weights, **work):
    return ModelWork(
        vision=NOTHING,
        projector=NOTHING,
        language=PartWork(num_weights=num_weights, **work),
        head=NOTHING,
    )


def test_trained_weights_take_six_operations_and_attention_takes_twelve():
    """PaLM, appendix B: 6 N + 12 L H Q T a token; here of 3 rows of 100 tokens, L H Q = 64."""
    work = language({3: 1000}, attention_width={3: 64})
    counts = WorkCounts(num_tokens=300, num_token_pairs=3 * 100**2)
    assert model_flops(work, counts) == 300 * (6 * 1000 + 12 * 64 * 100)


def test_frozen_weights_take_four_operations_or_two_without_a_gradient():
    counts = WorkCounts(num_tokens=10, num_token_pairs=100)
    passed = language({2: 1000}, attention_width={3: 64})
    assert model_flops(passed, counts) == 10 * 4 * 1000 + 12 * 64 * 100
    assert (
        model_flops(language({1: 1000}, attention_width={1: 64}), counts) == 20_000 + 4 * 64 * 100
    )


def test_layers_with_a_sliding_window_count_the_window():
    """Of samples of 100 and 20 tokens, a window of 30."""
    work = language({}, attention_width={3: 8}, window_width={3: 64})
    counts = WorkCounts(num_token_pairs=100**2 + 20**2, num_token_window_pairs=100 * 30 + 20 * 20)
    assert model_flops(work, counts) == 12 * (8 * (100**2 + 20**2) + 64 * (100 * 30 + 20 * 20))


def test_a_gated_delta_net_takes_three_products_with_its_state_per_token():
    counts = WorkCounts(num_tokens=10, num_token_pairs=100)
    assert model_flops(language({}, state_size={3: 64}), counts) == 10 * 18 * 64
    assert model_flops(language({}, state_size={1: 64}), counts) == 10 * 6 * 64


def test_each_part_counts_its_own():
    work = ModelWork(
        vision=PartWork(num_weights={2: 1, 3: 10}, attention_width={1: 8}, window_width={1: 4}),
        projector=PartWork(num_weights={3: 100}),
        language=PartWork(num_weights={3: 1000}),
        head=PartWork(num_weights={3: 10_000}),
    )
    counts = WorkCounts(
        num_patches=16,
        num_patch_pairs=256,
        num_window_pairs=64,
        num_image_tokens=4,
        num_tokens=20,
        num_learned=5,
    )
    vision = 16 * (4 + 60) + 4 * (8 * 256 + 4 * 64)
    assert model_flops(work, counts) == vision + 4 * 600 + 20 * 6000 + 5 * 60_000
    assert model_flops(work, counts + counts) == 2 * model_flops(work, counts)


def test_mfu_is_a_share_of_the_peak_and_none_without_one():
    assert mfu(50e12, 0.5, 312e12) == pytest.approx(100 / 312)
    assert mfu(50e12, 0.5, None) is None
    assert mfu(50e12, 0.0, 312e12) is None
