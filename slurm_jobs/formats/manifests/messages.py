"""Rows of manifests as chat messages.

All formats produce the same value: messages whose content is a list of texts and images in the
order in which the model sees them. The other modules of `manifests/` produce it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.formats.manifests.inline_images import inline_image, is_inline_image
from slurm_jobs.formats.manifests.row_notes import RowNote

_SHOWN_CHARS = 40
"""Most characters of a picture in text form that messages show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """Piece of text, or an image: by its path in the manifest, or as bytes.

    A `data:` URI, or base64, instead of a path becomes bytes.
    """

    kind: Literal["text", "image"]
    value: str
    """Text, or the image's name in messages: its path (see `image_sources`), if it has one, else
    its number among the images of the row."""
    data: bytes | None = None
    """Content of the image's file, if the manifest holds it."""
    problem: str = ""
    """Reason why a picture that the manifest holds as text cannot be used."""
    index: int | None = None
    """Index of the listed image, from 0, that an image without a name refers to."""

    def __post_init__(self) -> None:
        """Decode a picture that is given instead of a path."""
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
    """Message of one role in one turn."""

    role: str
    """One of `system`, `user` or `assistant`."""
    content: tuple[Content, ...]
    is_learned: bool = True
    """True if an answer is learned; other turns never are."""

    @property
    def text(self) -> str:
        """Return all texts of the message, joined."""
        return "".join(item.value for item in self.content if item.kind == "text")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedManifest:
    """Place of a manifest in the list of those that `preprocess` reads one after the other."""

    name: str
    number: int
    """Index in the list, from 0."""
    rows_before: int
    """Rows of the manifests before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOrigin:
    """Position of a row."""

    row: int
    """Index of the row, from 0, in the whole manifest."""
    line: int | None
    """Line, from 1; None in a JSON list, whose rows have no lines."""
    manifest: Path
    """File of the row, or the folder of a table."""
    key: str = ""
    """Name of the row in a tar."""
    listed: ListedManifest | None = None
    """Which one it is of several manifests; None if there is no list of them."""

    @property
    def number(self) -> int:
        """Return the index of the row, from 0, among the rows of all manifests."""
        return self.row + (0 if self.listed is None else self.listed.rows_before)

    def __str__(self) -> str:
        place = f"row {self.row}" if self.line is None else f"{self.line}"
        file = self.manifest.name
        if self.listed is not None and self.listed.name != self.manifest.stem:
            file = f"{self.listed.name} ({file})"  # several may have the same file name
        return f"{file}:{self.key or place}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestRow:
    """Row of the manifest."""

    origin: RowOrigin
    source: str
    """`id` of the row, else its first image, else empty."""
    messages: tuple[Message, ...]
    problem: str = ""
    """Reason why the row cannot be used; empty for a good one."""
    is_json: bool = True
    """False if the row is a line of JSON lines that cannot be parsed."""
    ignored: tuple[str, ...] = ()
    """Keys that are neither read nor known metadata."""
    keys: tuple[str, ...] = ()
    """All keys of the row."""
    left_out: tuple[str, ...] = ()
    """Names of `columns.ignore` that the row has, in its turns too."""
    splits: tuple[tuple[str, str], ...] = ()
    """Columns that name the row's split of the data set, with their values."""
    notes: tuple[RowNote, ...] = ()
    """What a user should see of a usable row, each once."""

    def __post_init__(self) -> None:
        for name in ("source", "problem"):
            object.__setattr__(self, name, truncated(getattr(self, name)))

    @property
    def key(self) -> str:
        """Return the sample's key: the row's number, so that it does not depend on slices."""
        return f"{self.origin.number:09d}"

    @property
    def nothing_learned(self) -> str | None:
        """Return why no word of a good row is learned; None if one is."""
        learned = [turn for turn in self.messages if turn.role == "assistant" and turn.is_learned]
        if not learned:
            return "no turn is learned: each answer is marked as context"
        if not any(turn.text.strip() for turn in learned):
            return "the assistant says nothing but white space"
        return None

    @property
    def images(self) -> tuple[Content, ...]:
        """Return the images in the order of their tokens."""
        items = (item for message in self.messages for item in message.content)
        return tuple(item for item in items if item.kind == "image")

    @property
    def image_paths(self) -> tuple[str, ...]:
        """Return the names of the images, in the order of their tokens."""
        return tuple(image.value for image in self.images)


def bad_row(
    origin: RowOrigin, problem: str, source: str = "", *, is_json: bool = True
) -> ManifestRow:
    """Return a row that can only be listed among the rejects."""
    return ManifestRow(origin=origin, source=source, messages=(), problem=problem, is_json=is_json)
