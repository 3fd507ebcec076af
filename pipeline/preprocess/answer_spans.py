"""Where the assistant speaks in the text of a conversation whose chat template does not mark it.

Few published templates have `{% generation %}` marks. What the assistant says in a turn is then
what the turn adds to the prompt for it. So each turn is rendered twice more, and nothing is taken
for granted: the texts must begin with one another. A template that shortens earlier turns when
others follow, as those of models that think aloud do, takes conversations of one answer alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Span = tuple[int, int]
"""First character, and the one after the last."""
RenderTo = Callable[[int, bool], str]
"""The text of so many of the first messages, with the prompt for an answer or without."""

_AROUND = 40
"""Characters of a text that a message shows."""
_GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")


class TemplateRefusedError(ValueError):
    """The chat template takes no such messages, or does not tell whose words they are."""


def marks_answers(template: str) -> bool:
    """Whether a template says by itself what is the assistant's."""
    return _GENERATION_MARK.search(template) is not None


def find_answers(
    messages: Sequence[Mapping[str, Any]], render_to: RenderTo, *, header: str, end_token: str
) -> tuple[str, list[Span]]:
    """The text of a conversation, and what the assistant says in it, each with its end of turn.

    What the template puts after the last `end_token` of a turn is not the assistant's. `header` is
    what `find_header` found: some templates leave it out of the prompt where the message before is
    the assistant's, too, or where there is none, and it would be learned as if it were said.

    Raises:
        TemplateRefusedError: turns cannot be told apart, because the texts differ by more than a
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
                f"it does not mark what the assistant says, and turn {number + 1} cannot be told "
                f"from its text: {problem}; put `{{% generation %}}` before and "
                "`{% endgeneration %}` after the assistant's content and end-of-turn token"
            )
            raise TemplateRefusedError(error)
        end = answered.rfind(end_token, len(prompt))
        spans.append((len(prompt), len(answered) if end < 0 else end + len(end_token)))
    return whole, spans


def find_header(asked: str, prompt: str) -> str:
    """What a prompt for an answer adds to the text of the messages before: `<|im_start|>assistant`.

    Empty for templates whose answers follow the question at once.
    """
    return prompt[_num_alike(asked, prompt) :]


def _find_problem(prompt: str, answered: str, whole: str, header: str) -> str:
    """Why the texts do not tell what a turn says; empty if they do."""
    if not prompt.endswith(header):
        return f"the prompt for it ends with {prompt[-_AROUND:]!r}, not with {header!r}"
    if not answered.startswith(prompt):
        return f"the prompt for it goes on {_differing(prompt, answered)} with it"
    if not whole.startswith(answered):
        return f"up to it the text goes on {_differing(answered, whole)} in the whole conversation"
    return ""


def _num_alike(one: str, other: str) -> int:
    """Characters with which both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _differing(one: str, other: str) -> str:
    """Where two texts begin to differ."""
    start = _num_alike(one, other)
    before = one[max(0, start - _AROUND) : start]
    texts = (text[start : start + _AROUND] for text in (one, other))
    one_end, other_end = (f"{text!r}" if text else "to its end" for text in texts)
    return f"after {before!r} {one_end}, and {other_end}"
