"""One row of a manifest, whatever format it came in, as chat messages.

All formats end in the same value: messages whose content is a list of texts
and images in the order in which the model sees them. `manifests/` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm_jobs.common.inline_images import inline_image, is_inline_image
from slurm_jobs.common.truncation import truncated

_SHOWN_CHARS = 40
"""Of a picture that is text, in messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """A piece of text, or an image: by its path as the manifest writes it, or as bytes.

    A `data:` URI, or base64, in the place of a path becomes bytes.
    """

    kind: Literal["text", "image"]
    value: str
    """The text, or the image's name in messages: its path (see `image_sources`), where it has one,
    else its number among the images of the row."""
    data: bytes | None = None
    """The content of the image's file, where the manifest holds it."""
    problem: str = ""
    """Why a picture that the manifest holds as text cannot be used."""
    index: int | None = None
    """Number of the listed image, counted from 0, for which an image without a name stands."""

    def __post_init__(self) -> None:
        """Decode a picture that is in the place of a path."""
        if self.kind != "image" or self.problem or not is_inline_image(self.value):
            return
        try:
            data, value, problem = inline_image(self.value), "", ""
        except ValueError as error:
            data, value, problem = None, f"{self.value.lstrip()[:_SHOWN_CHARS]}...", str(error)
        for name, content in (("data", data), ("value", value), ("problem", problem)):
            object.__setattr__(self, name, content)


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """What one side says in one turn."""

    role: str
    """`system`, `user` or `assistant`."""
    content: tuple[Content, ...]
    is_learned: bool = True
    """Whether an answer is learned; other turns never are."""

    @property
    def text(self) -> str:
        """All texts of the message, joined."""
        return "".join(item.value for item in self.content if item.kind == "text")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOrigin:
    """Where a row stands."""

    row: int
    """Counted from 0 over the whole manifest."""
    line: int | None
    """Counted from 1; None in a JSON list, which has no lines of its own."""
    manifest: Path

    def __str__(self) -> str:
        place = f"row {self.row}" if self.line is None else f"{self.line}"
        return f"{self.manifest.name}:{place}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestRow:
    """One row of the manifest."""

    origin: RowOrigin
    source: str
    """The row's own `id`, else its first image, else empty."""
    messages: tuple[Message, ...]
    problem: str = ""
    """Why the row cannot be used; empty for a good one."""
    ignored: tuple[str, ...] = ()
    """Keys that are neither read nor known to be metadata."""
    keys: tuple[str, ...] = ()
    """All keys of the row, if the config names some."""
    left_out: tuple[str, ...] = ()
    """Names of `columns.ignore` that the row has, in its turns too."""
    splits: tuple[tuple[str, str], ...] = ()
    """Columns that say in which split of the data set the row is, and their values."""

    def __post_init__(self) -> None:
        for name in ("source", "problem"):
            object.__setattr__(self, name, truncated(getattr(self, name)))

    @property
    def key(self) -> str:
        """Key of the sample: the row's number, so that it does not depend on slices."""
        return f"{self.origin.row:09d}"

    @property
    def images(self) -> tuple[Content, ...]:
        """The images in the order of their tokens."""
        items = (item for message in self.messages for item in message.content)
        return tuple(item for item in items if item.kind == "image")

    @property
    def image_paths(self) -> tuple[str, ...]:
        """The names of the images, in the order of their tokens."""
        return tuple(image.value for image in self.images)


def bad_row(origin: RowOrigin, problem: str, source: str = "") -> ManifestRow:
    """A row that can only be listed among the rejects."""
    return ManifestRow(origin=origin, source=source, messages=(), problem=problem)
