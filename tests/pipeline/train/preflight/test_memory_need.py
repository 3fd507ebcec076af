"""What memory must hold, by hand; what real trainings hold is compared in `strategies`."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.train.memory import (
    ModelSizes,
    Sharing,
    TensorSizes,
    checkpoint_bytes,
    memory_need,
    optimizer_bytes,
)

WHOLE = Sharing(is_sharded=False, num_shards=1)
IN_TWO = Sharing(is_sharded=True, num_shards=2, accumulates_whole=True)


def tensor(name: str, *shape: int, unit: int | None = None, **changes) -> TensorSizes:
    num = 1
    for side in shape:
        num *= side
    values = {
        "name": name,
        "shape": shape,
        "itemsize": 4,
        "is_packed": False,
        "is_multiplied": len(shape) == 2,
        "num_weights": num,
        "unit": unit,
        **changes,
    }
    return TensorSizes(**values)


SIZES = ModelSizes(
    parameters=(
        tensor("embed", 10, 8, is_multiplied=False),
        tensor("first", 8, 8, unit=0),
        tensor("second", 9, 8, unit=1),
        tensor("packed", 160, 1, unit=2, itemsize=1, is_packed=True, num_weights=320),
        tensor("bias", 5, unit=2),
    ),
    buffer_bytes=12,
    hidden_size=8,
    num_layers=3,
)
ALL_FLOATS = ("embed", "first", "second", "bias")


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
    num = 80 + 64 + 72 + 5
    assert (found.weights_bytes, found.buffers_bytes) == (4 * num + 160, 12)
    assert found.gradients_bytes == 4 * num
    assert found.optimizer_bytes == 8 * num + 4 * 4, "and a count of steps for each"
    assert found.state_bytes == found.least_bytes == 16 * num + 160 + 12 + 16


def test_the_copy_that_is_written_beside_the_steps_is_a_checkpoint():
    assert need().saved_bytes == checkpoint_bytes(SIZES, ALL_FLOATS, "adamw")


def test_looks_at_held_out_samples_gather_the_whole_model_where_it_is_sharded():
    found, blind = need(IN_TWO, looks=True), need(IN_TWO)
    num = 80 + 64 + 72 + 5
    assert (blind.gathered_bytes, found.gathered_bytes) == (0, 2 * num + 160)
    assert found.least_bytes == max(
        blind.least_bytes, found.weights_bytes + found.optimizer_bytes + 12 + found.gathered_bytes
    )
    alone = need(IN_TWO, learned=("bias",), looks=True)
    assert alone.least_bytes == alone.weights_bytes + alone.optimizer_bytes + 12 + 2 * num + 160
    assert alone.least_bytes > need(IN_TWO, learned=("bias",)).least_bytes
    assert alone.expected_bytes >= alone.least_bytes
    assert need(looks=True) == need(), "a whole model gathers nothing"
    offloaded = dataclasses.replace(IN_TWO, offloads=True)
    assert need(offloaded, learned=("bias",), looks=True).least_bytes == 12 + 2 * num + 160


def test_what_layers_hand_on_may_be_wider_than_what_they_compute_in():
    assert need(residual_itemsize=4).activations_bytes == 2 * need().activations_bytes


def test_what_is_frozen_has_neither_gradient_nor_state():
    found = need(learned=("bias",))
    assert (found.gradients_bytes, found.optimizer_bytes) == (20, 44)


def test_rows_are_shared_out_and_the_first_rank_has_the_odd_one():
    found = need(IN_TWO)
    num = 40 + 32 + 5 * 8 + 3
    assert found.weights_bytes == 4 * num + 80
    assert found.gradients_bytes == 4 * num
    assert found.buffers_bytes == 12, "which are never shared out"


def test_autocast_makes_copies_of_float_matrices_in_half_precision_alone():
    assert need().computing_bytes == 2 * (64 + 72)
    assert need(compute_itemsize=4).computing_bytes == 0


@pytest.mark.parametrize(
    ("changes", "gathered"),
    [
        ({}, 2 * 80 + 160 + 2 * 5),
        ({"num_ahead": 1}, 2 * 80 + 2 * 72 + 160 + 2 * 5),
        ({"keeps_gathered": True}, 2 * (80 + 64 + 72 + 5) + 160),
    ],
)
def test_gathered_at_once_are_the_rest_and_the_largest_layers_and_packed_ones_as_they_are(
    changes, gathered
):
    assert need(dataclasses.replace(IN_TWO, **changes)).computing_bytes == gathered


def test_whole_gradients_between_microbatches_count_where_they_are_kept():
    whole = 4 * (80 + 64 + 72 + 5)
    one, two = need(IN_TWO), need(IN_TWO, num_microbatches=2)
    assert (one.accumulated_bytes, two.accumulated_bytes) == (0, whole)
    assert two.least_bytes - one.least_bytes == whole - one.gradients_bytes
    reduced = dataclasses.replace(IN_TWO, accumulates_whole=False)
    assert need(reduced, num_microbatches=2).accumulated_bytes == 0
    assert need(WHOLE, num_microbatches=2).accumulated_bytes == 0, "they are the gradients"


def test_offloaded_state_is_not_on_the_card():
    found = need(dataclasses.replace(IN_TWO, offloads=True), num_microbatches=2)
    assert found.least_bytes == found.buffers_bytes + found.accumulated_bytes
    assert found.offloaded_bytes == found.state_bytes - found.buffers_bytes
    assert need(IN_TWO).offloaded_bytes == 0


def test_activations_are_at_least_what_enters_each_layer():
    assert need().activations_bytes == 100 * 8 * 2 * 3
    assert need().expected_bytes == sum(
        (need().least_bytes, need().computing_bytes, need().activations_bytes)
    )


@pytest.mark.parametrize(
    ("length", "num_bytes"), [(0, 0), (40, 2 * 40**2 * 2), (100, 100**2 * 2), (300, 300**2 * 2)]
)
def test_mask_of_packed_rows_is_a_number_for_each_pair_of_places(length, num_bytes):
    found = need(masked_length=length)
    assert found.mask_bytes == num_bytes
    assert found.expected_bytes - need().expected_bytes == num_bytes


def test_8_bit_state_packs_large_tensors_with_a_scale_for_each_block():
    assert optimizer_bytes([4095], "adamw_8bit") == 8 * 4095
    assert optimizer_bytes([4097], "adamw_8bit") == 2 * 4097 + 8 * 17 + 2048


def test_paged_state_of_large_tensors_need_not_be_on_the_card():
    assert optimizer_bytes([99_999, 100_000], "paged_adamw") == 8 * 99_999
    assert optimizer_bytes([100_000], "paged_adamw_8bit") == 8 * 391 + 2048


def test_a_checkpoint_has_what_learned_and_its_optimizer_on_all_ranks():
    assert checkpoint_bytes(SIZES, ("bias",), "adamw") == 20 + 44
    assert checkpoint_bytes(SIZES, ("embed",), "paged_adamw_8bit") == 4 * 80 + 8 * 80, "paged, too"


def test_read_weights_are_whole_and_as_they_are_stored():
    assert SIZES.stored_bytes == 4 * (80 + 64 + 72 + 5) + 160
    assert SIZES.num_weights == 80 + 64 + 72 + 5 + 320
