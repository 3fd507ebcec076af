"""Conversations to tokens, and which of them the assistant says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.preprocess.token_rules import TokenSequence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ChatMessages = Sequence[Mapping[str, Any]]
"""Messages as chat templates take them: `role`, and `content` as a list of items."""


class TemplateRefusedError(ValueError):
    """The chat template raised an error on these messages."""


@contextmanager
def _refusals() -> Iterator[None]:
    from jinja2 import TemplateError

    try:
        yield
    except (TemplateError, TypeError, ValueError, LookupError) as error:  # what expressions raise
        message = f"{error}" if isinstance(error, TemplateError) else f"{error!r}"
        raise TemplateRefusedError(message) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatTokenizer:
    """A tokenizer whose chat template gives masks of the assistant's words."""

    tokenizer: PreTrainedTokenizerBase
    image_token_id: int
    pad_token_id: int

    def encode_conversation(self, messages: ChatMessages) -> TokenSequence:
        """Tokens of a whole conversation, one token for each image.

        Raises:
            TemplateRefusedError: the template takes no such messages.
        """
        with _refusals():
            encoded = self.tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
            )
        return TokenSequence(
            input_ids=np.asarray(encoded["input_ids"], dtype=np.int32),
            supervised=np.asarray(encoded["assistant_masks"], dtype=bool),
        )

    def encode_prompt(self, messages: ChatMessages) -> np.ndarray:
        """int32 [num_tokens] up to the place where the assistant starts to speak.

        Raises:
            TemplateRefusedError: the template takes no such messages.
        """
        with _refusals():
            encoded = self.tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=True, add_generation_prompt=True
            )
        return np.asarray(encoded["input_ids"], dtype=np.int32)
