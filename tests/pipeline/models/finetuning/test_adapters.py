"""LoRA: where it stands, that it is merged and saved as peft reads it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from pipeline.models.build import build_model, load_model
from pipeline.models.finetuning.adapters import (
    ADAPTER_WEIGHTS,
    add_adapters,
    merge_adapters,
    save_adapters,
)
from pipeline.models.finetuning.packed_linear import quantized_layers
from pipeline.models.finetuning.quantized_linear import quantize_model
from pipeline.models.finetuning.target_layers import find_targets
from pipeline.models.finetuning.trained_parts import parts_of
from pipeline.models.small_vlm import SmallVLM
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.configs.model_parts import AdaptersConfig, QuantizeConfig
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.test_hugging_face import CPU
from tests.pipeline.models.test_small_vlm import CONFIG, make_facts
from tests.pipeline.models.tiny import write_tiny

CONFIG_4 = AdaptersConfig(rank=4, alpha=8.0)


def shake(model: VisionLanguageModel) -> None:
    """Give the adapters an effect."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_B." in name:
                weight.copy_(0.05 * torch.randn(weight.shape, generator=draw))


def loss(kind: Kind, model: VisionLanguageModel) -> torch.Tensor:
    batch = kind.batch(model, [[sample] for sample in kind.samples()])
    return loss_of(model, to_device(batch, CPU, model.layout)).detach()


def test_only_linear_layers_of_the_language_model_get_adapters(kind):
    model = kind.build()
    num_linear = sum(
        isinstance(module, torch.nn.Linear)
        for layer in model.towers()[-1]
        for module in layer.modules()
    )
    before = loss(kind, model)
    add_adapters(model, CONFIG_4, seed=0)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert len(trained) == 2 * num_linear
    vision = {id(p) for p in model.vision_tower.parameters()}
    assert not any(id(p) in vision for p in model.parameters() if p.requires_grad)
    torch.testing.assert_close(loss(kind, model), before)


def test_merged_weights_compute_what_the_adapters_did(kind, tmp_path):
    model = kind.build()
    plain = loss(kind, model)
    add_adapters(model, CONFIG_4, seed=0)
    shake(model)
    with_adapters = loss(kind, model)
    assert abs(with_adapters - plain) > 1e-2
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    model.save_pretrained(tmp_path, merge_adapters(model, whole))
    merged = load_model(tmp_path, kind.facts)
    torch.testing.assert_close(loss(kind, merged), with_adapters, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("name", ["llava", "smolvlm", "qwen2_vl"])
def test_saved_adapters_are_read_by_peft(make_kind, name, tmp_path):
    kind = make_kind(name)
    model = kind.build()
    add_adapters(model, CONFIG_4, seed=0)
    shake(model)
    projector = {name for name, part in parts_of(model).items() if part == "projector"}
    with torch.no_grad():
        for parameter_name in projector:
            model.get_parameter(parameter_name).add_(0.1)
    learned = frozenset({"hf.a.b.lora_A.weight", "heads.0.weight", *projector})
    written = save_adapters(
        model, tmp_path, model.state_dict(), base=str(kind.model_dir), learned=learned
    )
    assert load_file(tmp_path / ADAPTER_WEIGHTS).keys() == written.keys()
    num_adapters = sum(".lora_" in n for n, _ in model.named_parameters())
    assert len(written) == num_adapters + len(projector)
    base = AutoModelForImageTextToText.from_pretrained(kind.model_dir, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(base, tmp_path).merge_and_unload()
    whole = merge_adapters(model, dict(model.state_dict()))
    for name_of, value in theirs.state_dict().items():
        torch.testing.assert_close(value, whole[f"hf.{name_of}"])


def test_trained_weights_that_an_adapter_file_cannot_store_are_named(make_kind, tmp_path, caplog):
    model = make_kind("qwen2_vl").build()
    add_adapters(model, CONFIG_4, seed=0)
    within = next(n for n, _ in model.named_parameters() if n.endswith("q_proj.base_layer.weight"))
    save_adapters(model, tmp_path, model.state_dict(), base="b", learned=frozenset({within}))
    assert "cannot store 1 weights that were trained in addition" in caplog.text
    assert within.removeprefix("hf.") in caplog.text


def test_small_model_can_be_adapted_too():
    model = build_model(CONFIG, make_facts(), seed=0)
    names = {name for name, _ in model.named_parameters()}
    add_adapters(model, CONFIG_4, seed=0)
    merged = merge_adapters(model, dict(model.state_dict()))
    assert {n for n in merged if n in names} == names
    assert {n.split(".")[0] for n, p in model.named_parameters() if p.requires_grad} == {"language"}


def test_weights_of_adapters_depend_on_the_seed_alone(make_kind):
    kind = make_kind("smolvlm")
    found = []
    for seed, noise in ((5, 0), (5, 1), (6, 0)):
        torch.manual_seed(noise)
        model = kind.build()
        add_adapters(model, CONFIG_4, seed=seed)
        found.append({n: p for n, p in model.named_parameters() if ".lora_A." in n})
    one, same, other = found
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


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


@pytest.fixture
def tied_dir(tmp_path: Path) -> Path:
    """A model whose output head is its embeddings."""
    return write_tiny("qwen2_5_vl", tmp_path / "tied", tied=True)


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


def test_saving_a_tied_head_that_was_trained_separately_is_refused(make_kind, tied_dir, tmp_path):
    model = load_model(tied_dir, make_kind("qwen2_5_vl").facts)
    weights = dict(model.state_dict())
    model.save_pretrained(tmp_path, weights)
    with pytest.raises(StageError, match=r"lm_head.weight no longer equals .*embed_tokens.weight"):
        model.save_pretrained(
            tmp_path, weights | {"hf.lm_head.weight": weights["hf.lm_head.weight"] + 1}
        )


def test_peft_reads_tied_embeddings_that_were_trained_with_adapters(make_kind, tied_dir, tmp_path):
    """And a layer that has adapters, where all of it learned."""
    model = load_model(tied_dir, make_kind("qwen2_5_vl").facts)
    add_adapters(model, CONFIG_4, seed=0)
    shake(model)
    names = [n for n, _ in model.named_parameters() if "embed_tokens" in n]
    names += [n for n, _ in model.named_parameters() if ".1.self_attn.q_proj.base_layer." in n]
    with torch.no_grad():
        for name in names:
            model.get_parameter(name).add_(0.1)
    save_adapters(model, tmp_path, model.state_dict(), base=str(tied_dir), learned=frozenset(names))
    assert len(names) == 3
    model.save_pretrained(tmp_path / "model", merge_adapters(model, dict(model.state_dict())))
    base = AutoModelForImageTextToText.from_pretrained(tied_dir, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(base, tmp_path)
    ours = AutoModelForImageTextToText.from_pretrained(tmp_path / "model", dtype=torch.float32)
    ids = torch.arange(5, 25)[None]
    inputs = {"input_ids": ids, "mm_token_type_ids": torch.zeros_like(ids)}
    expected = ours.eval()(**inputs).logits
    torch.testing.assert_close(theirs.eval()(**inputs).logits, expected)
    torch.testing.assert_close(theirs.merge_and_unload()(**inputs).logits, expected)
