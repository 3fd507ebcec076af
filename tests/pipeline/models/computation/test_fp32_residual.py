"""Residual sums in fp32 under autocast."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.computation.fp32_residual import keep_residual_in_fp32
from pipeline.train.training_data.batches import to_device
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.kinds import KINDS
from tests.pipeline.models.passes import CPU


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "gemma4"], indirect=True)
def test_residual_sums_beyond_fp16_stay_finite_under_autocast(kind):
    """As in the Qwen2 family, where layers add up to more than fp16 holds.

    Gemma 4 with embeddings per layer is refused in fp16: its layers also multiply the sum itself.
    """
    hidden = {}
    for keeps in (False, True):
        model = kind.build().half()
        if keeps:
            keep_residual_in_fp32(model, CPU.device)
        for layer in model.towers()[1]:
            # Gemma and GLM normalise what their layers add.
            names = ("post_feedforward_layernorm", "post_mlp_layernorm", "mlp")
            last = getattr(layer, next(name for name in names if hasattr(layer, name)))
            last.register_forward_hook(lambda _module, _inputs, output: output + 60_000)
        batch = kind.batch(model, [[sample] for sample in kind.samples()])
        inputs = to_device(batch, CPU, model.layout)
        with torch.autocast("cpu", torch.float16):
            hidden[keeps], _ = model.hidden_states(
                inputs.input_ids, inputs.vision, inputs.position_ids
            )
    assert torch.isfinite(hidden[True]).all()
    assert not torch.isfinite(hidden[False]).any()


def test_layers_that_multiply_the_residual_are_refused_in_fp16(make_kind):
    with pytest.raises(StageConfigError, match="may exceed the range of fp16"):
        keep_residual_in_fp32(make_kind("gemma4").build(), CPU.device)
