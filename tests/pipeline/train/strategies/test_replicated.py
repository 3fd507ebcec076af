"""`strategy: ddp` on two ranks."""

from __future__ import annotations

import pytest

from tests.pipeline.train.strategies.conftest import relatively


def test_replicated_over_nodes_of_one_rank_is_ddp_bit_for_bit(found):
    assert found["hybrid over two nodes"]["weights"] == found["ddp"]["weights"]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_ddp_computes_in_halved_precision_what_one_process_does(found, precision):
    alone = found[f"single, {precision}"]["losses"]
    assert found[f"ddp, {precision}"]["losses"] == relatively(alone, 2e-3)
