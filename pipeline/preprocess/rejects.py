"""Why a row of the manifest cannot become a sample, and how many such rows are too many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal[
    "bad_row",  # the row itself cannot be understood
    "missing_image",
    "unreadable_image",  # no permission, or a folder
    "empty_image",  # zero bytes
    "not_an_image",
    "truncated_image",
    "corrupt_image",
    "too_many_pixels",
    "unsupported_mode",  # 32-bit, floating-point or LAB: how white is written is not known
    "too_many_images",
    "image_token_in_text",
    "nothing_supervised",  # the assistant says nothing
    "images_too_long",  # the image tokens alone exceed max_tokens
    "too_long",  # left out by `too_long: drop`
]

CHOSEN_REASONS = frozenset({"too_long"})
"""Reasons that the user chose by config: listed and counted, but no sign of a broken manifest."""


class SampleRejectedError(Exception):
    """A row cannot become a sample; the stage goes on without it."""

    def __init__(self, *, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Reject:
    """One line of a part's list of rejects."""

    row: int
    """Number of the row in the whole manifest, from 0."""
    key: str
    source: str
    """The row's own id, or its first image."""
    place: str
    """File and line of the row."""
    reason: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """The line as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


def count_reasons(rejects: Sequence[Reject]) -> dict[str, int]:
    """Number of rejects by reason, most common first, ties by name."""
    counts = Counter(reject.reason for reject in rejects)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def too_many_rejects(
    rejects_by_reason: Mapping[str, int], *, num_rows: int, max_reject_share: float
) -> str | None:
    """What is wrong if more rows than `max_reject_share` of `num_rows` were lost; else None.

    The share is rounded up to whole rows, so that one bad image does not fail
    a slice of ten rows; 0 allows none.
    """
    broken = {r: n for r, n in rejects_by_reason.items() if r not in CHOSEN_REASONS}
    num_broken = sum(broken.values())
    num_allowed = math.ceil(max_reject_share * num_rows)
    if num_broken <= num_allowed:
        return None
    reasons = ", ".join(f"{reason} {count}" for reason, count in list(broken.items())[:3])
    return (
        f"{num_broken} of {num_rows} rows cannot be used (most common: {reasons}); "
        f"max_reject_share: {max_reject_share} allows {num_allowed}"
    )
