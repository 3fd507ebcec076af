"""Folders of tiny SigLIP and Qwen2 models with random weights, as transformers saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.pipeline.build import save_byte_tokenizer

VISION = {
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 32,
    "patch_size": 16,
}
_TEXT = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LANGUAGE = {
    "vocab_size": 60,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "rms_norm_eps": 1e-5,
    "eos_token_id": 3,
}


def write_siglip(folder: Path, *, whole: bool = True, seed: int = 0, **changes: Any) -> Path:
    """A whole SigLIP, or its vision model alone; a SigLIP 2 of fixed resolution is the same."""
    from transformers import SiglipConfig, SiglipModel, SiglipVisionConfig, SiglipVisionModel

    torch.manual_seed(seed)
    vision = VISION | changes
    if whole:
        model = SiglipModel(SiglipConfig(vision_config=vision, text_config=_TEXT))
    else:
        model = SiglipVisionModel(SiglipVisionConfig(**vision))
    return _save(model, folder)


def write_qwen2(
    folder: Path, *, tied: bool, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any
) -> Path:
    """A causal language model; as Qwen2.5's, the small ones are tied."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(**LANGUAGE | changes, tie_word_embeddings=tied)
    return _save(Qwen2ForCausalLM(config).to(dtype), folder)


def _save(model: Any, folder: Path) -> Path:
    """With weights large enough for differences to show, biases too."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape).to(weight.dtype) * 0.05)
    model.save_pretrained(folder)
    return folder


QWEN25_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}{{- tool | tojson }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by "somebody".<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or \
(message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""For chats of text, as the template of Qwen2.5; no place for images, no marks."""
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>")


def write_tokenizer(
    folder: Path,
    *,
    template: str | None = QWEN25_TEMPLATE,
    eos_token: str = "<|im_end|>",
    tokens: tuple[str, ...] = CHATML_TOKENS,
) -> Path:
    """A byte-level BPE with Qwen2.5's tokens for turns and images, without merges: 261 tokens."""
    save_byte_tokenizer(
        folder,
        template,
        pad_token="<|endoftext|>",
        eos_token=eos_token,
        additional_special_tokens=list(tokens),
    )
    return folder


def write_image_processor(folder: Path, side: int = VISION["image_size"]) -> Path:
    """As the folders of SigLIP on hubs have it."""
    images = {
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_processor_type": "SiglipImageProcessor",
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "SiglipProcessor",
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": side, "width": side},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    return folder
