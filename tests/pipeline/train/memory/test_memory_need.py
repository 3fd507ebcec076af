"""What a training needs of each rank's memory, by hand; `strategies` compares real trainings."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.train.memory.memory_need import checkpoint_bytes, memory_need, optimizer_bytes
from tests.pipeline.train.memory.needs import ALL_FLOATS, IN_TWO, NUM, SIZES, WHOLE


def need(sharing=WHOLE, learned=ALL_FLOATS, **changes):
    options = {
        "compute_itemsize": 2,
        "optimizer_kind": "adamw",
        "num_microbatches": 1,
        "num_tokens": 100,
        **changes,
    }
    return memory_need(SIZES, learned, sharing, **options)


def test_a_whole_model_holds_weights_gradients_and_two_moments():
    found = need()
    assert (found.weights_bytes, found.buffers_bytes) == (4 * NUM + 160, 12)
    assert found.gradients_bytes == 4 * NUM
    assert found.optimizer_bytes == 8 * NUM + 4 * 4, "and a count of steps for each"
    assert found.state_bytes == found.least_bytes == 16 * NUM + 160 + 12 + 16
    assert found.saved_bytes == checkpoint_bytes(SIZES, ALL_FLOATS, "adamw")


def test_evaluation_during_training_gathers_the_whole_sharded_model():
    found, blind = need(IN_TWO, evaluates_held_out=True), need(IN_TWO)
    assert (blind.gathered_bytes, found.gathered_bytes) == (0, 2 * NUM + 160)
    assert found.least_bytes == max(
        blind.least_bytes, found.weights_bytes + found.optimizer_bytes + 12 + found.gathered_bytes
    )
    alone = need(IN_TWO, learned=("bias",), evaluates_held_out=True)
    assert alone.least_bytes == alone.weights_bytes + alone.optimizer_bytes + 12 + 2 * NUM + 160
    assert alone.least_bytes > need(IN_TWO, learned=("bias",)).least_bytes
    assert alone.expected_bytes >= alone.least_bytes
    assert need(evaluates_held_out=True) == need(), "a whole model gathers nothing"
    offloaded = dataclasses.replace(IN_TWO, offloads=True)
    assert (
        need(offloaded, learned=("bias",), evaluates_held_out=True).least_bytes
        == 12 + 2 * NUM + 160
    )


def test_what_is_frozen_has_neither_gradient_nor_state():
    found = need(learned=("bias",))
    assert (found.gradients_bytes, found.optimizer_bytes) == (20, 44)


def test_rows_are_shared_out_and_the_first_rank_has_the_odd_one():
    found = need(IN_TWO)
    num = 40 + 32 + 5 * 8 + 3
    assert found.weights_bytes == 4 * num + 80
    assert found.gradients_bytes == 4 * num
    assert found.buffers_bytes == 12, "which are never shared out"


@pytest.mark.parametrize(
    ("sharing", "options", "num_bytes"),
    [
        (WHOLE, {}, 2 * (64 + 72)),  # autocast copies float matrices in half precision alone
        (WHOLE, {"compute_itemsize": 4}, 0),
        # Gathered at once: the rest, the largest layers, and packed ones as they are.
        (IN_TWO, {}, 2 * 80 + 160 + 2 * 5),
        (dataclasses.replace(IN_TWO, num_ahead=1), {}, 2 * 80 + 2 * 72 + 160 + 2 * 5),
        (dataclasses.replace(IN_TWO, keeps_gathered=True), {}, 2 * NUM + 160),
    ],
)
def test_computing_takes_what_is_copied_or_gathered(sharing, options, num_bytes):
    assert need(sharing, **options).computing_bytes == num_bytes


def test_whole_gradients_between_microbatches_count_where_they_are_kept():
    one, two = need(IN_TWO), need(IN_TWO, num_microbatches=2)
    assert (one.accumulated_bytes, two.accumulated_bytes) == (0, 4 * NUM)
    assert two.least_bytes - one.least_bytes == 4 * NUM - one.gradients_bytes
    reduced = dataclasses.replace(IN_TWO, accumulates_whole=False)
    assert need(reduced, num_microbatches=2).accumulated_bytes == 0
    assert need(WHOLE, num_microbatches=2).accumulated_bytes == 0, "they are the gradients"


def test_offloaded_state_is_not_on_the_card():
    found = need(dataclasses.replace(IN_TWO, offloads=True), num_microbatches=2)
    assert found.least_bytes == found.buffers_bytes + found.accumulated_bytes
    assert found.offloaded_bytes == found.state_bytes - found.buffers_bytes
    assert need(IN_TWO).offloaded_bytes == 0


def test_activations_are_at_least_the_inputs_of_all_layers():
    found = need()
    assert found.activations_bytes == 100 * 8 * 2 * 3
    assert found.expected_bytes == sum(
        (found.least_bytes, found.computing_bytes, found.activations_bytes)
    )
    assert need(residual_itemsize=4).activations_bytes == 2 * found.activations_bytes


@pytest.mark.parametrize(
    ("length", "num_bytes"), [(0, 0), (40, 2 * 40**2 * 2), (100, 100**2 * 2), (300, 300**2 * 2)]
)
def test_mask_of_packed_rows_is_a_number_for_each_pair_of_places(length, num_bytes):
    found = need(masked_length=length)
    assert found.mask_bytes == num_bytes
    assert found.expected_bytes - need().expected_bytes == num_bytes


@pytest.mark.parametrize(
    ("sizes", "kind", "num_bytes"),
    [
        ([4095], "adamw_8bit", 8 * 4095),
        ([4097], "adamw_8bit", 2 * 4097 + 8 * 17 + 2048),  # packed, a scale for each block
        ([99_999, 100_000], "paged_adamw", 8 * 99_999),  # large ones need not be on the card
        ([100_000], "paged_adamw_8bit", 8 * 391 + 2048),
    ],
)
def test_state_of_8_bit_and_paged_optimizers_depends_on_tensor_size(sizes, kind, num_bytes):
    assert optimizer_bytes(sizes, kind) == num_bytes


def test_a_checkpoint_has_what_learned_and_its_optimizer_on_all_ranks():
    assert checkpoint_bytes(SIZES, ("bias",), "adamw") == 20 + 44
    assert checkpoint_bytes(SIZES, ("embed",), "paged_adamw_8bit") == 4 * 80 + 8 * 80, "paged, too"
