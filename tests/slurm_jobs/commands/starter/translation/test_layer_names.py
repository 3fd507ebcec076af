"""Layers that another tool adapts, as patterns of full names."""

from __future__ import annotations

import pytest

from slurm_jobs.commands.starter.translation.layer_names import (
    projector_pattern,
    target_patterns,
    vision_pattern,
)

QWEN, SMOL = "Qwen/Qwen2.5-VL-3B-Instruct", "HuggingFaceTB/SmolVLM2-2.2B-Instruct"
SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
IN_LAYERS = (
    r"model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj"
)


@pytest.mark.parametrize(
    ("named", "model", "is_within", "patterns", "lost"),
    [
        (["all"], QWEN, True, ["language"], []),
        (
            ["all-linear", "embed_tokens", "lm_head"],
            QWEN,
            True,
            ["language"],
            ["embed_tokens", "lm_head"],
        ),
        (SEVEN, QWEN, True, ["language"], []),
        (
            ["q_proj", "v_proj"],
            QWEN,
            True,
            ["*language_model*.q_proj", "*language_model*.v_proj"],
            [],
        ),
        (["q_proj"], SMOL, True, ["*text_model*.q_proj"], []),
        (["q_proj"], QWEN, False, ["*.q_proj"], []),
        (["self_attn.q_proj"], QWEN, False, ["*.self_attn.q_proj"], []),
        ([IN_LAYERS], QWEN, False, ["language"], []),
        ([IN_LAYERS.replace("language_model", "text_model")], SMOL, False, ["language"], []),
        (
            ["model.language_model.layers.*.(q|v)_proj"],
            QWEN,
            False,
            ["*language_model*.q_proj", "*language_model*.v_proj"],
            [],
        ),
        (["(model.visual.x|y"], QWEN, False, [], ["(model.visual.x|y"]),
    ],
)
def test_names_of_peft_become_patterns_of_the_same_layers(
    named: list[str], model: str, is_within: bool, patterns: list[str], lost: list[str]
) -> None:
    found = target_patterns(named, model, is_within_language=is_within)
    assert found == (patterns, lost)


def test_layers_of_the_vision_tower_in_an_expression_are_named_as_lost() -> None:
    both = rf"({IN_LAYERS}|model\.visual\.blocks\.\d+\.attn\.qkv)"
    assert target_patterns([both], QWEN, is_within_language=False) == (["language"], [both])


def test_other_parts_have_patterns_where_the_family_is_known() -> None:
    assert vision_pattern(QWEN) == "*.visual.blocks.*"
    assert projector_pattern(SMOL) == "*.connector.*"
    assert vision_pattern("some/model") is None
