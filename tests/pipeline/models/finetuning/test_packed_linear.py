"""Quantised layers of a model: named, computed in a dtype, and unpacked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pipeline.models.build import build_model
from pipeline.models.finetuning.adapters import add_adapters, merge_adapters
from pipeline.models.finetuning.packed_linear import (
    compute_in,
    dequantize_weights,
    quantized_layers,
    quantized_names,
)
from pipeline.models.finetuning.quantized_linear import quantize_model
from slurm_jobs.formats.configs.model_parts import AdaptersConfig, QuantizeConfig
from tests.pipeline.kinds import EXPERT_KINDS, KINDS
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.finetuning.test_adapters import loss, shake
from tests.pipeline.models.small import CONFIG, make_facts

CPU = torch.device("cpu")
NF4 = QuantizeConfig()
LORA = AdaptersConfig(rank=4, alpha=8.0)
FEW = ("qwen2_5_vl", "smolvlm", "llava_siglip")
OTHERS = [kind for kind in KINDS if kind not in (*FEW, *EXPERT_KINDS)]
FIRST_FEW = (*FEW, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS))


@pytest.fixture(params=FIRST_FEW)
def kind(request: pytest.FixtureRequest, make_kind: Callable[[str], Kind]) -> Kind:
    return make_kind(request.param)


def test_the_quantised_model_computes_like_its_dequantised_merged_weights(kind, tmp_path):
    model = kind.build()
    plain = loss(kind, model)
    quantize_model(model, NF4, CPU)
    add_adapters(model, LORA, seed=0)
    shake(model)
    quantized = loss(kind, model)
    whole = merge_adapters(model, dequantize_weights(model, dict(model.state_dict()), CPU))
    fresh = kind.build()
    fresh.load_state_dict(whole)
    torch.testing.assert_close(loss(kind, fresh), quantized, rtol=1e-5, atol=1e-3)
    assert abs(plain - quantized) > 3e-3


def test_the_small_model_is_quantised_too_but_for_what_is_skipped():
    model = build_model(CONFIG, make_facts(), seed=0)
    quantize_model(model, QuantizeConfig(skip=("*.mlp.*",)), CPU)
    leaves = {name.split(".")[-2] for name in quantized_names(model)}
    assert leaves == {"q_proj", "k_proj", "v_proj", "o_proj"}
    compute_in(model, torch.float16)
    assert {layer.compute_dtype for _, layer in quantized_layers(model)} == {torch.float16}
