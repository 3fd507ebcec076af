"""Differences between versions of torch and transformers, as far as one environment shows them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from pipeline import library_versions
from pipeline.library_versions import can_shard_whole_numbers, features_as_inputs, param_groups_of
from pipeline.training.device import Workplace
from pipeline.training.strategies.quantized_effect import check_dtypes
from slurm_jobs.common.config_values import build_config
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import TrainConfig

CPU = Workplace(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)


def unit_with(**state):
    return SimpleNamespace(_get_fsdp_state=lambda: SimpleNamespace(**state))


@pytest.mark.parametrize(
    ("state", "groups"),
    [
        ({"_fsdp_param_groups": ["a", "b"], "_fsdp_param_group": "a"}, ["a", "b"]),
        ({"_fsdp_param_group": "a"}, ["a"]),
        ({"_fsdp_param_group": None}, []),
    ],
)
def test_the_groups_of_a_unit_are_those_that_torch_has_of_it(state, groups):
    assert param_groups_of(unit_with(**state)) == groups


@pytest.mark.parametrize(("version", "can"), [("2.11.0+cu130", False), ("2.12.1", True)])
def test_a_torch_that_cannot_shard_4_bits_is_named_and_refused_under_fsdp2_alone(
    monkeypatch, version, can
):
    monkeypatch.setattr(torch, "__version__", version)
    assert can_shard_whole_numbers() == can
    values = {"num_steps": 1, "adapters": {"rank": 4}, "quantize": {}}
    for strategy in ("single", "ddp"):
        check_dtypes(build_config(TrainConfig, {**values, "strategy": strategy}), CPU)
    sharded = build_config(TrainConfig, {**values, "strategy": "fsdp2"})
    if can:
        check_dtypes(sharded, CPU)
    else:
        with pytest.raises(StageConfigError, match=rf"torch {version[:6]}.* set `strategy: ddp`"):
            check_dtypes(sharded, CPU)


class Old(torch.nn.Module):
    """A model of transformers before 5.20, which knows no features that were made before."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(2, 3)

    def get_input_embeddings(self):
        return self.embed

    def get_image_features(self, _pixel_values):
        return "its own"

    def forward(self, input_ids, pixel_values=None):
        text = self.embed(input_ids)
        return text if pixel_values is None else self.get_image_features(pixel_values)


class New(Old):
    def forward(self, input_ids, mm_encoder_outputs=None):
        text = self.embed(input_ids)
        return text if mm_encoder_outputs is None else mm_encoder_outputs["image"]


@pytest.mark.parametrize("model", [Old(), New()])
def test_features_that_were_made_before_reach_models_of_old_and_new_releases(model):
    library_versions._takes_features.cache_clear()
    ids = torch.zeros(1, dtype=torch.long)
    before = SimpleNamespace(pooler_output=[torch.ones(1, 3)])
    with features_as_inputs(model, before) as inputs:
        assert model(ids, **inputs) is before
    with features_as_inputs(model, None) as inputs:
        assert model(ids, **inputs).shape == (1, 3)
    assert model.get_image_features(None) == "its own"
    assert not model.embed._forward_hooks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_models_of_old_releases_get_features_in_the_dtype_of_their_text(dtype):
    model, weights = Old().to(dtype), torch.ones(1, 3, dtype=torch.bfloat16, requires_grad=True)
    output = BaseModelOutput()
    output.pooler_output = 2 * weights  # as SmolVLM adds it
    with features_as_inputs(model, output) as inputs:
        merged = model(torch.zeros(1, dtype=torch.long), **inputs).pooler_output
    assert merged.dtype == dtype
    merged.sum().backward()
    assert weights.grad is not None
