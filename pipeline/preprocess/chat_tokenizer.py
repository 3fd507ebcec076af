"""Conversations to tokens, with the tokens of the assistant's answers."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.data.format import IGNORED_LABEL

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


# Answer spans in a conversation whose chat template does not mark them.
#
# Few published templates have `{% generation %}` marks. Without them, an answer is the text that
# its turn adds to the prompt before it. So each turn is rendered twice more, and the texts are
# checked: each must begin with the previous one. A template that shortens earlier turns when
# others follow, as reasoning models do, works only for conversations with one answer.


Span = tuple[int, int]
"""First character, and the one after the last."""
RenderTo = Callable[[int, bool], str]
"""Renders the first N messages, with or without the prompt for an answer."""

_AROUND = 40
"""Characters of context in a message."""
_GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")


class TemplateRefusedError(ValueError):
    """Refusal of messages by the chat template, or answers that cannot be located."""


def marks_answers(template: str) -> bool:
    """Check whether a template marks the assistant's answers."""
    return _GENERATION_MARK.search(template) is not None


def find_answers(
    messages: Sequence[Mapping[str, Any]], render_to: RenderTo, *, header: str, end_token: str
) -> tuple[str, list[Span]]:
    """Return the text of a conversation and the answers in it, each with its end of turn.

    Text that the template puts after the last `end_token` of a turn is not part of the answer.
    `header` is the result of `find_header`. Some templates omit it from the prompt after
    another assistant message, or at the start; then it would be learned as part of the answer.

    Raises:
        TemplateRefusedError: turns cannot be separated, because the texts differ by more than a
            turn, or a prompt does not end with the header.
    """
    whole = render_to(len(messages), False)
    spans = []
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt, answered = render_to(number, True), render_to(number + 1, False)
        problem = _find_problem(prompt, answered, whole, header)
        if problem:
            error = (
                f"it does not mark the assistant's answers, and turn {number + 1} cannot be "
                f"located in its text: {problem}; put `{{% generation %}}` before and `{{% "
                "endgeneration %}` after the assistant's content and end-of-turn token"
            )
            raise TemplateRefusedError(error)
        end = answered.rfind(end_token, len(prompt))
        spans.append((len(prompt), len(answered) if end < 0 else end + len(end_token)))
    return whole, spans


def find_header(question: str, prompt: str) -> str:
    """Return what a prompt for an answer adds to the text before: `<|im_start|>assistant`.

    Empty for templates whose answers follow the question directly.
    """
    return prompt[_num_alike(question, prompt) :]


def _find_problem(prompt: str, answered: str, whole: str, header: str) -> str:
    """Return why the texts do not determine the turn's answer; empty if they do."""
    if not prompt.endswith(header):
        return f"the prompt for it ends with {prompt[-_AROUND:]!r}, not with {header!r}"
    if not answered.startswith(prompt):
        return (
            f"the text after the prompt changes {_differing(prompt, answered)} when the answer "
            "is added"
        )
    if not whole.startswith(answered):
        return f"the text up to it changes {_differing(answered, whole)} in the whole conversation"
    return ""


def _num_alike(first: str, other: str) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(first, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(other)))


def _differing(first: str, other: str) -> str:
    """Describe where two texts begin to differ."""
    start = _num_alike(first, other)
    before = first[max(0, start - _AROUND) : start]
    texts = (text[start : start + _AROUND] for text in (first, other))
    one_end, other_end = (f"{text!r}" if text else "to its end" for text in texts)
    return f"after {before!r} {one_end}, and {other_end}"


# Pure rules on token sequences: expand image tokens, mask labels, limit length.
#
# Everything here takes and returns int32 or bool arrays of shape [num_tokens].


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSequence:
    """Tokens and which of them are learned."""

    input_ids: np.ndarray
    """int32 [num_tokens]."""
    supervised: np.ndarray
    """bool [num_tokens]: the assistant's answers, with the end-of-turn token."""
    of_image: np.ndarray
    """bool [num_tokens]: an image token, or a mark at the start or end of an image or tile;
    neither learned nor cut."""

    @property
    def labels(self) -> np.ndarray:
        """int32 [num_tokens]: the token itself where it is learned, else `IGNORED_LABEL`."""
        return np.where(self.supervised, self.input_ids, np.int32(IGNORED_LABEL))


def mark_spans(offsets: np.ndarray, spans: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return which tokens overlap one of the spans: bool [num_tokens].

    Args:
        offsets: int64 [num_tokens, 2], start and end of each token in characters. Tokens that
            form one character together share its offsets. A token of only white space may have
            lost it (`trim_offsets`); then it is empty, at its end.
        spans: Start and end of each span in characters.
    """
    starts, ends = offsets[:, 0], offsets[:, 1]
    inside = np.zeros(len(offsets), dtype=bool)
    for first, end in spans:
        overlaps = np.maximum(starts, first) < np.minimum(ends, end)
        inside |= np.where(starts == ends, (first < ends) & (ends <= end), overlaps)
    return inside


def expand_images(
    tokens: TokenSequence,
    *,
    image_token_id: int,
    placeholders: Sequence[np.ndarray],
    wrapping_ids: tuple[int, int] | None = None,
) -> TokenSequence:
    """Replace every image token by a placeholder; no token of an image is supervised.

    Args:
        tokens: With as many image tokens as placeholders.
        image_token_id: The token that the chat template prints for an image.
        placeholders: int32 [any length] each, in the order of the images.
        wrapping_ids: Tokens that belong to an image if they are directly before and after it.
    """
    is_image = tokens.input_ids == image_token_id
    lengths = np.ones(len(is_image), dtype=np.int64)
    lengths[is_image] = [len(placeholder) for placeholder in placeholders]
    of_image = tokens.of_image | is_image
    if wrapping_ids is not None:
        first, last = (tokens.input_ids == token_id for token_id in wrapping_ids)
        of_image[:-1] |= first[:-1] & is_image[1:]
        of_image[1:] |= last[1:] & is_image[:-1]
    input_ids = np.repeat(tokens.input_ids, lengths)
    if placeholders:
        input_ids[np.repeat(is_image, lengths)] = np.concatenate(placeholders)
    return TokenSequence(
        input_ids=input_ids,
        supervised=np.repeat(tokens.supervised & ~of_image, lengths),
        of_image=np.repeat(of_image, lengths),
    )


def count_token(input_ids: np.ndarray, token_id: int) -> int:
    """Count occurrences of `token_id`."""
    return int(np.count_nonzero(input_ids == token_id))


def cut_text(tokens: TokenSequence, *, max_tokens: int) -> TokenSequence:
    """Drop text tokens from the end until `max_tokens` are left; image tokens stay.

    The images alone must fit.
    """
    num_text = max_tokens - int(tokens.of_image.sum())
    assert num_text >= 0
    keep = tokens.of_image | (np.cumsum(~tokens.of_image) <= num_text)
    return TokenSequence(
        input_ids=tokens.input_ids[keep],
        supervised=tokens.supervised[keep],
        of_image=tokens.of_image[keep],
    )


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

    with _refusals():
        texts, spans = render_jinja_template(
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
class ChatTokenizer:
    """Tokenizer and chat template that locate the assistant's answers."""

    tokenizer: PreTrainedTokenizerBase
    image_token_id: int
    pad_token_id: int
    closes_each_text: bool = False
    """True if the template ends the turn after each text of a message, as LLaVA-NeXT's for
    Llama 3 does: then messages may have only one text."""

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
        input_ids = np.asarray(self._tokenise(text)["input_ids"], dtype=np.int32)
        nothing = np.zeros(len(input_ids), dtype=bool)
        return TokenSequence(input_ids=input_ids, supervised=nothing, of_image=nothing)

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
