"""The summed loss in chunks, and of each level."""

import pytest
import torch
from torch.nn import functional

from pipeline.data.batches.learned_targets import TargetGroups
from pipeline.models.cross_entropy import CHUNK, summed_cross_entropy


@pytest.mark.parametrize("num_tokens", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_loss_in_chunks_and_its_gradients_are_those_of_the_whole(num_tokens):
    draw = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(8, 11, bias=False)
    hidden = torch.randn(num_tokens, 8, generator=draw, requires_grad=True)
    targets = torch.randint(0, 11, (num_tokens,), generator=draw)
    found, expected = [], []
    whole = functional.cross_entropy(head(hidden), targets, reduction="sum")
    in_chunks = summed_cross_entropy(head, hidden, targets).sum()
    for loss, values in ((in_chunks, found), (whole, expected)):
        head.weight.grad = hidden.grad = None
        loss.backward()
        values += [loss.detach(), head.weight.grad.clone(), hidden.grad.clone()]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("num_tokens", [0, 5, CHUNK + 7])
def test_loss_of_each_level_is_that_of_its_tokens(num_tokens):
    draw = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(8, 11)
    hidden = torch.randn(num_tokens, 8, generator=draw)
    targets = torch.randint(0, 11, (num_tokens,), generator=draw)
    levels = torch.randint(0, 3, (num_tokens,), generator=draw)
    found = summed_cross_entropy(head, hidden, targets, TargetGroups(levels, 3))
    for level in range(3):
        own = levels == level
        expected = summed_cross_entropy(head, hidden[own], targets[own])
        torch.testing.assert_close(found[level : level + 1], expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("num_tokens", [5, CHUNK + 5])
def test_capped_logits_approach_the_limit_in_every_chunk(num_tokens):
    draw = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(8, 20)
    hidden = 20 * torch.randn(num_tokens, 8, generator=draw)
    targets = torch.randint(0, 20, (num_tokens,), generator=draw)
    capped = 3.0 * torch.tanh(head(hidden) / 3.0)
    expected = functional.cross_entropy(capped, targets, reduction="sum")
    (found,) = summed_cross_entropy(head, hidden, targets, logit_cap=3.0)
    torch.testing.assert_close(found, expected)
    assert abs(found - summed_cross_entropy(head, hidden, targets)[0]) > 1
