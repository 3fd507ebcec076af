"""Sizes of a model's tensors added up."""

from __future__ import annotations

from tests.pipeline.train.memory.needs import NUM, SIZES


def test_read_weights_are_whole_and_as_they_are_stored():
    assert SIZES.stored_bytes == 4 * NUM + 160
    assert SIZES.num_weights == NUM + 320
