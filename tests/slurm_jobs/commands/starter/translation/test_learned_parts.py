"""Parts that learn: adapters, parts of the model, and layers in 4 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slurm_jobs.commands.starter.translation.translated_files import (
    QWEN,
    row_of,
    translated,
    written,
)

LLAMA = "model_name_or_path: a/b\n"
FULL = LLAMA + "finetuning_type: full\n"
AXOLOTL = "base_model: a/b\n"
WORDS = "[q_proj, v_proj]"
SWIFT = "swift sft --model a/b "


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("a.yaml", LLAMA, {"adapters.rank": 8, "adapters.alpha": 16}),
        ("a.yaml", LLAMA + "lora_rank: 4\nuse_rslora: true\n", {"adapters.alpha": 16}),
        ("a.yaml", LLAMA, {"adapters.targets": ["language"]}),
        (
            "a.yaml",
            LLAMA + "freeze_vision_tower: false\n",
            {"adapters.targets": ["*.visual.blocks.*", "language"]},
        ),
        (
            "a.yaml",
            LLAMA + "lora_target: q_proj,v_proj\n",
            {"adapters.targets": ["*language_model*.q_proj", "*language_model*.v_proj"]},
        ),
        ("a.yaml", FULL, {"learn": ["language"]}),
        ("a.yaml", FULL + "freeze_vision_tower: false\n", {"learn": ["vision", "language"]}),
        (
            "a.yaml",
            FULL + "freeze_multi_modal_projector: false\nfreeze_language_model: true\n",
            {"learn": ["projector"]},
        ),
        ("a.yaml", AXOLOTL + "freeze_mm_modules: true\n", {"learn": ["language"]}),
        (
            "a.yaml",
            AXOLOTL + f"adapter: lora\nlora_r: 32\nlora_target_modules: {WORDS}\n",
            {"adapters.targets": ["*.q_proj", "*.v_proj"], "adapters.rank": 32},
        ),
        (
            "a.yaml",
            AXOLOTL + "unfrozen_parameters: ['model.language_model.*', lm_head]\n",
            {"learn": ["model.language_model*", "lm_head*"]},
        ),
        ("a.sh", SWIFT, {"adapters.rank": 8, "adapters.alpha": 32, "adapters.dropout": 0.05}),
        (
            "a.sh",
            SWIFT + "--tuner_type lora_llm",
            {"adapters.targets": ["language"], "learn": ["adapters", "vision", "projector"]},
        ),
        ("a.sh", SWIFT + "--tuner_type full --freeze_vit false", {"learn": ["vision", "language"]}),
    ],
)
def test_the_same_parts_learn(tmp_path: Path, name: str, text: str, values: dict[str, Any]) -> None:
    config = written(translated(tmp_path / name, text, model=QWEN))
    assert {key: config.get(key) for key in values} == values


def test_a_full_training_drops_adapters_and_4_bits(tmp_path: Path) -> None:
    translation = translated(tmp_path / "a.yaml", AXOLOTL + "lora_r: 8\n")
    assert translation.dropped == ["adapters", "quantize"]
    assert "learn" not in written(translation)
    assert row_of(translation, "lora_r").fate == "without"


@pytest.mark.parametrize(
    ("lines", "quantize"),
    [
        ("quantization_bit: 4\n", {"kind": "nf4", "double": True}),
        ("quantization_bit: 4\ndouble_quantization: false\n", {"kind": "nf4", "double": False}),
        ("quantization_bit: 8\n", None),
        ("", None),
    ],
)
def test_only_4_bits_quantise(tmp_path: Path, lines: str, quantize: object) -> None:
    assert written(translated(tmp_path / "a.yaml", LLAMA + lines)).get("quantize") == quantize


def test_a_model_too_large_for_the_gpus_here_gets_4_bits_as_without_a_file(tmp_path: Path) -> None:
    translation = translated(tmp_path / "a.yaml", LLAMA + "finetuning_type: lora\n", num_gpus=1)
    assert "a third of a GPU" in row_of(translation, "finetuning_type").text
    assert translation.is_quantized
    assert "quantize" not in translation.dropped


def test_8_bits_and_other_adapters_have_no_counterpart(tmp_path: Path) -> None:
    text = AXOLOTL + "adapter: llama-adapter\nload_in_8bit: true\nload_in_4bit: false\n"
    translation = translated(tmp_path / "a.yaml", text)
    for key in ("adapter", "load_in_8bit"):
        assert row_of(translation, key).fate == "without"
    text = AXOLOTL + "adapter: qlora\nload_in_4bit: true\n"
    assert written(translated(tmp_path / "a.yaml", text))["quantize"]["kind"] == "nf4"
