"""Earlier turns of a question: `history`, pairs of a question and its answer.

LLaMA-Factory (`AlpacaDatasetConverter`) and ms-swift (`ResponsePreprocessor`) put them before the
question of the row, and learn their answers, too.
"""

from __future__ import annotations

from typing import Any

from slurm_jobs.formats.manifests.keys import BadRowError, shorten
from slurm_jobs.formats.manifests.messages import Content, Message
from slurm_jobs.formats.manifests.turns import split_marks, turns_of


def earlier_turns(key: str, value: Any) -> list[Message]:
    """Return the messages of a key's pairs, which may be a list or JSON.

    Raises:
        BadRowError: the value is no list of pairs of texts.
    """
    try:
        pairs = turns_of(value)
    except BadRowError as error:
        message = f"in `{key}`: {error}"
        raise BadRowError(message) from error
    messages: list[Message] = []
    for pair in pairs:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            message = f"`{key}` holds {shorten(pair)}, expected pairs of a question and its answer"
            raise BadRowError(message)
        question, answer = pair
        messages.append(Message(role="user", content=tuple(split_marks(question))))
        messages.append(Message(role="assistant", content=(Content(kind="text", value=answer),)))
    return messages
