"""Answer spans in a conversation whose chat template does not mark them.

Few published templates have `{% generation %}` marks. Without them, an answer is the text that
its turn adds to the prompt before it. So each turn is rendered twice more, and the texts are
checked: each must begin with the previous one. A template that shortens earlier turns when
others follow, as reasoning models do, works only for conversations with one answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
