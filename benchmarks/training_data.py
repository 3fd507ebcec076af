"""Data of the training benchmark: chats about images, a processor and a model.

The model is a LLaVA with a SigLIP encoder and random weights. Answers have lengths like captions
and explanations (log-normal), and every eighth chat has no image. Transformers makes all of it from
configs, without downloads.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WORDS = (
    *("the", "a", "red", "blue", "small", "cat", "tree", "of", "on"),
    *("near", "house", "and", "with", "water", "is", "sky", "old", "road"),
)
MEDIAN_WORDS, SIGMA, MOST_WORDS = 24, 0.9, 300
"""Length of an answer in words."""
TEXT_ALONE_EVERY = 8
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}{% generation %}"
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}<|im_end|>"
    "{% endgeneration %}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}<image>"
    "{% else %}{{ item['text'] }}{% endif %}{% endfor %}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Sizes of a model and its images."""

    image_px: int
    patch_px: int
    vision: tuple[int, int, int, int]
    """Width, layers, heads, and width within an MLP."""
    language: tuple[int, int, int, int, int]
    """Width, layers, heads, key heads, and width within an MLP."""
    vocab_size: int | None = None
    """None uses the size of the tokenizer."""
    has_tied_head: bool = False
    """Whether the output head is the input embeddings."""

    @property
    def num_image_tokens(self) -> int:
        """Tokens of one image."""
        return (self.image_px // self.patch_px) ** 2


TINY = Size(image_px=64, patch_px=16, vision=(128, 3, 2, 512), language=(192, 4, 4, 2, 768))
REAL = Size(
    image_px=384,
    patch_px=14,
    vision=(1152, 27, 16, 4304),
    language=(2048, 36, 16, 2, 11_008),
    vocab_size=151_936,
    has_tied_head=True,
)
"""SigLIP-so400m (patches of 14, 384 pixels) and Qwen2.5-3B, from their config.json; the tokenizer
here uses only the first few hundred tokens of the vocabulary."""


def write_rows(folder: Path, num_rows: int, size: Size) -> Path:
    """Write images and a manifest; the same arguments give the same files."""
    draw = random.Random(0)  # noqa: S311 - of lengths and words
    noise = np.random.default_rng(0)
    folder.mkdir(parents=True)
    lines = []
    for number in range(num_rows):
        content: list[dict[str, str]] = [{"type": "text", "text": "What is there to be seen?"}]
        if number % TEXT_ALONE_EVERY:
            side = 2 * size.image_px
            coarse = noise.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(
                folder / f"{number}.jpg", quality=90
            )
            content = [{"type": "image", "path": f"{number}.jpg"}, *content]
        drawn = round(math.exp(draw.gauss(math.log(MEDIAN_WORDS), SIGMA)))
        num_words = min(MOST_WORDS, max(1, drawn))
        answer = " ".join(draw.choice(WORDS) for _ in range(num_words))
        messages = [
            {"role": "user", "content": content},
            {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        ]
        lines.append(json.dumps({"messages": messages}) + "\n")
    (folder / "rows.jsonl").write_text("".join(lines))
    return folder / "rows.jsonl"


def make_processor(size: Size) -> Any:
    """Return a `LlavaProcessor` with a small tokenizer."""
    import transformers as hf
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    texts = [" ".join(WORDS), "user assistant What is there to be seen?"]
    bpe.train_from_iterator(texts * 9, trainer)
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",  # noqa: S106 - no password
        pad_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=["<|im_start|>", "<image>"],
    )
    tokenizer.chat_template = TEMPLATE
    side = {"height": size.image_px, "width": size.image_px}
    return hf.LlavaProcessor(
        image_processor=hf.SiglipImageProcessorPil(size=side),
        tokenizer=tokenizer,
        chat_template=TEMPLATE,
        patch_size=size.patch_px,
        vision_feature_select_strategy="full",
    )


def write_model(folder: Path, size: Size, tokenizer: Any) -> Path:
    """Write a model with random weights in the format of `from_pretrained`."""
    import torch
    import transformers as hf

    torch.manual_seed(0)
    hf.LlavaForConditionalGeneration(make_config(size, tokenizer)).save_pretrained(folder)
    return folder


def make_config(size: Size, tokenizer: Any) -> Any:
    """Return a `LlavaConfig`."""
    import transformers as hf

    width, layers, heads, inner = size.vision
    vision = hf.SiglipVisionConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        image_size=size.image_px,
        patch_size=size.patch_px,
        vision_use_head=False,
    )
    width, layers, heads, key_heads, inner = size.language
    text = hf.Qwen2Config(
        vocab_size=size.vocab_size or len(tokenizer),
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        tie_word_embeddings=size.has_tied_head,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return hf.LlavaConfig(
        vision_config=vision,
        text_config=text,
        tie_word_embeddings=size.has_tied_head,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=size.num_image_tokens,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
