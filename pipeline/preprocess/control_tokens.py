"""The tokens that structure a conversation, which no text of a row may write.

In a text, `<|end|>` would become the real token: it would end a turn that goes
on, and could begin one that nobody said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipeline.preprocess.template_checks import find_printed_tokens

if TYPE_CHECKING:
    from pipeline.preprocess.chat_tokenizer import ChatTokenizer
    from slurm_jobs.common.manifests.rows import Message

_PLAIN = re.compile(r"[\w\s]*")
"""Words, digits and white space, which some tokenizers list among their added tokens, and which
stand between tiles of an image."""


def compile_control_tokens(chat: ChatTokenizer, image_tokens: Iterable[str]) -> re.Pattern[str]:
    """What finds a control token in a text.

    These are the tokens that stand for images and their tiles, the tokenizer's special tokens, and
    those of its other added tokens that the template prints around answers: some tokenizers do not
    call `<|user|>` special. Added
    tokens that only answers hold, as `<think>`, are the row's to write; so is a single character,
    which some tokenizers pad with (`!`).
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
    """The first control token in the texts of a message, also where two texts make one."""
    texts = (item.value if item.kind == "text" else "\n" for item in message.content)
    found = pattern.search("".join(texts))
    return found.group() if found else None
