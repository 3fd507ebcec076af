"""Values of the answer of `pipeline.tools.show_samples`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

IGNORED_LABEL = -100
"""Label of a token that is not learned."""

Size = tuple[int, int]
"""Width and height in pixels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """Stored image as a page has it."""

    uri: str | None
    problem: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """Image of a row."""

    original: Size
    """Size after applying the EXIF orientation."""
    stored: tuple[Size, ...]
    """Sizes of the arrays that were stored for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRun:
    """Consecutive tokens that are shown as one: a single token, or equal tokens of an image."""

    first: int
    """Position of the first token, from 0."""
    token_id: int
    label: int
    text: str
    """Text of one of the tokens."""
    num: int
    is_image: bool

    @property
    def is_supervised(self) -> bool:
        """True if the loss includes it."""
        return self.label != IGNORED_LABEL


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownSample:
    """One sample; fields of an unreadable sample are empty."""

    key: str
    shard: str
    problem: str | None
    row: int
    source: str
    is_truncated: bool
    images: tuple[Image, ...]
    runs: tuple[TokenRun, ...]
    pictures: tuple[Picture, ...]
    """All stored images, in order; empty if none were requested."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens, image tokens included."""
        return sum(run.num for run in self.runs)

    @property
    def num_supervised_tokens(self) -> int:
        """Number of tokens with a label."""
        return sum(run.num for run in self.runs if run.is_supervised)

    @property
    def num_image_tokens(self) -> int:
        """Number of tokens that represent images."""
        return sum(run.num for run in self.runs if run.is_image)


def read_sample(values: Mapping[str, Any], image_token_id: int) -> ShownSample:
    """Convert a sample from the JSON of `pipeline.tools`."""
    ids, labels = values.get("input_ids", ()), values.get("labels", ())
    pieces = values.get("pieces", ())

    def kind(position: int) -> tuple[int, int]:
        """Return equal keys for tokens of one run; a token that represents no image is a run."""
        is_image = ids[position] == image_token_id
        return (-1, labels[position]) if is_image else (position, 0)

    runs = []
    for _, group in groupby(range(len(ids)), key=kind):
        first, *others = group
        run = TokenRun(
            first=first,
            token_id=ids[first],
            label=labels[first],
            text=pieces[first],
            num=1 + len(others),
            is_image=ids[first] == image_token_id,
        )
        runs.append(run)
    images = [
        Image(original=tuple(image["original"]), stored=tuple(map(tuple, image["stored"])))
        for image in values.get("images", ())
    ]
    return ShownSample(
        key=values["key"],
        shard=values["shard"],
        problem=values["problem"],
        row=values.get("row", int(values["key"])),
        source=values.get("source", ""),
        is_truncated=values.get("is_truncated", False),
        images=tuple(images),
        runs=tuple(runs),
        pictures=tuple(Picture(**picture) for picture in values.get("pictures", ())),
    )
