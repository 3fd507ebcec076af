"""Beginning of a conversation: something must be asked before anything is answered.

Conversations that were cut out of longer ones begin with an answer, as some of ShareGPT do. Left to
the chat templates, some families would refuse the row, and the others would learn an answer to
nothing. Two rules treat all families alike: refuse the row, or leave the turn out. Refusing loses
the good turns after it, and the user would have to edit the manifest to the same end. So the turn
is left out and counted, as LLaVA's own training does. A row that would lose more than words, a
picture or its only answer, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.formats.manifests.keys import BadRowError
from slurm_jobs.formats.manifests.messages import Message


def without_leading_answers(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without the assistant's before the first of the user.

    Raises:
        BadRowError: there is no turn of the user, or a picture would be left out, too.
    """
    first = next((i for i, message in enumerate(messages) if message.role == "user"), None)
    if first is None:
        message = "the conversation has no turn of the user, so the answer has no question"
        raise BadRowError(message)
    before = [message for message in messages[:first] if message.role == "assistant"]
    if any(item.kind == "image" for message in before for item in message.content):
        message = (
            "the answer before the first turn of the user is left out, but it shows a picture; "
            "move its `<image>` into a turn of the user"
        )
        raise BadRowError(message)
    return [*(message for message in messages[:first] if message not in before), *messages[first:]]


def check_first_question(messages: Sequence[Message]) -> None:
    """Raise on a first turn of the user that neither says nor shows anything."""
    first = next(message for message in messages if message.role == "user")
    if not first.text.strip() and all(item.kind == "text" for item in first.content):
        message = (
            "the first turn of the user is empty and shows no picture, so there is nothing that "
            "the answer answers; write the question, or remove the row"
        )
        raise BadRowError(message)
