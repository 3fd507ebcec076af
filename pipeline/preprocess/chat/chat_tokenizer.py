"""Conversations to tokens, with the tokens of the assistant's answers."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pipeline.preprocess.chat.answer_spans import (
    TemplateRefusedError,
    find_answers,
    find_header,
    marks_answers,
)
from pipeline.preprocess.chat.token_sequences import TokenSequence, mark_spans

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


ChatMessages = Sequence[Mapping[str, Any]]
"""Messages for chat templates: `role`, and `content` as a list of items."""


@contextmanager
def _refusals() -> Iterator[None]:
    from jinja2 import TemplateError

    try:
        yield
    except TemplateRefusedError:
        raise
    except (TemplateError, TypeError, ValueError, LookupError) as error:  # errors of expressions
        message = f"{error}" if isinstance(error, TemplateError) else f"{error!r}"
        raise TemplateRefusedError(message) from error


def render(
    template: str, messages: ChatMessages, special_tokens: Mapping[str, Any], **options: bool
) -> tuple[str, Sequence[tuple[int, int]]]:
    """Return the template's text, and the spans that it marks, if requested.

    Raises:
        TemplateRefusedError: the template refuses the messages.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    render_each: Any = render_jinja_template  # annotated as if it returned one text
    with _refusals():
        texts, spans = render_each(
            conversations=[messages], chat_template=template, **options, **special_tokens
        )
    return texts[0], spans[0] if spans else ()


@functools.lru_cache(maxsize=8)
def _header_of(template: str, special_tokens: str) -> str:
    """Return `find_header` of the template; empty if it refuses a single question."""
    options = json.loads(special_tokens)
    question = [{"role": "user", "content": [{"type": "text", "text": "question"}]}]
    try:
        text, _ = render(template, question, options)
        prompt, _ = render(template, question, options, add_generation_prompt=True)
    except TemplateRefusedError:
        return ""
    return find_header(text, prompt)


@functools.lru_cache(maxsize=16)
def _glues_system(template: str, special_tokens: str, role: str) -> bool:
    """Check whether a template prints a system message right after the text of this role.

    Args:
        template: Text of the template.
        special_tokens: As JSON.
        role: Role of the message before.
    """
    words = {"user": "testquestion", "assistant": "testanswer", "system": "testrule"}
    roles = ("user", "assistant", "system") if role == "assistant" else ("user", "system")
    messages = [{"role": r, "content": [{"type": "text", "text": words[r]}]} for r in roles]
    try:
        text, _ = render(template, messages, json.loads(special_tokens))
    except TemplateRefusedError:
        return False  # it refuses the row as well
    between = text.partition(words[role])[2].partition(words["system"])
    return bool(between[1]) and not between[0].strip()


def _check_printed(messages: ChatMessages, text: str) -> None:
    """Refuse a template that leaves out a text, such as a second system message.

    White space is not compared, because many templates strip texts. Answers before the last are
    not compared either, because templates of reasoning models shorten them.
    """
    printed = "".join(text.split())
    for number, message in enumerate(messages):
        if message["role"] == "assistant" and number < len(messages) - 1:
            continue
        for item in message["content"]:
            if item["type"] == "text" and "".join(item["text"].split()) not in printed:
                error = f"it leaves out a text of the {message['role']} (turn {number + 1})"
                raise TemplateRefusedError(error)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageText:
    """Text that a processor puts in place of the token that a template prints for an image."""

    printed: str
    """The token."""
    written: str
    """The text."""

    def put_into(self, text: str) -> str:
        """Return the text with all printed tokens replaced."""
        return text.replace(self.printed, self.written)

    def moved(self, text: str, span: tuple[int, int]) -> tuple[int, int]:
        """Return where a span of `text` is after the replacement; it cuts no printed token."""
        growth = len(self.written) - len(self.printed)
        start, end = span
        num_before_start = text.count(self.printed, 0, start)
        num_before_end = text.count(self.printed, 0, end)
        return start + growth * num_before_start, end + growth * num_before_end


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatTokenizer:
    """Tokenizer and chat template that locate the assistant's answers."""

    tokenizer: PreTrainedTokenizerBase
    image_token_id: int
    pad_token_id: int
    closes_each_text: bool = False
    """True if the template ends the turn after each text of a message, as LLaVA-NeXT's for
    Llama 3 does: then messages may have only one text."""
    image_text: ImageText | None = None
    """None if the template prints the image token itself."""

    def encode_conversation(
        self,
        messages: ChatMessages,
        *,
        must_print_all: bool = False,
        unlearned: Collection[int] = (),
    ) -> TokenSequence:
        """Return the tokens of a whole conversation, one token for each image.

        Learned tokens are found by the tokens' offsets. The mask of `apply_chat_template` is
        not used: it lacks the last bytes of a character of several tokens, and everything after
        a blank with trimmed offsets.

        Args:
            messages: All messages.
            must_print_all: Refuse a conversation if the template leaves out a text.
            unlearned: Numbers of answers, from 0, that are only context.

        Raises:
            TemplateRefusedError: the template refuses the messages, or, with `must_print_all`,
                leaves out a text.
        """
        self._check_texts(messages)
        text, spans = self._render_answers(messages)
        if must_print_all:
            _check_printed(messages, text)
        if unlearned:
            num_answers = sum(message["role"] == "assistant" for message in messages)
            if len(spans) != num_answers:
                error = f"it marks {len(spans)} texts for {num_answers} answers, not all learned"
                raise TemplateRefusedError(error)
            spans = [span for number, span in enumerate(spans) if number not in unlearned]
        if self.image_text is not None:
            spans = [self.image_text.moved(text, span) for span in spans]
            text = self.image_text.put_into(text)
        encoded = self._tokenise(text, return_offsets_mapping=True)
        offsets = np.asarray(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        return TokenSequence(
            input_ids=np.asarray(encoded["input_ids"], dtype=np.int32),
            supervised=mark_spans(offsets, spans),
            of_image=np.zeros(len(offsets), dtype=bool),
        )

    def encode_prompt(
        self, messages: ChatMessages, *, must_print_all: bool = False
    ) -> TokenSequence:
        """Return the tokens up to where the assistant's answer starts; none is learned.

        Raises:
            TemplateRefusedError: as in `encode_conversation`.
        """
        self._check_texts(messages)
        text, _ = self._render(messages, add_generation_prompt=True)
        if must_print_all:
            _check_printed(messages, text)
        if not text.endswith(self._header()):
            message = f"the prompt for an answer does not end with {self._header()!r}"
            raise TemplateRefusedError(message)
        if self.image_text is not None:
            text = self.image_text.put_into(text)
        input_ids = np.asarray(self._tokenise(text)["input_ids"], dtype=np.int32)
        nothing = np.zeros(len(input_ids), dtype=bool)
        return TokenSequence(input_ids=input_ids, supervised=nothing, of_image=nothing)

    def decode(
        self, input_ids: list[int] | np.ndarray, *, skip_special_tokens: bool = False
    ) -> str:
        """Return the text of one sequence of tokens."""
        text = self.tokenizer.decode(input_ids, skip_special_tokens=skip_special_tokens)
        return cast("str", text)  # a list of texts only for a batch

    def _check_texts(self, messages: ChatMessages) -> None:
        self._check_system(messages)
        if not self.closes_each_text:
            return
        for message in messages:
            if sum(item["type"] == "text" for item in message["content"]) > 1:
                error = (
                    f"it ends the turn of the {message['role']} after each of its texts, and an "
                    "image is between them; put images before or after the whole text"
                )
                raise TemplateRefusedError(error)

    def _check_system(self, messages: ChatMessages) -> None:
        """Refuse a later system message that the template would print as part of another turn."""
        for number, message in enumerate(messages[1:], 2):
            role = messages[number - 2]["role"]
            if message["role"] != "system" or role == "system":
                continue
            special_tokens = json.dumps(self.tokenizer.special_tokens_map, default=str)
            if _glues_system(self.tokenizer.chat_template, special_tokens, role):
                error = (
                    f"it prints the system message of turn {number} as part of the {role}'s text "
                    "before it; move it into the first system message"
                )
                raise TemplateRefusedError(error)

    def _render_answers(self, messages: ChatMessages) -> tuple[str, Sequence[tuple[int, int]]]:
        """Return the text and the answers in it, from the template's marks or from its turns.

        Raises:
            TemplateRefusedError: the template refuses the messages, or turns cannot be located.
        """
        tokenizer = self.tokenizer
        if marks_answers(tokenizer.chat_template):
            return self._render(messages, return_assistant_tokens_mask=True)

        @functools.cache  # the whole conversation also ends with its last answer
        def render_to(num_messages: int, is_prompt: bool) -> str:
            return self._render(messages[:num_messages], add_generation_prompt=is_prompt)[0]

        end_token = tokenizer.eos_token or ""
        return find_answers(messages, render_to, header=self._header(), end_token=end_token)

    def _header(self) -> str:
        """Return what the template puts before an answer to a question."""
        special_tokens = json.dumps(self.tokenizer.special_tokens_map, default=str)
        return _header_of(self.tokenizer.chat_template, special_tokens)

    def _render(
        self, messages: ChatMessages, **options: bool
    ) -> tuple[str, Sequence[tuple[int, int]]]:
        tokenizer = self.tokenizer
        return render(tokenizer.chat_template, messages, tokenizer.special_tokens_map, **options)

    def _tokenise(self, text: str, **options: bool) -> Mapping[str, Any]:
        """Tokenise like transformers' processors: `<s>` comes first, from template or tokenizer.

        (`apply_chat_template` of a tokenizer leaves it to the template alone.)
        """
        begin = self.tokenizer.bos_token
        printed = begin is not None and text.startswith(begin)
        with _refusals():
            return self.tokenizer(text, add_special_tokens=not printed, **options)
