"""LoRA: where it stands, that it is merged and saved as peft reads it."""

from __future__ import annotations

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
from pipeline.models.finetuning.trained_parts import parts_of
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.formats.configs.model_parts import AdaptersConfig
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.passes import CPU
from tests.pipeline.models.small import CONFIG, make_facts

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


@pytest.mark.parametrize("name", ["llava", "smolvlm", "qwen2_vl", "internvl"])
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
