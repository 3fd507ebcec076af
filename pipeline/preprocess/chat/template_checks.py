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

from pipeline.preprocess.chat.answer_spans import TemplateRefusedError, marks_answers
from pipeline.preprocess.chat.chat_templates import REPLACEMENTS
from pipeline.preprocess.chat.chat_tokenizer import ChatMessages, ChatTokenizer, render
from pipeline.preprocess.chat.end_token import END_TOKEN_FILES
from pipeline.preprocess.chat.token_sequences import TokenSequence, count_token
from slurm_jobs.base.errors import StageDataError

_RULE, _QUESTION, _ANSWER = "testrule", "testquestion", "testanswer"
_DOUBT, _REPLY, _BEFORE, _BETWEEN = "testdoubt", "testreply", "testbefore", "testbetween"
_WORDS = (_RULE, _QUESTION, _ANSWER, _DOUBT, _REPLY, _BEFORE, _BETWEEN)
"""Words that occur in no template: a default system prompt may contain "question"."""
_IMAGE = {"type": "image"}


def _message(role: str, *items: dict[str, str] | str) -> dict[str, Any]:
    content = [{"type": "text", "text": i} if isinstance(i, str) else i for i in items]
    return {"role": role, "content": content}


_ASKED = [_message("user", _IMAGE, _QUESTION), _message("assistant", _ANSWER)]
_PROBES: tuple[tuple[list[dict[str, Any]], tuple[str, ...]], ...] = (
    (_ASKED, (_ANSWER,)),
    ([_message("system", _RULE), *_ASKED], (_ANSWER,)),
    ([*_ASKED, _message("user", _DOUBT), _message("assistant", _REPLY)], (_ANSWER, _REPLY)),
    (
        [
            _message("user", _BEFORE, _IMAGE, _BETWEEN, _IMAGE, _QUESTION),
            _message("assistant", _ANSWER),
        ],
        (_ANSWER,),
    ),
)
"""Test conversations, each with its answers; the first must be accepted."""
_LIST_MARK = re.compile(r"""['"]type['"]""")
"""In a rendered text: a content item printed by Python or JSON."""


def check_template(chat: ChatTokenizer, place: Path) -> None:
    """Test the template on a question, with and without answer, then on less common conversations.

    It must accept the first. It may refuse the others (a system message, two turns, two images
    between texts), and then rows of that form.

    Raises:
        StageConfigError: it refuses the first, or would train on nonsense.
    """
    problem = None
    for messages, answers in _PROBES:
        problem = problem or _find_problem(chat, messages, answers, must_take=messages is _ASKED)
    problem = problem or _find_prompt_problem(chat)
    if problem:
        message = (
            f"{place}: the `chat_template` {problem}; {_instead(chat, _ASKED[:-1])}it must accept "
            "`content` as a list of items, also in the assistant's messages, print every item, "
            "mark only the assistant's answers, and with `add_generation_prompt` end where the "
            "answer starts"
        )
        raise StageDataError(message)
    for messages, _ in _PROBES:
        _check_end_of_turn(chat, messages, place)


def find_printed_tokens(chat: ChatTokenizer) -> frozenset[int]:
    """Return the tokens that the template prints around answers in conversations it accepts."""
    printed: set[int] = set()
    for messages, _ in _PROBES:
        with suppress(TemplateRefusedError):
            tokens = chat.encode_conversation(messages)
            printed.update(tokens.input_ids[~tokens.supervised].tolist())
    return frozenset(printed)


def _find_problem(
    chat: ChatTokenizer, messages: ChatMessages, answers: Sequence[str], *, must_take: bool
) -> str | None:
    """Return what the template does wrong with these messages; None if nothing or refused."""
    roles = ", ".join(message["role"] for message in messages)
    try:
        tokens = chat.encode_conversation(messages)
    except TemplateRefusedError as error:
        return f"refuses a conversation of {roles} ({error})" if must_take else None
    num_items = sum(i["type"] == "image" for message in messages for i in message["content"])
    num_tokens = count_token(tokens.input_ids, chat.image_token_id)
    if num_tokens != num_items:
        return f"gives {num_tokens} image tokens for {num_items} of the items {{'type': 'image'}}"
    learned = [chat.decode(span) for span in _learned_spans(tokens)]
    if not _are_answers(learned, answers):
        return (
            f"gives {', '.join(map(repr, learned)) or 'nothing'} as the assistant's answers in a "
            f"conversation of {roles}, expected {', '.join(map(repr, answers))}"
        )
    printed = chat.decode(tokens.input_ids)
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


def _find_prompt_problem(chat: ChatTokenizer) -> str | None:
    """Return the problem if generation starts elsewhere than the answer does in training."""
    try:
        prompt = chat.encode_prompt(_ASKED[:-1]).input_ids
    except TemplateRefusedError as error:
        return f"refuses a question without its answer ({error})"
    tokens = chat.encode_conversation(_ASKED)
    before = tokens.input_ids[: int(np.argmax(tokens.supervised))]
    if np.array_equal(prompt, before):
        return None
    actual, expected = chat.decode(prompt), chat.decode(before)
    return (
        f"gives the prompt {actual!r} with `add_generation_prompt`, the answer follows {expected!r}"
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
        after = chat.decode(span[ends[0] :]) if ends.size else ""
        if ends.size and not any(word in after for word in _WORDS):
            continue
        remedy = "set `eos_token` to the token that ends turns"
        if marks_answers(chat.tokenizer.chat_template):
            remedy = (
                "print the end-of-turn token once, before `{% endgeneration %}`, and set "
                "`eos_token` to it"
            )
        files = " and ".join(name for name in END_TOKEN_FILES if (place.parent / name).exists())
        message = (
            f"{place}: with the `chat_template`, {chat.decode(span)!r} is the "
            "assistant's answer, which does not end with the tokenizer's `eos_token` "
            f"({chat.tokenizer.eos_token!r}), where generation stops; "
            f"{_instead(chat, messages[:1])}{remedy} in {files}"
        )
        raise StageDataError(message)


def _instead(chat: ChatTokenizer, question: ChatMessages) -> str:
    """Name the replacement that renders this question like the template, if there is one."""
    tokens = chat.tokenizer.special_tokens_map
    for name, template in REPLACEMENTS.items():
        with suppress(TemplateRefusedError):
            rendered, _ = render(chat.tokenizer.chat_template, question, tokens)
            if rendered == render(template, question, tokens)[0]:
                return (
                    f"set `chat_template: {name}` in the config of this stage, which renders "
                    "questions the same way and ends answers as the model was trained; or change "
                    "the template: "
                )
    return ""


def closes_each_text(chat: ChatTokenizer) -> bool:
    """Check whether the template prints more around two texts of a message than around one."""
    once, twice = (_IMAGE, _BEFORE + _BETWEEN), (_BEFORE, _IMAGE, _BETWEEN)
    return any(
        _around(chat, role, once) != _around(chat, role, twice) for role in ("user", "assistant")
    )


def _around(chat: ChatTokenizer, role: str, items: Sequence[dict[str, str] | str]) -> str | None:
    """Return the printed text besides the words and white space; None if it is refused."""
    others = {"user": _QUESTION, "assistant": _ANSWER}
    messages = [_message(r, *(items if r == role else (text,))) for r, text in others.items()]
    try:
        printed = chat.decode(chat.encode_conversation(messages).input_ids)
    except TemplateRefusedError:
        return None
    for word in (_BEFORE, _BETWEEN):
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
    pairs = list(zip(texts, expected, strict=True))
    ending = texts[0].removeprefix(expected[0])
    is_same = all(text == answer + ending for text, answer in pairs)
    return is_same and not any(word in ending for word in _WORDS)
