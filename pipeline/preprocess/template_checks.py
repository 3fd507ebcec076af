"""Checks of chat templates before they are used.

A template that prints Python lists, loses a text or an image, or marks the wrong text as answer
would train on nonsense without any error. If its prompt ends elsewhere than where answers
start, evaluation is wrong. If its answers end in another token than generation does, generation
never stops. So a few conversations are rendered at the start and checked. An error on one row
refuses only that row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.preprocess.answer_spans import marks_answers
from pipeline.preprocess.chat_tokenizer import (
    ChatMessages,
    ChatTokenizer,
    TemplateRefusedError,
    render,
)
from pipeline.preprocess.processors.templates import find_replacement
from pipeline.preprocess.token_rules import TokenSequence, count_token
from slurm_jobs.common.errors import StageConfigError

_RULE, _QUESTION, _ANSWER = "testrule", "testquestion", "testanswer"
_DOUBT, _REPLY, _BEFORE, _BETWEEN = "testdoubt", "testreply", "testbefore", "testbetween"
_WORDS = (_RULE, _QUESTION, _ANSWER, _DOUBT, _REPLY, _BEFORE, _BETWEEN)
"""Words that occur in no template: a default system prompt may contain "question"."""
_LIST_MARK = re.compile(r"""['"]type['"]""")
"""In a rendered text: a content item printed by Python or JSON."""
_END_TOKEN_FILES = ("tokenizer_config.json", "special_tokens_map.json")
"""Files of a folder with its `eos_token`; the second, which older folders have, comes first."""


def check_template(chat: ChatTokenizer, place: Path) -> None:
    """Test the template on a question, with and without answer, then on less common conversations.

    It must accept the first. It may refuse the others (a system message, two turns, two images
    between texts), and then rows of that form.

    Raises:
        StageConfigError: it refuses the first, or would train on nonsense.
    """
    (asked, answers), *others = _probes()
    problem = _find_problem(chat, asked, answers, must_take=True)
    for messages, expected in others:
        problem = problem or _find_problem(chat, messages, expected)
    problem = problem or _find_prompt_problem(chat, asked)
    if problem:
        message = (
            f"{place}: the `chat_template` {problem}; {_instead(chat, asked[:-1])}it must accept "
            "`content` as a list of items, also in the assistant's messages, print every item, "
            "mark only the assistant's answers, and with `add_generation_prompt` end where the "
            "answer starts"
        )
        raise StageConfigError(message)
    for messages, _ in _probes():
        _check_end_of_turn(chat, messages, place)


def find_printed_tokens(chat: ChatTokenizer) -> frozenset[int]:
    """Return the tokens that the template prints around answers in conversations it accepts."""
    printed: set[int] = set()
    for messages, _ in _probes():
        with suppress(TemplateRefusedError):
            tokens = chat.encode_conversation(messages)
            printed.update(tokens.input_ids[~tokens.supervised].tolist())
    return frozenset(printed)


def _probes() -> list[tuple[list[dict[str, Any]], tuple[str, ...]]]:
    """Return test conversations, each with its answers; the first must be accepted."""
    image = {"type": "image"}
    asked = [_message("user", image, _QUESTION), _message("assistant", _ANSWER)]
    again = [_message("user", _DOUBT), _message("assistant", _REPLY)]
    mixed = [
        _message("user", _BEFORE, image, _BETWEEN, image, _QUESTION),
        _message("assistant", _ANSWER),
    ]
    return [
        (asked, (_ANSWER,)),
        ([_message("system", _RULE), *asked], (_ANSWER,)),
        ([*asked, *again], (_ANSWER, _REPLY)),
        (mixed, (_ANSWER,)),
    ]


def _text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def _message(role: str, *items: dict[str, str] | str) -> dict[str, Any]:
    content = [_text(item) if isinstance(item, str) else item for item in items]
    return {"role": role, "content": content}


def _find_problem(
    chat: ChatTokenizer,
    messages: ChatMessages,
    answers: Sequence[str],
    *,
    must_take: bool = False,
) -> str | None:
    """Return what the template does wrong with these messages; None if nothing or refused."""
    roles = ", ".join(message["role"] for message in messages)
    try:
        tokens = chat.encode_conversation(messages)
    except TemplateRefusedError as error:
        return f"refuses a conversation of {roles} ({error})" if must_take else None
    problem = _find_image_problem(chat, messages, tokens)
    if problem:
        return problem
    learned = [chat.tokenizer.decode(span) for span in _learned_spans(tokens)]
    if not _are_answers(learned, answers):
        return (
            f"gives {', '.join(map(repr, learned)) or 'nothing'} as the assistant's answers in a "
            f"conversation of {roles}, expected {', '.join(map(repr, answers))}"
        )
    return _find_text_problem(messages, chat.tokenizer.decode(tokens.input_ids))


def _find_image_problem(
    chat: ChatTokenizer, messages: ChatMessages, tokens: TokenSequence
) -> str | None:
    items = [item for message in messages for item in message["content"]]
    num_items = sum(item["type"] == "image" for item in items)
    num_tokens = count_token(tokens.input_ids, chat.image_token_id)
    if num_tokens == num_items:
        return None
    return f"gives {num_tokens} image tokens for {num_items} of the items {{'type': 'image'}}"


def _find_text_problem(messages: ChatMessages, printed: str) -> str | None:
    """Return what is wrong with the texts in `printed`: a raw list, or one lost or out of order."""
    if _LIST_MARK.search(printed):
        return f"prints a list without formatting it: {printed!r}"
    end = 0
    for message in messages:
        for text in (item["text"] for item in message["content"] if item["type"] == "text"):
            start = printed.find(text, end)
            if start < 0:
                return f"loses {text!r}, a text of the {message['role']}: it prints {printed!r}"
            end = start + len(text)
    return None


def _find_prompt_problem(chat: ChatTokenizer, asked: ChatMessages) -> str | None:
    """Return the problem if generation starts elsewhere than the answer does in training."""
    try:
        prompt = chat.encode_prompt(asked[:-1]).input_ids
    except TemplateRefusedError as error:
        return f"refuses a question without its answer ({error})"
    tokens = chat.encode_conversation(asked)
    before = tokens.input_ids[: int(np.argmax(tokens.supervised))]
    if np.array_equal(prompt, before):
        return None
    found, expected = chat.tokenizer.decode(prompt), chat.tokenizer.decode(before)
    return (
        f"gives the prompt {found!r} with `add_generation_prompt`, the answer follows {expected!r}"
    )


def _check_end_of_turn(chat: ChatTokenizer, messages: ChatMessages, place: Path) -> None:
    """Check that the learned text of a turn ends with the token at which generation stops.

    White space after it may be learned or not: generation does not reach it.

    Raises:
        StageConfigError: a model would never learn to stop, or would stop within its answer.
    """
    try:
        spans = _learned_spans(chat.encode_conversation(messages))
    except TemplateRefusedError:
        return
    for span in spans:
        ends = np.flatnonzero(span == chat.tokenizer.eos_token_id)
        after = chat.tokenizer.decode(span[ends[0] :]) if ends.size else ""
        if ends.size and not any(word in after for word in _WORDS):
            continue
        is_marked = marks_answers(chat.tokenizer.chat_template)
        marks_remedy = (
            "print the end-of-turn token once, before `{% endgeneration %}`, and " * is_marked
        )
        files = " and ".join(name for name in _END_TOKEN_FILES if (place.parent / name).exists())
        instead = _instead(chat, messages[:1])
        message = (
            f"{place}: with the `chat_template`, {chat.tokenizer.decode(span)!r} is the "
            "assistant's answer, which does not end with the tokenizer's `eos_token` "
            f"({chat.tokenizer.eos_token!r}), where generation stops; {instead}{marks_remedy}set "
            f"`eos_token` to {'it' if marks_remedy else 'the token that ends turns'} in {files}"
        )
        raise StageConfigError(message)


def _instead(chat: ChatTokenizer, asked: ChatMessages) -> str:
    """Name the replacement that renders this question like the template, if there is one."""
    tokens = chat.tokenizer.special_tokens_map

    def renders_alike(own: str, other: str) -> bool:
        with suppress(TemplateRefusedError):
            return render(own, asked, tokens)[0] == render(other, asked, tokens)[0]
        return False

    name = find_replacement(chat.tokenizer.chat_template, renders_alike)
    if name is None:
        return ""
    return (
        f"set `chat_template: {name}` in the config of this stage, which renders questions the "
        "same way and ends answers as the model was trained; or change the template: "
    )


def closes_each_text(chat: ChatTokenizer) -> bool:
    """Check whether the template prints more around two texts of a message than around one."""
    image, words = {"type": "image"}, (_BEFORE, _BETWEEN)
    one, two = (image, "".join(words)), (words[0], image, words[1])
    return any(
        _around(chat, role, one, words) != _around(chat, role, two, words)
        for role in ("user", "assistant")
    )


def _around(
    chat: ChatTokenizer,
    role: str,
    items: Sequence[dict[str, str] | str],
    words: Sequence[str],
) -> str | None:
    """Return the printed text besides these words and white space; None if it is refused."""
    others = {"user": _QUESTION, "assistant": _ANSWER}
    messages = [_message(r, *(items if r == role else (text,))) for r, text in others.items()]
    try:
        printed = chat.tokenizer.decode(chat.encode_conversation(messages).input_ids)
    except TemplateRefusedError:
        return None
    for word in words:
        printed = printed.replace(word, "", 1)
    return "".join(printed.split())


def _learned_spans(tokens: TokenSequence) -> list[np.ndarray]:
    """Return the runs of supervised tokens."""
    edges = np.flatnonzero(np.diff(tokens.supervised, prepend=False, append=False))
    return [tokens.input_ids[start:end] for start, end in edges.reshape(-1, 2)]


def _are_answers(learned: Sequence[str], answers: Sequence[str]) -> bool:
    """Check whether each span is an answer and its end of turn, as the template defines it.

    A template may leave earlier answers out, but not the last.
    """
    texts = [text.strip() for text in learned]
    expected = answers[-len(texts) :]
    if not texts or len(texts) != len(expected):
        return False
    if not all(text.startswith(answer) for text, answer in zip(texts, expected, strict=True)):
        return False
    endings = {text.removeprefix(a) for text, a in zip(texts, expected, strict=True)}
    return len(endings) == 1 and not any(word in next(iter(endings)) for word in _WORDS)
