"""Peaks of memory that are measured, and peaks that follow from those of fewer rows."""

from __future__ import annotations

import pytest
import torch

from pipeline.train.memory.measured_memory import extrapolate, measure_growth

MIB = 2**20
HERE = torch.device("cpu")


def test_the_peak_is_what_lives_at_once():
    def work() -> None:
        kept = torch.empty(3 * MIB, dtype=torch.uint8)
        for _ in range(5):
            torch.empty(2 * MIB, dtype=torch.uint8)
        kept.untyped_storage().resize_(4 * MIB)  # as FSDP does, which no operator shows

    # Resizing copies: both are there meanwhile.
    assert measure_growth(work, HERE).peak_bytes == pytest.approx(7 * MIB, rel=0.01)


def test_what_was_there_before_and_is_given_back_makes_no_room():
    held = [torch.empty(3 * MIB, dtype=torch.uint8)]

    def work() -> None:
        held.clear()
        held.append(torch.empty(4 * MIB, dtype=torch.uint8))

    peak_bytes = measure_growth(work, HERE).peak_bytes
    assert peak_bytes == pytest.approx(4 * MIB, rel=0.01), "too much, never too little"


@pytest.mark.parametrize("num_rows", [1, 64])
def test_a_backward_pass_holds_the_activations_of_its_rows(num_rows):
    layers = torch.nn.Sequential(*(torch.nn.Tanh() for _ in range(8)))
    rows = torch.ones(num_rows, 65_536, requires_grad=True)
    # Eight outputs are kept when the first gradient is made; then each makes room for the next.
    growth = measure_growth(lambda: layers(rows).sum().backward(), HERE)
    assert growth.peak_bytes == pytest.approx(9 * rows.nbytes, rel=0.001)
    assert growth.left_bytes == rows.grad.nbytes
    assert growth.then(growth).peak_bytes == growth.peak_bytes + rows.grad.nbytes


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [
        ([(1, 110)], 100 + 4 * 10),
        ([(1, 200), (2, 210)], 100 + 2 * 110),  # nothing has tested the line yet
        ([(1, 200), (2, 210), (3, 220)], 230),
        ([(1, 200), (2, 202), (3, 210)], 218 + 2 * 6),  # it foretold 204
        ([(1, 105), (2, 110), (3, 145)], 100 + 45 * 4 / 3),
    ],
)
def test_what_is_fixed_stays_and_a_line_is_followed_as_far_as_it_was_right(peaks, expected):
    assert extrapolate(peaks, 100, 4) == pytest.approx(expected)
