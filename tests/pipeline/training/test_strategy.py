"""What was asked for runs."""

import pytest
import torch

from pipeline.training.strategy import assert_strategy


def test_fallback_from_sharding_is_an_error():
    with pytest.raises(RuntimeError, match="fsdp2 did not take effect: weight is a Parameter"):
        assert_strategy(torch.nn.Linear(2, 2), "fsdp2")
