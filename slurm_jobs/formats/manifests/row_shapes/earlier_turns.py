"""Earlier turns of a question: `history`, pairs of a question and its answer.

LLaMA-Factory (`AlpacaDatasetConverter`) and ms-swift (`ResponsePreprocessor`) put them before the
question of the row, and learn their answers, too.
"""

from __future__ import annotations

from slurm_jobs.formats.manifests.keys import BadRowError, says_nothing, shorten
from slurm_jobs.formats.manifests.messages import Content, Message
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues
from slurm_jobs.formats.manifests.turns import split_marks, turns_of


def check_no_earlier_turns(row: RowValues) -> None:
    """Raise on earlier turns of a row that has turns, or no question.

    Raises:
        BadRowError: there are some.
    """
    for key, value in row.held.get("earlier_turns", {}).items():
        if not says_nothing(value):
            message = (
                f"`{key}` holds earlier turns, which are read only before a question and its "
                f"answer; write them into `messages`, or set `columns: {{ignore: [{key}]}}` to "
                "leave them out"
            )
            raise BadRowError(message)


def earlier_turns(row: RowValues) -> list[Message]:
    """Return the messages of the pairs, which may be a list or JSON.

    Raises:
        BadRowError: the value is no list of pairs of texts.
    """
    messages: list[Message] = []
    for key, value in row.held.get("earlier_turns", {}).items():
        if says_nothing(value):
            continue
        try:
            pairs = turns_of(value)
        except BadRowError as error:
            message = f"in `{key}`: {error}"
            raise BadRowError(message) from error
        for pair in pairs:
            is_pair = isinstance(pair, list | tuple) and len(pair) == 2
            if not is_pair or not all(isinstance(text, str) for text in pair):
                message = (
                    f"`{key}` holds {shorten(pair)}, expected pairs of a question and its answer"
                )
                raise BadRowError(message)
            question, answer = pair
            answered = (Content(kind="text", value=answer),)
            messages.append(Message(role="user", content=tuple(split_marks(question))))
            messages.append(Message(role="assistant", content=answered))
    return messages
