"""Linear layers that patterns stand for, and those that cannot be adapted or quantised."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pipeline.models.build import build_model, load_model
from pipeline.models.finetuning.adapters import add_adapters
from pipeline.models.finetuning.packed_linear import quantized_layers
from pipeline.models.finetuning.quantized_linear import quantize_model
from pipeline.models.finetuning.target_layers import find_targets
from pipeline.models.small_vlm import SmallVLM
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import AdaptersConfig, QuantizeConfig
from tests.pipeline.models.small import CONFIG, make_facts


def test_targets_are_full_names_and_a_pattern_without_any_is_refused(make_kind):
    model = make_kind("qwen2_5_vl").build()
    found = find_targets(model, ("model.visual.blocks.*.attn.qkv",))
    assert found == [f"model.visual.blocks.{n}.attn.qkv" for n in (0, 1)]
    with pytest.raises(StageConfigError, match="'q_proj' matches no linear layer; set `language`"):
        find_targets(model, ("q_proj",))


def test_layers_on_which_nothing_depends_are_quantised_and_never_adapted(make_kind):
    pattern = "*vision_tower*.layers.2.*.q_proj"
    model = make_kind("llava").build()
    with pytest.raises(StageConfigError, match="matches no linear layer that affects an output"):
        add_adapters(model, AdaptersConfig(targets=(pattern,)), seed=0)
    quantize_model(model, QuantizeConfig(targets=(pattern,)), torch.device("cpu"))
    assert len(list(quantized_layers(model))) == 1


@pytest.mark.parametrize("pattern", ["lm_head", "*", "*head"])
def test_a_head_that_is_the_embeddings_is_no_target(make_kind, tied_dir, pattern):
    kind = make_kind("qwen2_5_vl")
    found = find_targets(kind.build(), (pattern,))
    assert "lm_head" in found  # where it has weights of its own
    tied = load_model(tied_dir, kind.facts)
    words = r"adapters\.targets matches lm_head, .* tied to .*embed_tokens.weight \(tie"
    with pytest.raises(StageConfigError, match=words):
        add_adapters(tied, AdaptersConfig(targets=(pattern,)), seed=0)
    with pytest.raises(StageConfigError, match=r"quantize\.targets matches lm_head"):
        quantize_model(tied, QuantizeConfig(targets=(pattern,)), torch.device("cpu"))
    add_adapters(tied, AdaptersConfig(targets=("language",)), seed=0)


def test_a_wide_pattern_of_layers_in_4_bits_may_skip_a_tied_head(make_kind, tied_dir):
    tied = load_model(tied_dir, make_kind("qwen2_5_vl").facts)
    config = QuantizeConfig(targets=("*",), skip=("lm_head", "*visual*"))
    quantize_model(tied, config, torch.device("cpu"))
    assert sum(1 for _ in quantized_layers(tied)) > 0


def test_a_head_of_the_small_model_that_is_the_embeddings_is_no_target():
    model = build_model(CONFIG, make_facts(), seed=0)
    config = dataclasses.replace(
        model.config, language={**model.config.language, "tie_word_embeddings": True}
    )
    with pytest.raises(StageConfigError, match=r"matches language.lm_head"):
        add_adapters(SmallVLM(config), AdaptersConfig(targets=("language.lm_head",)), seed=0)
