"""Peaks of memory are those of what was really handed out."""

from __future__ import annotations

import pytest
import torch

from pipeline.training.peak_memory import extrapolate, measure_growth

CPU = torch.device("cpu")
MB = 1 << 20


def test_the_peak_is_what_lives_at_once():
    def work() -> None:
        kept = torch.empty(3 * MB, dtype=torch.uint8)
        for _ in range(5):
            torch.empty(2 * MB, dtype=torch.uint8)
        kept.untyped_storage().resize_(4 * MB)  # as FSDP does, which no operator shows

    # Resizing copies: both are there meanwhile.
    assert measure_growth(work, CPU) == pytest.approx(7 * MB, rel=0.01)


def test_what_is_given_back_makes_room():
    held = [torch.empty(3 * MB, dtype=torch.uint8)]

    def work() -> None:
        held.clear()
        held.append(torch.empty(4 * MB, dtype=torch.uint8))

    assert measure_growth(work, CPU) == pytest.approx(1 * MB, rel=0.01)


@pytest.mark.parametrize("num_rows", [1, 64])
def test_a_backward_pass_holds_the_activations_of_its_rows(num_rows):
    layers = torch.nn.Sequential(*(torch.nn.Tanh() for _ in range(8)))
    rows = torch.ones(num_rows, 65_536, requires_grad=True)
    # Eight outputs are kept; one gradient is made of another.
    growth = measure_growth(lambda: layers(rows).sum().backward(), CPU)
    assert growth == pytest.approx(10 * rows.nbytes, rel=0.06)


@pytest.mark.parametrize(
    ("points", "expected"),
    [([(0, 100), (1, 110)], 140), ([(0, 0), (1, 110), (2, 115)], 125), ([(1, 9), (2, 8)], 8)],
)
def test_peaks_go_on_in_the_line_of_the_last_two(points, expected):
    assert extrapolate(points, 4) == expected
