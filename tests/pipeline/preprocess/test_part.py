"""What a part says of its samples, row by row."""

from __future__ import annotations

import io

import numpy as np
import pytest

from pipeline.preprocess.part import SAMPLE_ROW, PartBuilder, damaged_rows


@pytest.fixture
def samples() -> np.ndarray:
    builder = PartBuilder(io.BytesIO())
    for number in range(20):
        labels = np.array([-100, -100, number], dtype=np.int32)
        builder.add(f"{number:09d}", bytes(512 * (number + 1)), labels=labels, num_images=2)
    return builder.samples


def test_rows_say_where_samples_lie_and_what_is_in_them(samples: np.ndarray) -> None:
    assert samples["key"].tolist() == list(range(20))
    assert np.array_equal(samples["offset"][1:], np.cumsum(samples["num_bytes"])[:-1])
    assert set(samples["num_tokens"]) == {3}
    assert set(samples["num_supervised_tokens"]) == {1}
    assert set(samples["num_images"]) == {2}
    assert len(damaged_rows(samples)) == 0


@pytest.mark.parametrize("byte", range(0, SAMPLE_ROW.itemsize, 5))
def test_flipped_bit_anywhere_in_a_row_is_found(samples: np.ndarray, byte: int) -> None:
    data = bytearray(samples.tobytes())
    data[4 * SAMPLE_ROW.itemsize + byte] ^= 0x10
    assert damaged_rows(np.frombuffer(bytes(data), SAMPLE_ROW)).tolist() == [4]
