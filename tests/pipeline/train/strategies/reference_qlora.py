"""QLoRA on one process, by transformers, peft and bitsandbytes alone: what ours is compared with.

Nothing of this project is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch.nn import functional
from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

LANGUAGE = r"model\.language_model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj"
"""Of a Qwen2.5-VL."""
NOT_QUANTIZED = ["model.visual", "lm_head"]
"""As `llm_int8_skip_modules` has them: `visual` alone would skip nothing, without a word."""


def load(model_dir: str, compute_dtype: torch.dtype) -> Any:
    """The base, its language layers in NF4 with double quantisation, all else fp32."""
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
        bnb_4bit_quant_storage=torch.uint8,
        llm_int8_skip_modules=NOT_QUANTIZED,
    )
    return AutoModelForImageTextToText.from_pretrained(
        model_dir, quantization_config=config, dtype=torch.float32, device_map={"": "cpu"}
    )


def train(
    model_dir: str,
    steps: Sequence[dict[str, Any]],
    *,
    halved: bool,
    rank: int,
    alpha: float,
    learning_rate: float,
) -> dict[str, list[float]]:
    """Losses and norms of one step after the other.

    Args:
        model_dir: Of the base.
        steps: Inputs of the model; `places` in the flattened rows at which `targets` are learned.
        halved: Whether fp16 with a scaled loss, as on a V100, else fp32.
        rank: Of the adapters.
        alpha: Of the adapters.
        learning_rate: Of AdamW.
    """
    base = load(model_dir, torch.float16 if halved else torch.float32)
    base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
    torch.manual_seed(0)
    settings = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=LANGUAGE)
    model = get_peft_model(base, settings).train()
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=halved)
    found: dict[str, list[float]] = {"losses": [], "norms": []}
    for step in steps:
        inputs = {k: v for k, v in step.items() if k not in {"places", "targets"}}
        with torch.autocast("cpu", dtype=torch.float16, enabled=halved):
            logits = model(**inputs, use_cache=False).logits.flatten(0, 1)
            loss = functional.cross_entropy(logits[step["places"]].float(), step["targets"])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(learning, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        found["losses"].append(float(loss.detach()))
        found["norms"].append(float(norm))
    return found
