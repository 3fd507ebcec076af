"""One row of a manifest, whatever format it came in, as chat messages.

All formats end in the same value: messages whose content is a list of texts
and images in the order in which the model sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

IMAGE_MARK = "<image>"
"""Stands for the next image in a text of LLaVA's format, whatever the model's own image token."""

_ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant"}
_ROLES["system"] = "system"
_MAX_SHOWN = 200
"""Characters of a manifest's value in a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """A piece of text, or an image by its path as the manifest writes it."""

    kind: Literal["text", "image"]
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """What one side says in one turn."""

    role: str
    """`system`, `user` or `assistant`."""
    content: tuple[Content, ...]

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

    @property
    def key(self) -> str:
        """Key of the sample: the row's number, so that it does not depend on slices."""
        return f"{self.origin.row:09d}"

    @property
    def image_paths(self) -> tuple[str, ...]:
        """The images in the order of their tokens."""
        items = (item for message in self.messages for item in message.content)
        return tuple(item.value for item in items if item.kind == "image")


class _BadRowError(ValueError):
    """A row that cannot be understood."""


def bad_row(origin: RowOrigin, problem: str, source: str = "") -> ManifestRow:
    """A row that can only be listed among the rejects."""
    return ManifestRow(origin=origin, source=source, messages=(), problem=problem)


def row_from_csv(
    origin: RowOrigin, image: str, text: str, prompt: str, system_prompt: str
) -> ManifestRow:
    """A CSV row: the prompt beside the image, `text` as the answer."""
    if not image.strip() or not text.strip():
        empty = "image_path" if not image.strip() else "text"
        return bad_row(origin, f"`{empty}` is empty", source=image)
    messages = []
    if system_prompt:
        messages.append(_text_message("system", system_prompt))
    picture = Content(kind="image", value=image)
    question = Content(kind="text", value=prompt)
    messages.append(Message(role="user", content=(picture, question)))
    messages.append(_text_message("assistant", text))
    return ManifestRow(origin=origin, source=image, messages=tuple(messages))


def row_from_chat(origin: RowOrigin, value: Mapping[str, Any]) -> ManifestRow:
    """A row with `messages`, their images inline or in a list `images` of the row."""
    return _build_row(origin, value, value["messages"], role_key="role", content_key="content")


def row_from_conversations(origin: RowOrigin, value: Mapping[str, Any]) -> ManifestRow:
    """A row of LLaVA's format: `conversations` of `from` and `value`, the image named once."""
    return _build_row(origin, value, value["conversations"], role_key="from", content_key="value")


def _build_row(
    origin: RowOrigin, value: Mapping[str, Any], turns: Any, *, role_key: str, content_key: str
) -> ManifestRow:
    listed = _listed_images(value)
    images = listed[0] if listed else []
    first_image, own_id = images[0] if images else "", value.get("id")
    source = _printable(first_image if own_id is None else str(own_id))
    try:
        if len(listed) > 1:
            message = f"`images` lists {_shorten(listed[0])}, `image` {_shorten(listed[1])}"
            raise _BadRowError(message)
        if not isinstance(turns, list) or not turns:
            message = "the list of turns is empty or no list"
            raise _BadRowError(message)
        messages = [_read_turn(turn, role_key, content_key) for turn in turns]
        if messages[-1].role != "assistant":
            message = f"the last turn is the {messages[-1].role}'s, expected the assistant's"
            raise _BadRowError(message)
        filled = _fill_images(messages, images)
        _check_characters(filled)
    except _BadRowError as error:
        return bad_row(origin, str(error), source=source)
    row = ManifestRow(origin=origin, source=source, messages=filled)
    return row if row.source or not row.image_paths else _with_source(row)


def _check_characters(messages: tuple[Message, ...]) -> None:
    """Refuse a surrogate alone, which JSON can write, but no tokenizer or file name takes."""
    values = (item.value for message in messages for item in message.content)
    broken = next((value for value in values if value != _printable(value)), None)
    if broken is not None:
        message = f"half of a surrogate pair in {_shorten(broken)}"
        raise _BadRowError(message)


def _printable(text: str) -> str:
    """The text as UTF-8 can hold it."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _with_source(row: ManifestRow) -> ManifestRow:
    return ManifestRow(origin=row.origin, source=row.image_paths[0], messages=row.messages)


def _listed_images(value: Mapping[str, Any]) -> list[list[str]]:
    """The images that the row lists: none, one list, or two that contradict each other.

    Exporters write both keys and leave one of them null or empty.
    """
    given = [value[key] for key in ("images", "image") if value.get(key) is not None]
    filled = [item for item in given if item] or given[:1]
    lists = [_image_paths(item) for item in filled]
    return lists[:1] if lists and all(paths == lists[0] for paths in lists) else lists


def _image_paths(listed: Any) -> list[str]:
    return [_image_path(item) for item in (listed if isinstance(listed, list) else [listed])]


def _image_path(item: Any) -> str:
    """A path from a string or a mapping; empty where none is given."""
    if isinstance(item, Mapping):
        item = next((item[key] for key in ("path", "image", "url") if item.get(key)), "")
    return item if isinstance(item, str) else ""


def _shorten(value: Any) -> str:
    """The value as Python writes it, for a message."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _read_turn(turn: Any, role_key: str, content_key: str) -> Message:
    if not isinstance(turn, Mapping) or role_key not in turn or content_key not in turn:
        message = f"a turn without `{role_key}` and `{content_key}`"
        raise _BadRowError(message)
    given = turn[role_key]
    role = _ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        message = f"{role_key} {_shorten(given)}; allowed are {', '.join(_ROLES)}"
        raise _BadRowError(message)
    content = turn[content_key]
    if isinstance(content, str):
        return Message(role=role, content=tuple(_split_marks(content)))
    if not isinstance(content, list):
        message = f"{content_key} is a {type(content).__name__}, expected a string or a list"
        raise _BadRowError(message)
    return Message(role=role, content=tuple(_read_item(item) for item in content))


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


def _read_item(item: Any) -> Content:
    kind = item.get("type") if isinstance(item, Mapping) else None
    if kind == "text" and isinstance(item.get("text"), str):
        return Content(kind="text", value=item["text"])
    if kind == "image":
        return Content(kind="image", value=_image_path(item))
    message = f"content item of type {_shorten(kind)}; allowed are `text` (with `text`) and `image`"
    raise _BadRowError(message)


def _fill_images(messages: list[Message], listed: list[str]) -> tuple[Message, ...]:
    """Give every image without a path the next listed one.

    A row that lists images but marks no place for them has them before the
    first words of the user.
    """
    items = [item for message in messages for item in message.content]
    num_open = sum(item.kind == "image" and not item.value for item in items)
    if listed and not any(item.kind == "image" for item in items):
        return _images_first(messages, listed)
    if num_open != len(listed) or "" in listed:
        message = f"{num_open} places for images, {len(listed)} images listed"
        raise _BadRowError(message)
    waiting = iter(listed)
    return tuple(
        Message(
            role=message.role,
            content=tuple(
                Content(kind="image", value=next(waiting))
                if item.kind == "image" and not item.value
                else item
                for item in message.content
            ),
        )
        for message in messages
    )


def _images_first(messages: list[Message], listed: list[str]) -> tuple[Message, ...]:
    user = next((index for index, m in enumerate(messages) if m.role == "user"), None)
    if user is None or "" in listed:
        message = "images are listed, but no turn of the user could show them"
        raise _BadRowError(message)
    images = tuple(Content(kind="image", value=path) for path in listed)
    shown = Message(role="user", content=images + messages[user].content)
    return (*messages[:user], shown, *messages[user + 1 :])


def _text_message(role: str, text: str) -> Message:
    return Message(role=role, content=(Content(kind="text", value=text),))
