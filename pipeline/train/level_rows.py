"""Rows with chained targets, up to the answer of one level."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.formats.configs.training_phases import LevelConfig
from slurm_jobs.formats.manifests.messages import Content, ManifestRow, Message


def first_level(row: ManifestRow, levels: Sequence[LevelConfig]) -> ManifestRow:
    """Return the row up to its first answer.

    Raises:
        SampleRejectedError: it has more or fewer answers than there are levels, or an answer
            that is not one of its level's classes.
    """
    turns = assistant_turns(row)
    if len(turns) != len(levels):
        message = f"{row.origin}: {len(turns)} assistant turns, and there are {len(levels)} levels"
        raise SampleRejectedError(reason="bad_row", message=message)
    for level, turn in zip(levels, turns, strict=True):
        answer = turn.text.strip()
        if level.head == "classes" and answer not in level.classes:
            message = (
                f"{row.origin}, level {level.name}: the answer {answer!r} is not one of the "
                f"{len(level.classes)} classes"
            )
            raise SampleRejectedError(reason="bad_row", message=message)
    return row_up_to(row, 0, ())


def assistant_turns(row: ManifestRow) -> list[Message]:
    """Return the answers of a row, first level first."""
    return [message for message in row.messages if message.role == "assistant"]


def row_up_to(row: ManifestRow, level: int, answers: Sequence[str]) -> ManifestRow:
    """Return the row up to its assistant turn `level`, with other answers in the previous turns."""
    turns = [n for n, message in enumerate(row.messages) if message.role == "assistant"]
    messages = list(row.messages[: turns[level] + 1])
    for turn, answer in zip(turns[:level], answers, strict=True):
        content = (Content(kind="text", value=answer),)
        messages[turn] = dataclasses.replace(messages[turn], content=content)
    return dataclasses.replace(row, messages=tuple(messages))
