"""What `pipeline.samples` answered, as values: PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

IGNORED_LABEL = -100
"""Of a token that is not learned."""

Size = tuple[int, int]
"""Width and height in pixels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A stored image as a page has it."""

    uri: str | None
    problem: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One image of a row."""

    original: Size
    """Upright."""
    stored: tuple[Size, ...]
    """Of the arrays that it became."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRun:
    """Tokens side by side that are shown as one: a single one, or equal ones of an image."""

    first: int
    """Position of the first, from 0."""
    token_id: int
    label: int
    text: str
    """Of one of them."""
    num: int
    is_image: bool

    @property
    def is_supervised(self) -> bool:
        """Whether the model learns to say it."""
        return self.label != IGNORED_LABEL


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownSample:
    """One sample; what is not known of it, because it cannot be read, is empty."""

    key: str
    shard: str
    problem: str | None
    row: int
    source: str
    is_truncated: bool
    images: tuple[Image, ...]
    runs: tuple[TokenRun, ...]
    pictures: tuple[Picture, ...]
    """Of all stored images, in order; empty where none was asked for."""

    @property
    def num_tokens(self) -> int:
        """All of them, image tokens included."""
        return sum(run.num for run in self.runs)

    @property
    def num_supervised_tokens(self) -> int:
        """Those with a label."""
        return sum(run.num for run in self.runs if run.is_supervised)

    @property
    def num_image_tokens(self) -> int:
        """Those that stand for images."""
        return sum(run.num for run in self.runs if run.is_image)


def read_sample(values: Mapping[str, Any], image_token_id: int) -> ShownSample:
    """A sample as `pipeline.samples` says it."""
    ids, labels = values.get("input_ids", ()), values.get("labels", ())
    pieces = values.get("pieces", ())
    return ShownSample(
        key=values["key"],
        shard=values["shard"],
        problem=values["problem"],
        row=values.get("row", int(values["key"])),
        source=values.get("source", ""),
        is_truncated=values.get("is_truncated", False),
        images=tuple(_image(image) for image in values.get("images", ())),
        runs=tuple(_runs(ids, labels, pieces, image_token_id)),
        pictures=tuple(Picture(**picture) for picture in values.get("pictures", ())),
    )


def _image(values: Mapping[str, Any]) -> Image:
    width, height = values["original"]
    return Image(original=(width, height), stored=tuple((w, h) for w, h in values["stored"]))


def _runs(
    ids: Sequence[int], labels: Sequence[int], pieces: Sequence[str], image_token_id: int
) -> Iterator[TokenRun]:
    def kind(position: int) -> tuple[int, int]:
        """Equal for what is one run; a token that stands for no image is one by itself."""
        is_image = ids[position] == image_token_id
        return (-1, labels[position]) if is_image else (position, 0)

    for _, group in groupby(range(len(ids)), key=kind):
        positions = list(group)
        first = positions[0]
        yield TokenRun(
            first=first,
            token_id=ids[first],
            label=labels[first],
            text=pieces[first],
            num=len(positions),
            is_image=ids[first] == image_token_id,
        )
