"""Conversion of a conversation's turns to messages with texts and images."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurm_jobs.formats.manifests.inline_images import is_inline_image
from slurm_jobs.formats.manifests.keys import (
    LOSS_KEYS,
    SPELLINGS,
    BadRowError,
    has_learning_word,
    is_chat_part,
    is_empty,
    is_learned,
    kind_of,
    normal,
    says_nothing,
    says_number,
    shorten,
    unread_keys,
    yes_or_no,
)
from slurm_jobs.formats.manifests.messages import Content, Message
from slurm_jobs.formats.manifests.row_shapes.value_parts import with_named_value

IMAGE_MARK = "<image>"
"""Mark of the next image in a text of LLaVA's format, independent of the model's image token."""

_ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant"}
_ROLES["system"] = "system"
_ROLE_KEYS = ("role", "from")
_CONTENT_KEYS = ("content", "value")
_TURN_KEYS = frozenset({*_ROLE_KEYS, *_CONTENT_KEYS, *LOSS_KEYS})
_PAIR_KEYS = frozenset({"user", "assistant", *LOSS_KEYS})
_NAME_KEYS = (
    "path",
    *(name for name, meaning in SPELLINGS.items() if meaning == "image"),
    "url",
    "file_name",
)
"""Keys for the name of an image that is a mapping."""
_DATA_KEYS = ("bytes", "base64", "b64", "data")
"""Keys for the content of an image that is a mapping; in JSON it is base64."""
INDEX_KEYS = frozenset(
    {"index", "idx", *(f"{name}_{end}" for name in ("image", "img") for end in ("index", "idx"))}
)
"""Keys of an image in a content list for its index among the row's images, from 0."""
IMAGE_KEYS = frozenset({*_DATA_KEYS, *_NAME_KEYS, "source", "type"})
"""All keys that are read of an image that is a mapping."""
_ITEM_KEYS = frozenset({"type", "text", *_DATA_KEYS, *_NAME_KEYS, *LOSS_KEYS})
_KINDS = {"image_url": "image", "input_image": "image", "input_text": "text", "output_text": "text"}
"""Types of content items by OpenAI's names."""


def image_of(item: Any) -> Content:
    """Return an image from a path, its bytes or a mapping; without a name if none is given.

    Raises:
        BadRowError: it has two names that differ, or is not an image.
    """
    if isinstance(item, bytes):
        return Content(kind="image", value="", data=item)
    if item is None or isinstance(item, str):
        return Content(kind="image", value=item or "")
    if not isinstance(item, Mapping):
        message = f"an image is {shorten(item)}, expected a path, base64, or a mapping with one"
        raise BadRowError(message)
    given = {key: item[key] for key in _NAME_KEYS if item.get(key)}
    if isinstance(item.get("source"), Mapping):
        given["source"] = item["source"]
    images = [image_of(value) for value in given.values()]
    names = set()
    for value, inner in zip(given.values(), images, strict=True):
        names.add(value if isinstance(value, str) else inner.value)  # `image_url: {url: a.png}`
    if len(names - {""}) > 1:
        message = f"an image with several names: {shorten(given)}"
        raise BadRowError(message)
    image = next(iter(images), Content(kind="image", value=""))
    key = next((key for key in _DATA_KEYS if item.get(key) not in (None, "")), None)
    data = item.get(key) if key else None
    if data is None or isinstance(data, bytes):
        return image if data is None else replace(image, data=data)
    if not isinstance(data, str):
        message = f"`{key}` of an image is {kind_of(data)}, expected bytes or base64"
        raise BadRowError(message)
    decoded = Content(kind="image", value=data if is_inline_image(data) else f"data:;base64,{data}")
    return replace(decoded, value=image.value or decoded.value)


def is_open(item: Content) -> bool:
    """Check for an image without content: it is named elsewhere, or not at all."""
    return item.kind == "image" and not item.value and item.data is None


def turns_of(value: Any) -> list[Any]:
    """Return the list of turns in a value; tables may write JSON, or a mapping of lists.

    Raises:
        BadRowError: it has none of these forms, or is empty.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            message = f"the turns are text, but no valid JSON ({error})"
            raise BadRowError(message) from error
    if isinstance(value, Mapping):  # `datasets` before 4 wrote a list of mappings this way
        columns = [column for column in value.values() if isinstance(column, list)]
        if len(columns) == len(value) and len({len(column) for column in columns}) == 1:
            value = [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if not isinstance(value, list) or not value:
        message = "the list of turns is empty or no list"
        raise BadRowError(message)
    return value


def read_turns(
    turn: Any, *, wanted: tuple[str, str], is_first: bool, ignore: Collection[str] = ()
) -> tuple[list[Message], list[str]]:
    """Return a turn as messages, and its unread keys; a pair of `user` and `assistant` is two.

    The first turn may have the system message of the conversation as its `system`. `wanted` has the
    keys of a role and its content, for the message about a turn without them.

    Raises:
        BadRowError: it has no known role and content, or content that is not supported.
    """
    if not isinstance(turn, Mapping):
        raise BadRowError(_without(wanted))
    given = {key: item for key, item in turn.items() if key not in ignore}
    messages = _take_system(given, is_first=is_first)
    is_pair = all(given.get(key) is None for key in _ROLE_KEYS) and "user" in wanted
    if is_pair:
        if not {"user", "assistant"} & given.keys():
            raise BadRowError(_without(("user", "assistant")))
        ignored = _check_keys(given, _PAIR_KEYS)
        contents = [(role, "content", given.get(role)) for role in ("user", "assistant")]
    else:
        role_key, given_role = _only(given, _ROLE_KEYS, wanted)
        content_key, content = _only(given, _CONTENT_KEYS, wanted)
        role = _ROLES.get(given_role.strip().lower()) if isinstance(given_role, str) else None
        ignored = _check_keys(given, _TURN_KEYS)
        if role is None:
            problem = f"{role_key} {shorten(given_role)}; allowed are {', '.join(_ROLES)}"
            raise BadRowError(problem)
        contents = [(role, content_key, content)]
    for role, key, content in contents:
        # The marks of a pair are those of its answer.
        learned = (is_pair and role == "user") or is_learned(given, role)
        items, unread = _read_content(key, content, () if is_pair else ignore)
        messages.append(Message(role=role, content=items, is_learned=learned))
        ignored += unread
    return messages, ignored


def _take_system(turn: dict[str, Any], *, is_first: bool) -> list[Message]:
    """Remove the system message from the first turn."""
    keys = [key for key in turn if SPELLINGS.get(normal(key)) == "system"]
    texts = {key: value for key in keys if not says_nothing(value := turn.pop(key))}
    if not texts:
        return []
    key, text = next(iter(texts.items()))
    if not is_first or len(texts) > 1 or not isinstance(text, str):
        message = (
            f"`{key}` of a turn is read only in the first turn, and as a text; write it into a "
            "turn of the system at the beginning"
        )
        raise BadRowError(message)
    return [Message(role="system", content=(Content(kind="text", value=text),))]


def _only(
    turn: Mapping[str, Any], keys: tuple[str, ...], wanted: tuple[str, str]
) -> tuple[str, Any]:
    """Return the only one of these keys that the turn has, and its value."""
    present = {key: turn[key] for key in keys if key in turn}
    filled = {key: value for key, value in present.items() if value is not None} or present
    if not filled:
        raise BadRowError(_without(wanted))
    if len(filled) > 1 and len({repr(value) for value in filled.values()}) > 1:
        message = f"a turn with {' and '.join(f'`{key}`' for key in filled)}, which differ"
        raise BadRowError(message)
    return next(iter(filled.items()))


def _without(wanted: tuple[str, str]) -> str:
    return f"a turn without `{wanted[0]}` and `{wanted[1]}`"


def _check_keys(turn: Mapping[str, Any], read: frozenset[str]) -> list[str]:
    """Return the unread keys of a turn.

    Raises:
        BadRowError: one of them changes the meaning of the turn.
    """
    ignored = []
    for key, value in unread_keys(turn, read):
        if has_learning_word(key):
            message = f"`{key}` of a turn is not supported; write `loss: false` for a whole turn"
            raise BadRowError(message)
        is_flag = yes_or_no(value) is not None and normal(key) != "mask"
        if is_flag and not says_number(key):
            message = (
                f"`{key}` of a turn is {shorten(value)}, and may say whether it is learned; write "
                f"`loss`, or set `columns: {{ignore: [{key}]}}`"
            )
            raise BadRowError(message)
        if is_chat_part(key, value):
            message = (
                f"`{key}` of a turn holds words that are not read; write them into its text, or "
                f"set `columns: {{ignore: [{key}]}}` to leave them out"
            )
            raise BadRowError(message)
        ignored.append(key)
    return ignored


def _read_content(
    key: str, content: Any, ignore: Collection[str]
) -> tuple[tuple[Content, ...], list[str]]:
    if isinstance(content, str):
        return tuple(split_marks(content)), []
    if not isinstance(content, list):
        message = f"`{key}` of a turn is {kind_of(content)}, expected a string or a list"
        raise BadRowError(message)
    items: list[Content] = []
    ignored: list[str] = []
    for part in content:
        item = with_named_value(part)
        items += _read_item(item)
        given = {k: v for k, v in item.items() if k not in ignore}
        if _kind(item) == "text":
            ignored += _check_keys(given, _ITEM_KEYS)
        else:
            read = {"source"} if isinstance(item.get("source"), Mapping) else set()
            ignored += [key for key, _ in unread_keys(given, _ITEM_KEYS | INDEX_KEYS | read)]
    return tuple(items), ignored


def split_marks(text: str) -> list[Content]:
    """Split a string of LLaVA's format; the line break next to an image mark belongs to it."""
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
    kind = _kind(item) if isinstance(item, Mapping) else None
    unread: tuple[str, ...]
    if kind == "text" and isinstance(item.get("text"), str):
        unread = (*_NAME_KEYS, *_DATA_KEYS)
    elif kind == "image":
        unread = ("text",) if isinstance(item.get("source"), Mapping) else ("text", "source")
    else:
        allowed = "allowed are `text` (with `text`) and `image`"
        message = f"content item of type {shorten(kind)}; {allowed}"
        raise BadRowError(message)
    for key in unread:
        if not is_empty(item.get(key)):
            message = f"`{key}` of a content item of type `{kind}` is not read"
            raise BadRowError(message)
    marks = [key for key in item if normal(key) in LOSS_KEYS and item[key] is not None]
    if marks and not is_learned(item, "assistant"):
        what = "of a part of a turn is not supported; only whole turns are left out"
        message = f"`{marks[0]}` {what}"
        raise BadRowError(message)
    if kind == "text":
        text = item["text"]
        return split_marks(text) if IMAGE_MARK in text else [Content(kind="text", value=text)]
    image = image_of(item)
    return [replace(image, index=_index(item))] if is_open(image) else [image]


def _index(item: Mapping[str, Any]) -> int | None:
    """Return the index of the listed image that an item refers to; None without one."""
    given = {k: v for k, v in item.items() if normal(k) in INDEX_KEYS and not is_empty(v)}
    for key, value in given.items():
        is_whole = isinstance(value, int | float) and float(value).is_integer()
        if isinstance(value, bool) or not is_whole:
            message = f"`{key}` of an image is {shorten(value)}, expected a number from 0"
            raise BadRowError(message)
    if len(set(given.values())) > 1:
        message = f"an image with several numbers: {shorten(given)}"
        raise BadRowError(message)
    return next((int(value) for value in given.values()), None)


def _kind(item: Mapping[str, Any]) -> Any:
    """Return `text`, `image`, or the type of an item that is neither."""
    kind = item.get("type")
    if kind is None:
        if item.get("image") or item.get("image_url"):
            return "image"
        return "text" if isinstance(item.get("text"), str) else None
    return _KINDS.get(kind, kind) if isinstance(kind, str) else kind


def fill_images(messages: list[Message], listed: Sequence[Content]) -> tuple[Message, ...]:
    """Give every image without a path or bytes the next listed one, or that of its index.

    A row that lists images but marks no place for them has them before the first words of the user.

    Raises:
        BadRowError: the numbers of places and images differ.
    """
    items = [item for message in messages for item in message.content]
    num_open, num_listed = sum(map(is_open, items)), len(listed)
    indices = [item.index for item in items if is_open(item) and item.index is not None]
    nothing = next((i for i, image in enumerate(listed, 1) if is_open(image)), None)
    wrong = next((index for index in indices if not 0 <= index < num_listed), None)
    unused = next((index for index in range(num_listed) if index not in indices), None)
    problem = ""
    if nothing is not None:
        problem = f"image {nothing} of {num_listed} listed has neither a path nor bytes"
    elif listed and not any(item.kind == "image" for item in items):
        user = next((index for index, m in enumerate(messages) if m.role == "user"), None)
        if user is not None:
            shown = replace(messages[user], content=(*listed, *messages[user].content))
            return (*messages[:user], shown, *messages[user + 1 :])
        problem = "images are listed, but no turn of the user could show them"
    elif indices and len(indices) != num_open:
        problem = f"{len(indices)} of {num_open} places for images have an `index`, expected all"
    elif wrong is not None:
        problem = f"`index` of an image is {wrong}, but {num_listed} are listed, counted from 0"
    elif indices and unused is not None:
        problem = f"no place for an image has the `index` {unused} of {num_listed} listed images"
    elif not indices and num_open != num_listed:
        places = "1 place" if num_open == 1 else f"{num_open} places"
        images = "1 image" if num_listed == 1 else f"{num_listed} images"
        problem = f"the text has {places} for images, and the row lists {images}"
    if problem:
        raise BadRowError(problem)
    waiting = iter([listed[index] for index in indices] if indices else listed)
    return tuple(
        replace(
            message,
            content=tuple(next(waiting) if is_open(item) else item for item in message.content),
        )
        for message in messages
    )


def name_images(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Name each image that has bytes and no path by its number in the row, for messages."""
    images = [item for message in messages for item in message.content if item.kind == "image"]
    if all(image.value for image in images):
        return messages
    named = iter(
        image if image.value else replace(image, value=f"image {number}")
        for number, image in enumerate(images, 1)
    )
    return tuple(
        replace(
            message,
            content=tuple(next(named) if i.kind == "image" else i for i in message.content),
        )
        for message in messages
    )


def check_characters(messages: tuple[Message, ...]) -> None:
    """Raise on a lone surrogate, which JSON can write, but no tokenizer or file name accepts."""
    values = (item.value for message in messages for item in message.content)
    broken = next((value for value in values if value != printable(value)), None)
    if broken is not None:
        message = f"half of a surrogate pair in {shorten(broken)}"
        raise BadRowError(message)


def printable(text: str) -> str:
    """Return the text without characters that UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
