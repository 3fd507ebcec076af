"""Shared keys that are repeated before attention."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.attention_kernels import shared_keys
from tests.pipeline.kinds import CAUSAL
from tests.pipeline.models.attention_calls import calls_and_loss, expected_calls


@pytest.mark.parametrize("kind", CAUSAL, indirect=True)
def test_repeated_shared_keys_need_no_sharing_and_give_the_same_loss(kind):
    model = kind.build()
    batch = kind.batch(model, [[sample] for sample in kind.samples()])
    calls, expected = calls_and_loss(model, batch)
    shared_keys.repeat_shared_keys(on=True)
    try:
        repeated_calls, loss = calls_and_loss(model, batch)
    finally:
        shared_keys.repeat_shared_keys(on=False)
    assert repeated_calls == expected_calls(model, has_mask=False, repeats_keys=True)
    assert any(gqa for *_, gqa in calls)
    assert not any(gqa for *_, gqa in repeated_calls)
    torch.testing.assert_close(loss, expected)
    assert calls_and_loss(model, batch)[0] == calls
