"""Models of every kind with some 100,000 random weights, and a data set that each can take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.pipeline.build import run_consolidate, run_preprocess
from tests.pipeline.kinds import make_processor, write_kind

_SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
_GRIDS = [[rows * 28, columns * 28] for rows, columns in ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3))]
_ONEVISION_GRIDS = [[rows * 28, columns * 28] for rows in (1, 2, 3) for columns in (1, 2, 3)]
_DELTA_NETS = {
    "head_dim": 16,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
"""Layers of Qwen3.5's language model."""
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_MERGING = {
    "depth": 2,
    "hidden_size": 32,
    "num_heads": 2,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
"""Vision tower of Qwen and GLM."""
_PIXTRAL = _SIZES | {
    "model_type": "pixtral",
    "num_attention_heads": 2,
    "head_dim": 16,
    "image_size": 28 * 7,
    "patch_size": 14,
}
_M_ROPE = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]}
PICTURES = ((150, 70), (60, 90), (200, 40), (100, 100))
"""Width and height."""
ROWS = (((0,), "What is this?", "A red cup."), ((1, 2), "And these?", "Two of them."),
        ((), "Why?", "So it is."), ((3,), "What is this?", "Blue!"))  # fmt: skip
"""Numbers of pictures, question and answer."""


def tiny_config(kind: str, *, tied: bool = False, language: str | None = None) -> Any:
    """The config of transformers for a model that fits the processor of this kind.

    `language` is the `model_type` of its language model, for kinds that take several.
    """
    tokenizer = make_processor(kind).tokenizer
    id_of = tokenizer.convert_tokens_to_ids
    text = _SIZES | {
        "vocab_size": len(tokenizer),
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
    }
    if kind.startswith("qwen"):
        return _qwen_config(kind, text, id_of, tied=tied)
    if kind.startswith("glm"):
        return _glm_config(kind, text, id_of, tied=tied)
    if kind == "lighton_ocr":
        text |= {"model_type": language or "qwen3", "head_dim": 8}
        return _lighton_config(text, id_of("<|image_pad|>"), tied=tied)
    if kind == "mistral3":
        text |= {"model_type": language or "mistral", "head_dim": 8}
        return _mistral3_config(text, id_of("[IMG]"), tied=tied)
    if kind == "paddleocr_vl":
        return _paddleocr_config(text, id_of, tied=tied)
    if kind == "gemma3":
        return _gemma3_config(text, id_of, tied=tied)
    if kind == "gemma4":
        return _gemma4_config(text, id_of, tied=tied)
    if kind == "internvl":
        text |= {"model_type": language or "qwen3", "head_dim": 8}
        return _internvl_config(text, id_of("<IMG_CONTEXT>"), tied=tied)
    text["model_type"] = language or ("qwen2" if kind == "llava_onevision" else "llama")
    common = {"text_config": text, "tie_word_embeddings": tied}
    if kind.startswith("llava"):
        return _llava_config(kind, common, id_of("<image>"))
    return _idefics_config(kind, common, id_of("<image>"), tokenizer.pad_token_id)


def _qwen_config(kind: str, text: dict[str, Any], id_of: Any, *, tied: bool) -> Any:
    import transformers as hf

    rope = {**_M_ROPE}
    tokens = ("vision_start", "vision_end")
    # Qwen3-VL adds features of images behind its first layers: one more must follow to see them.
    if kind.startswith("qwen3_vl"):
        text |= {"head_dim": 8, "num_hidden_layers": 3}
    if kind.endswith("_moe"):
        text |= _EXPERTS
    if kind.startswith("qwen3_5"):
        text |= _DELTA_NETS
        rope["partial_rotary_factor"] = 0.5
    common = {
        "text_config": text | {"rope_parameters": rope},
        "image_token_id": id_of("<|image_pad|>"),
        "video_token_id": id_of("<|video_pad|>"),
        **{f"{name}_token_id": id_of(f"<|{name}|>") for name in tokens},
        "tie_word_embeddings": tied,
    }
    vision = {**_MERGING}
    if kind == "qwen2_vl":
        return hf.Qwen2VLConfig(vision_config=vision | {"embed_dim": 32, "mlp_ratio": 2}, **common)
    vision |= {"intermediate_size": 64, "out_hidden_size": 32}
    if kind == "qwen2_5_vl":
        windows = {"window_size": 56, "fullatt_block_indexes": [1]}
        return hf.Qwen2_5_VLConfig(vision_config=vision | windows, **common)
    vision |= {"patch_size": 16, "num_position_embeddings": 64}
    if kind.startswith("qwen3_vl"):
        vision |= {"deepstack_visual_indexes": [0, 1]}
    config = {
        "qwen3_vl": hf.Qwen3VLConfig,
        "qwen3_vl_moe": hf.Qwen3VLMoeConfig,
        "qwen3_5": hf.Qwen3_5Config,
        "qwen3_5_moe": hf.Qwen3_5MoeConfig,
    }[kind]
    return config(vision_config=vision, **common)


def _glm_config(kind: str, text: dict[str, Any], id_of: Any, *, tied: bool) -> Any:
    import transformers as hf

    vision = _MERGING | {
        "image_size": 14 * 5,
        "out_hidden_size": 32,
        "intermediate_size": 64,
    }
    if kind == "glm46v":
        text |= {"model_type": "glm4v_text"}
        vision |= {"model_type": "glm4v_vision"}
    config = {"glm4v": hf.Glm4vConfig, "glm46v": hf.Glm46VConfig, "glm_ocr": hf.GlmOcrConfig}[kind]
    return config(
        text_config=text | {"rope_parameters": {**_M_ROPE}},
        vision_config=vision,
        image_token_id=id_of("<|image|>"),
        video_token_id=id_of("<|video|>"),
        image_start_token_id=id_of("<|begin_of_image|>"),
        image_end_token_id=id_of("<|end_of_image|>"),
        video_start_token_id=id_of("<|begin_of_video|>"),
        video_end_token_id=id_of("<|end_of_video|>"),
        tie_word_embeddings=tied,
    )


def _lighton_config(text: dict[str, Any], image_token_id: int, *, tied: bool) -> Any:
    import transformers as hf

    return hf.LightOnOcrConfig(
        text_config=text | {"tie_word_embeddings": tied},
        vision_config={**_PIXTRAL},
        image_token_id=image_token_id,
        spatial_merge_size=2,
        tie_word_embeddings=tied,
    )


def _mistral3_config(text: dict[str, Any], image_token_id: int, *, tied: bool) -> Any:
    import transformers as hf

    return hf.Mistral3Config(
        text_config=text | {"tie_word_embeddings": tied, "sliding_window": None},
        vision_config={**_PIXTRAL},
        image_token_index=image_token_id,
        spatial_merge_size=2,
        tie_word_embeddings=tied,
    )


def _paddleocr_config(text: dict[str, Any], id_of: Any, *, tied: bool) -> Any:
    import transformers as hf

    sides = {"image_size": 14 * 5, "patch_size": 14, "spatial_merge_size": 2}
    return hf.PaddleOCRVLConfig(
        text_config=text
        | {"rope_parameters": {**_M_ROPE}, "head_dim": 8, "tie_word_embeddings": tied},
        vision_config=_SIZES | sides | {"num_attention_heads": 2},
        image_token_id=id_of("<|IMAGE_PLACEHOLDER|>"),
        video_token_id=id_of("<|video|>"),
        vision_start_token_id=id_of("<|IMAGE_START|>"),
        vision_end_token_id=id_of("<|IMAGE_END|>"),
        tie_word_embeddings=tied,
    )


def _gemma3_config(text: dict[str, Any], id_of: Any, *, tied: bool) -> Any:
    import transformers as hf

    # Shorter than a sample, and longer than an image.
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 12}
    heads = {"head_dim": 8, "query_pre_attn_scalar": 8}
    vision = _SIZES | {"num_attention_heads": 2, "image_size": 28, "patch_size": 7}
    vision |= {"model_type": "siglip_vision_model", "vision_use_head": False}
    return hf.Gemma3Config(
        text_config=text | layers | heads | {"model_type": "gemma3_text"},
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=id_of("<image_soft_token>"),
        boi_token_index=id_of("<start_of_image>"),
        eoi_token_index=id_of("<end_of_image>"),
        tie_word_embeddings=tied,
    )


def _internvl_config(text: dict[str, Any], image_token_id: int, *, tied: bool) -> Any:
    import transformers as hf

    sides = {"image_size": [28, 28], "patch_size": [7, 7]}
    return hf.InternVLConfig(
        vision_config=_SIZES | sides | {"num_attention_heads": 2, "attention_bias": True},
        text_config=text | {"tie_word_embeddings": tied},
        image_token_id=image_token_id,
        image_seq_length=4,
        tie_word_embeddings=tied,
    )


def _gemma4_config(text: dict[str, Any], id_of: Any, *, tied: bool) -> Any:
    """All that differs from Gemma 3, and a tower for sounds, which nothing here uses."""
    import transformers as hf
    from transformers import cache_utils

    if not hasattr(cache_utils, "KVSharingDict"):
        pytest.skip("this transformers loses shared keys, so the model is refused")
    kinds = ["sliding_attention", "full_attention"] * 2
    language = {
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": kinds,
        "sliding_window": 12,
        "head_dim": 8,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 4,
        "vocab_size_per_layer_input": text["vocab_size"],
        "use_double_wide_mlp": True,
        "use_bidirectional_attention": "vision",
        "final_logit_softcapping": 3.0,
    }
    vision = _SIZES | {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    vision |= {"patch_size": 4, "pooling_kernel_size": 3, "position_embedding_size": 240}
    vision |= {"use_clipped_linears": True, "standardize": True}
    sounds = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sounds |= {"subsampling_conv_channels": [8, 4], "output_proj_dims": 16}
    return hf.Gemma4Config(
        text_config=text | language | {"model_type": "gemma4_text"},
        vision_config=vision | {"model_type": "gemma4_vision"},
        audio_config=sounds | {"model_type": "gemma4_audio"},
        image_token_id=id_of("<|image|>"),
        boi_token_id=id_of("<|image>"),
        eoi_token_id=id_of("<image|>"),
        video_token_id=id_of("<|video|>"),
        audio_token_id=id_of("<|audio|>"),
        boa_token_id=id_of("<|audio>"),
        eoa_token_index=id_of("<audio|>"),
        tie_word_embeddings=tied,
    )


def _llava_config(kind: str, common: dict[str, Any], image_token_id: int) -> Any:
    import transformers as hf

    vision = _SIZES | {"num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 28}
    vision |= {"patch_size": 14}
    clip = vision | {"model_type": "clip_vision_model", "projection_dim": 32}
    siglip = vision | {"model_type": "siglip_vision_model", "vision_use_head": False}
    common |= {"image_token_index": image_token_id}
    if kind == "llava_onevision":
        return hf.LlavaOnevisionConfig(
            vision_config=siglip | {"image_size": 28},
            image_grid_pinpoints=_ONEVISION_GRIDS,
            vision_aspect_ratio="anyres_max_2",
            video_token_index=0,
            **common,
        )
    if kind == "llava_siglip":
        chosen = {"vision_feature_select_strategy": "full", "vision_feature_layer": -1}
        return hf.LlavaConfig(vision_config=siglip, image_seq_length=4, **chosen, **common)
    common |= {"vision_feature_select_strategy": "default", "vision_feature_layer": -2}
    if kind == "llava":
        return hf.LlavaConfig(vision_config=clip, image_seq_length=4, **common)
    return hf.LlavaNextConfig(vision_config=clip, image_grid_pinpoints=_GRIDS, **common)


def _idefics_config(kind: str, common: dict[str, Any], image_token_id: int, pad_id: int) -> Any:
    import transformers as hf

    if kind == "smolvlm" and hf.__version__.startswith("5.20."):
        pytest.skip(
            "transformers 5.20 takes a patch's side for the tokens of a tile: too many here"
        )
    vision = _SIZES | {"num_attention_heads": 2, "image_size": 28, "patch_size": 7}
    config = hf.Idefics3Config if kind == "idefics3" else hf.SmolVLMConfig
    return config(
        vision_config=vision,
        image_token_id=image_token_id,
        scale_factor=2,
        pad_token_id=pad_id,
        **common,
    )


def write_tiny(
    kind: str, folder: Path, *, tied: bool = False, seed: int = 0, language: str | None = None
) -> Path:
    """A folder with config and weights, large enough for differences to show."""
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(tiny_config(kind, tied=tied, language=language))
    draw = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                spread = 0.5 if "embed" in name else 0.5 / weight.shape[-1] ** 0.5
                weight.copy_(torch.randn(weight.shape, generator=draw) * spread)
    model.save_pretrained(folder)
    return folder


CHAINS = (
    ((0,), "red", "a cup", "A red cup."),
    ((1, 2), "blue", "two", "Two blue ones."),
    ((), "red", "nothing", "So it is."),
    ((3,), "green", "a tree", "A tree!"),
)
"""Numbers of pictures, and what is said at three levels."""


def write_chains(kind: str, folder: Path) -> Path:
    """The data set of `CHAINS`."""
    return _write_dataset(kind, folder, [_chain(*chain) for chain in CHAINS])


def _chain(pictures: tuple[int, ...], *answers: str) -> list[dict[str, Any]]:
    asked = ("What colour?", "What is it?", "Tell me.")
    turns = [
        _messages(pictures if n == 0 else (), asked[n], said) for n, said in enumerate(answers)
    ]
    return [message for turn in turns for message in turn]


def write_dataset(kind: str, folder: Path) -> Path:
    """The data set of `ROWS`, exactly decoded, as this kind's processor wants it."""
    return _write_dataset(kind, folder, [_messages(*row) for row in ROWS])


def _write_dataset(kind: str, folder: Path, rows: list[list[dict[str, Any]]]) -> Path:
    source = folder / "source"
    source.mkdir(parents=True)
    for number, (width, height) in enumerate(PICTURES):
        pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(source / f"{number}.png")
    lines = [json.dumps({"messages": messages}) + "\n" for messages in rows]
    (source / "rows.jsonl").write_text("".join(lines))
    config = {
        "manifest": str(source / "rows.jsonl"),
        "processor": str(write_kind(kind, folder / "processor")),
        "max_tokens": 100_000,
        "num_threads": 1,
        "image_decoding": "exact",
        "image_format": "png",
    }
    (result,), parts_dir = run_preprocess(folder / "prep", config)
    assert result["num_rejected"] == 0
    return run_consolidate(folder / "set", parts_dir)[1]


def _messages(pictures: tuple[int, ...], question: str, answer: str) -> list[dict[str, Any]]:
    images = [{"type": "image", "path": f"{number}.png"} for number in pictures]
    return [
        {"role": "user", "content": [*images, {"type": "text", "text": question}]},
        {"role": "assistant", "content": [{"type": "text", "text": answer}]},
    ]
