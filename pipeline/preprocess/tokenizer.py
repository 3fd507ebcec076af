"""The tokenizer and chat template of a processor folder, checked before they are trusted.

A template without `{% generation %}` marks would leave no label, and one that
prints lists or forgets the image would train on nonsense without any error:
one conversation is rendered at the start, and looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.preprocess.token_rules import TokenSequence, count_token
from slurm_jobs.common.errors import StageConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
_QUESTION, _ANSWER = "question", "answer"

ChatMessages = Sequence[Mapping[str, Any]]
"""Messages as chat templates take them: `role`, and `content` as a list of items."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatTokenizer:
    """A tokenizer whose chat template gives masks of the assistant's words."""

    tokenizer: PreTrainedTokenizerBase
    image_token_id: int
    pad_token_id: int

    def encode_conversation(self, messages: ChatMessages) -> TokenSequence:
        """Tokens of a whole conversation, one token for each image."""
        encoded = self.tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        return TokenSequence(
            input_ids=np.asarray(encoded["input_ids"], dtype=np.int32),
            supervised=np.asarray(encoded["assistant_masks"], dtype=bool),
        )

    def encode_prompt(self, messages: ChatMessages) -> np.ndarray:
        """int32 [num_tokens] up to the place where the assistant starts to speak."""
        encoded = self.tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, add_generation_prompt=True
        )
        return np.asarray(encoded["input_ids"], dtype=np.int32)


def load_chat_tokenizer(folder: Path, image_token: str) -> ChatTokenizer:
    """Load the tokenizer of a processor folder and check its chat template.

    Raises:
        StageConfigError: no tokenizer, no usable template, or no image token.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        message = f"{folder}: no tokenizer can be loaded from it ({error})"
        raise StageConfigError(message) from error
    _check_marks(tokenizer.chat_template, folder)
    image_token_id = tokenizer.convert_tokens_to_ids(image_token)
    if image_token_id is None or image_token_id == tokenizer.unk_token_id:
        message = (
            f"{folder / 'tokenizer.json'}: the image token {image_token!r} is no token of it; "
            f"set `image_token` in processor_config.json"
        )
        raise StageConfigError(message)
    chat = ChatTokenizer(
        tokenizer=tokenizer,
        image_token_id=image_token_id,
        pad_token_id=_pad_token_id(tokenizer),
    )
    _check_template(chat, folder)
    return chat


def _pad_token_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The padding token, else the end token: padding is masked, so any known token serves."""
    ids = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(token_id for token_id in ids if token_id is not None)


def _check_marks(template: object, folder: Path) -> None:
    place = folder / "tokenizer_config.json"
    if not isinstance(template, str):
        message = f"{place}: no `chat_template`; add the one that the model was trained with"
        raise StageConfigError(message)
    if not _GENERATION_MARK.search(template):
        message = (
            f"{place}: its `chat_template` does not mark what the assistant says; put "
            f"`{{% generation %}}` before and `{{% endgeneration %}}` after the assistant's "
            f"content and end-of-turn token, so that nothing else is trained on"
        )
        raise StageConfigError(message)


def _check_template(chat: ChatTokenizer, folder: Path) -> None:
    question = [{"type": "image"}, {"type": "text", "text": _QUESTION}]
    answer = [{"type": "text", "text": _ANSWER}]
    conversation = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    ]
    tokens = chat.encode_conversation(conversation)
    learned = chat.tokenizer.decode(tokens.input_ids[tokens.supervised])
    num_images = count_token(tokens.input_ids, chat.image_token_id)
    problem = None
    if num_images != 1:
        problem = f"gives {num_images} image tokens for one item {{'type': 'image'}}"
    elif _ANSWER not in learned or "type" in learned or _QUESTION in learned:
        problem = f"marks {learned!r} as the assistant's words, expected {_ANSWER!r}"
    if problem:
        message = (
            f"{folder / 'tokenizer_config.json'}: the `chat_template` {problem}; it must take "
            f"`content` as a list of items, of the assistant's messages too"
        )
        raise StageConfigError(message)
