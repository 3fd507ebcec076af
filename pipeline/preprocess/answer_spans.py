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

_GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")


def marks_answers(template: str) -> bool:
    """Whether a template says by itself what is the assistant's."""
    return _GENERATION_MARK.search(template) is not None


def find_answers(
    messages: Sequence[Mapping[str, Any]], render_to: RenderTo, end_token: str
) -> tuple[str, list[Span]]:
    """The text of a conversation, and what the assistant says in it, each with its end of turn.

    What the template puts after the last `end_token` of a turn is not the assistant's.

    Raises:
        ValueError: turns cannot be told apart, because the texts differ by more than a turn.
    """
    whole = render_to(len(messages), False)
    spans = []
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt, answered = render_to(number, True), render_to(number + 1, False)
        if not (answered.startswith(prompt) and whole.startswith(answered)):
            error = (
                f"it does not mark what the assistant says, and turn {number + 1} cannot be told "
                f"from its text: {_differing(prompt, answered, whole)}; put `{{% generation %}}` "
                "before and `{% endgeneration %}` after the assistant's content and end-of-turn "
                "token"
            )
            raise ValueError(error)
        end = answered.rfind(end_token, len(prompt))
        spans.append((len(prompt), len(answered) if end < 0 else end + len(end_token)))
    return whole, spans


def _differing(prompt: str, answered: str, whole: str) -> str:
    if not answered.startswith(prompt):
        return f"the prompt for it is {prompt!r}, with it the text is {answered!r}"
    return f"up to it the text is {answered!r}, and that of the whole conversation is {whole!r}"
