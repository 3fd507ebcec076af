"""Turns and images as manifests write them, to messages in which every image has its place.

Lists and mappings are those of JSON; bytes come from tables alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurm_jobs.common.manifests.rows import Content, Message

IMAGE_MARK = "<image>"
"""Stands for the next image in a text of LLaVA's format, whatever the model's own image token."""

_ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant"}
_ROLES["system"] = "system"
_MAX_SHOWN = 200
"""Characters of a manifest's value in a message."""


class BadRowError(ValueError):
    """A row that cannot be understood."""


def listed_images(value: Mapping[str, Any]) -> list[list[Content]]:
    """The images that the row lists: none, one list, or two that contradict each other.

    Exporters write both keys and leave one of them null or empty.
    """
    given = [value[key] for key in ("images", "image") if value.get(key) is not None]
    filled = [item for item in given if item] or given[:1]
    lists = [_images(item) for item in filled]
    return lists[:1] if lists and all(images == lists[0] for images in lists) else lists


def _images(listed: Any) -> list[Content]:
    return [image_of(item) for item in (listed if isinstance(listed, list) else [listed])]


def image_of(item: Any) -> Content:
    """An image from a path, its bytes or a mapping of them; without a name where none is given."""
    if isinstance(item, bytes):
        return Content(kind="image", value="", data=item)
    if not isinstance(item, Mapping):
        return Content(kind="image", value=item if isinstance(item, str) else "")
    inner = next((item[key] for key in ("path", "image", "url") if item.get(key)), "")
    found = image_of(inner) if isinstance(inner, bytes | Mapping) else _named(inner)
    data = item.get("bytes")
    return replace(found, data=data) if isinstance(data, bytes) else found


def _named(name: Any) -> Content:
    return Content(kind="image", value=name if isinstance(name, str) else "")


def is_open(item: Content) -> bool:
    """Whether this is the place of an image that is named elsewhere, or nowhere."""
    return item.kind == "image" and not item.value and item.data is None


def names_of(images: Sequence[Content]) -> list[str]:
    """The paths of images; empty where there are bytes alone."""
    return [image.value for image in images]


def turns_of(value: Any) -> list[Any]:
    """The list of turns in a value, which tables may write as JSON, or as a mapping of lists.

    Raises:
        BadRowError: it is none of them, or empty.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            message = f"the turns are text, but no valid JSON ({error})"
            raise BadRowError(message) from error
    if isinstance(value, Mapping):  # `datasets` before 4 wrote a list of mappings so
        columns = [column for column in value.values() if isinstance(column, list)]
        if len(columns) == len(value) and len({len(column) for column in columns}) == 1:
            value = [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if not isinstance(value, list) or not value:
        message = "the list of turns is empty or no list"
        raise BadRowError(message)
    return value


def read_turn(turn: Any, role_key: str, content_key: str) -> Message:
    """One turn as a message.

    Raises:
        BadRowError: it has no role and content that are known.
    """
    if not isinstance(turn, Mapping) or role_key not in turn or content_key not in turn:
        message = f"a turn without `{role_key}` and `{content_key}`"
        raise BadRowError(message)
    given = turn[role_key]
    role = _ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        message = f"{role_key} {shorten(given)}; allowed are {', '.join(_ROLES)}"
        raise BadRowError(message)
    content = turn[content_key]
    if isinstance(content, str):
        return Message(role=role, content=tuple(_split_marks(content)))
    if not isinstance(content, list):
        message = f"{content_key} is a {type(content).__name__}, expected a string or a list"
        raise BadRowError(message)
    return Message(
        role=role, content=tuple(found for item in content for found in _read_item(item))
    )


def _split_marks(text: str) -> list[Content]:
    """A string of LLaVA's kind; the line break beside an image mark belongs to the mark."""
    items: list[Content] = []
    for index, piece in enumerate(text.split(IMAGE_MARK)):
        if index:
            items.append(Content(kind="image", value=""))
        words = piece.removeprefix("\n") if index else piece
        words = words.removesuffix("\n") if index < text.count(IMAGE_MARK) else words
        if words:
            items.append(Content(kind="text", value=words))
    return items


def _read_item(item: Any) -> list[Content]:
    kind = item.get("type") if isinstance(item, Mapping) else None
    if kind == "text" and isinstance(item.get("text"), str):
        text = item["text"]
        return _split_marks(text) if IMAGE_MARK in text else [Content(kind="text", value=text)]
    if kind == "image":
        return [image_of(item)]
    message = f"content item of type {shorten(kind)}; allowed are `text` (with `text`) and `image`"
    raise BadRowError(message)


def fill_images(messages: list[Message], listed: Sequence[Content]) -> tuple[Message, ...]:
    """Give every image without a path or bytes the next listed one.

    A row that lists images but marks no place for them has them before the
    first words of the user.

    Raises:
        BadRowError: there are not as many places as images.
    """
    items = [item for message in messages for item in message.content]
    num_open = sum(is_open(item) for item in items)
    nothing = next((i for i, image in enumerate(listed, 1) if is_open(image)), None)
    if nothing is not None:
        message = f"image {nothing} of {len(listed)} listed has neither a path nor bytes"
        raise BadRowError(message)
    if listed and not any(item.kind == "image" for item in items):
        return _images_first(messages, listed)
    if num_open != len(listed):
        message = f"{num_open} places for images, {len(listed)} images listed"
        raise BadRowError(message)
    waiting = iter(listed)
    return tuple(
        replace(
            message,
            content=tuple(next(waiting) if is_open(item) else item for item in message.content),
        )
        for message in messages
    )


def _images_first(messages: list[Message], listed: Sequence[Content]) -> tuple[Message, ...]:
    user = next((index for index, m in enumerate(messages) if m.role == "user"), None)
    if user is None:
        message = "images are listed, but no turn of the user could show them"
        raise BadRowError(message)
    shown = Message(role="user", content=(*listed, *messages[user].content))
    return (*messages[:user], shown, *messages[user + 1 :])


def name_images(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Name each image that has bytes and no path by its number in the row, for messages."""
    images = [item for message in messages for item in message.content if item.kind == "image"]
    if all(image.value for image in images):
        return messages
    numbers = iter(range(1, len(images) + 1))
    return tuple(
        replace(message, content=tuple(_numbered(item, numbers) for item in message.content))
        for message in messages
    )


def _numbered(item: Content, numbers: Any) -> Content:
    if item.kind != "image":
        return item
    number = next(numbers)
    return item if item.value else replace(item, value=f"image {number}")


def check_characters(messages: tuple[Message, ...]) -> None:
    """Refuse a surrogate alone, which JSON can write, but no tokenizer or file name takes."""
    values = (item.value for message in messages for item in message.content)
    broken = next((value for value in values if value != printable(value)), None)
    if broken is not None:
        message = f"half of a surrogate pair in {shorten(broken)}"
        raise BadRowError(message)


def printable(text: str) -> str:
    """The text as UTF-8 can hold it."""
    return text.encode("utf-8", "replace").decode("utf-8")


def shorten(value: Any) -> str:
    """The value as Python writes it, for a message."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
