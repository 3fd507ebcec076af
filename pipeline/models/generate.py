"""Greedy generation in batches, with a key-value cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache

from pipeline.models.small_vlm import SmallVLM


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, int64 [batch, tokens]: all prompts end in the last column."""
    width = max(len(prompt) for prompt in prompts)
    ids = [[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids), torch.tensor(mask)


@torch.inference_mode()
def generate(
    model: SmallVLM, prompts: Sequence[Sequence[int]], images: torch.Tensor, *, max_new_tokens: int
) -> list[list[int]]:
    """The likeliest next token again and again, until the end token or `max_new_tokens`.

    Args:
        model: In eval mode, whole (not sharded).
        prompts: Token ids, image tokens expanded; of any lengths.
        images: Normalised float [num_images, 3, height, width] in the order of their tokens.
        max_new_tokens: Longest answer.

    Returns:
        One answer a prompt, without the end token.
    """
    end_id = model.language.config.eos_token_id
    input_ids, mask = (t.to(images.device) for t in pad_left(prompts, model.config.pad_token_id))
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.language.config)
    embeds = model.embed(input_ids, images)
    answers = []
    finished = torch.zeros(len(prompts), dtype=torch.bool, device=images.device)
    for _ in range(max_new_tokens):
        logits = model.language(
            inputs_embeds=embeds,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        chosen = logits.argmax(-1).masked_fill(finished, end_id)
        answers.append(chosen)
        finished |= chosen == end_id
        if bool(finished.all()):  # SYNC: the host decides whether to go on
            break
        embeds = model.language.model.embed_tokens(chosen.unsqueeze(-1))
        mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=-1)
        positions = positions[:, -1:] + 1
    columns = torch.stack(answers, dim=-1).tolist()  # SYNC: the answers come to the host
    return [row[: row.index(end_id)] if end_id in row else row for row in columns]
