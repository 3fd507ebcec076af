"""Tokens that structure a conversation and that no text of a row may contain.

In a text, `<|end|>` would become the real token: it would end a turn too early, and could start
a false one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipeline.preprocess.chat.chat_tokenizer import ChatTokenizer
from pipeline.preprocess.chat.template_checks import find_printed_tokens

if TYPE_CHECKING:
    from slurm_jobs.formats.manifests.messages import Message


_PLAIN = re.compile(r"[\w\s]*")
"""Words, digits and white space, which some tokenizers list as added tokens, and which separate
the tiles of an image."""


def compile_control_tokens(chat: ChatTokenizer, image_tokens: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that finds a control token in a text.

    Control tokens are the tokens of images and their tiles, the tokenizer's special tokens, and
    its other added tokens that the template prints around answers: some tokenizers do not mark
    `<|user|>` as special. Rows may contain added tokens that occur only in answers, such as
    `<think>`, and single characters, which some tokenizers use as padding (`!`).
    """
    printed = find_printed_tokens(chat)
    tokens = {
        *(t for t in image_tokens if not _PLAIN.fullmatch(t)),
        *(t for t in chat.tokenizer.all_special_tokens if len(t) > 1),
    }
    for token_id, token in chat.tokenizer.added_tokens_decoder.items():
        if (token.special and len(token.content) > 1) or (
            token_id in printed and not _PLAIN.fullmatch(token.content)
        ):
            tokens.add(token.content)
    longest_first = sorted(tokens, key=lambda token: (-len(token), token))
    return re.compile("|".join(re.escape(token) for token in longest_first))


def find_control_token(pattern: re.Pattern[str], message: Message) -> str | None:
    """Return the first control token in a message, including one that two texts form together."""
    texts = (item.value if item.kind == "text" else "\n" for item in message.content)
    match = pattern.search("".join(texts))
    return match.group() if match else None
