"""Note on one rank of an attempt, in fields, so that equal notes of many slices become one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.json_values import is_count
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.base.written_values import printable
from slurm_jobs.formats.records.joined_reasons import joined_places


@dataclass(frozen=True, kw_only=True, slots=True)
class RankNote:
    """Note on one rank; a note of an earlier version has only the text before the rank."""

    before: str = ""
    """Text before rank and node."""
    rank: int | None = None
    node: str = ""
    after: str = ""
    """Text after rank and node."""
    stacks: str = ""
    """Path of the rank's stacks, or the pattern of all ranks' stacks."""
    more: str = ""
    """Number of other ranks, as the end of the text: ` (and 1 more rank)`."""

    @property
    def text(self) -> str:
        """Return the note as one line."""
        return joined_notes([self])


_TEXTS = ("before", "node", "after", "stacks", "more")


def joined_notes(notes: Sequence[RankNote]) -> str:
    """Return the text of notes that differ in rank, node and stacks at most.

    It names the stacks of the first.
    """
    first = notes[0]
    ranks = [note.rank for note in notes if note.rank is not None]
    place = joined_places(ranks, [note.node for note in notes]) if ranks else ""
    stacks = f". Stacks: {first.stacks}" if first.stacks else ""
    return f"{first.before}{place}{first.after}{stacks}{first.more}"


def rank_note_from_json(values: Any) -> RankNote | None:
    """Return the note that a record has; None if there is no sound one.

    The record may be forged, so its texts become short lines that can be printed. An earlier
    version wrote only `text`.
    """
    if not isinstance(values, Mapping):
        return None
    texts = {}
    for name in _TEXTS:
        value = values.get(name)
        if isinstance(value, str):
            texts[name] = printable(truncated(value))
    rank = values.get("rank")
    if is_count(rank) and len(texts) == len(_TEXTS):
        return RankNote(rank=rank, **texts)
    text = values.get("text")
    return RankNote(before=printable(truncated(text))) if isinstance(text, str) and text else None
