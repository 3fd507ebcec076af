"""Zeros that are appended for faster kernels."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional

from pipeline.models.computation import aligned_products
from pipeline.models.computation.aligned_products import align_products, gated_aligned

pytestmark = pytest.mark.usefixtures("_forget_compiled")


class Gated(nn.Module):
    """As the layers of vision towers are written in transformers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(16, width)
        self.up_proj = nn.Linear(16, width)
        self.down_proj = nn.Linear(width, 16)
        self.act_fn = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class WidthsOfProducts(torch.overrides.TorchFunctionMode):
    """Collects the shapes of the weights that are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, ...]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is functional.linear:
            self.found.append(tuple(args[1].shape))
        return func(*args, **(kwargs or {}))


def test_zeros_change_neither_values_nor_gradients():
    torch.manual_seed(0)
    plain = Gated(42).double()
    padded, x = copy.deepcopy(plain), torch.randn(5, 16, dtype=torch.float64)
    expected = plain(x)
    with WidthsOfProducts() as widths:
        output = gated_aligned(padded, x)
    assert widths.found == [(48, 16), (48, 16), (16, 48)]
    torch.testing.assert_close(output, expected)
    for each in (expected, output):
        each.square().sum().backward()
    for (name, was), now in zip(plain.named_parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(now.grad, was.grad, msg=name)


def test_layers_are_called_as_before_where_nothing_is_gained():
    wide, odd = Gated(48), Gated(42)
    tower = nn.ModuleList([wide, odd])
    align_products(tower)
    assert type(wide) is Gated
    assert (type(odd).__name__, isinstance(odd, Gated)) == ("Gated", True)
    with WidthsOfProducts() as widths:
        odd(torch.randn(5, 16))  # a CPU has no such kernels
    assert widths.found == [(42, 16), (42, 16), (16, 42)]
    assert list(odd.state_dict()) == list(Gated(42).state_dict())


@pytest.mark.parametrize("gains", [False, True])
def test_all_layers_are_compiled_as_one(monkeypatch, gains):
    monkeypatch.setattr(aligned_products, "_gains", lambda *_: gains)
    tower = nn.ModuleList([Gated(42) for _ in range(3)])
    align_products(tower)
    torch._dynamo.reset()
    counts = CompileCounter()
    for layer in tower:
        torch.compile(layer, backend=counts, fullgraph=True)(torch.randn(5, 16))
    assert counts.frame_count == 1


def test_copies_of_aligned_layers_have_weights_of_their_own():
    tower = nn.ModuleList([Gated(42)])
    align_products(tower)
    again = copy.deepcopy(tower)
    assert again[0].gate_proj.weight is not tower[0].gate_proj.weight
    assert type(again[0]) is type(tower[0])
