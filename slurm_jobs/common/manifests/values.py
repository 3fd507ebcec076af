"""Values of a manifest to rows: captions, `messages`, `conversations` and `texts`.

Each format of files reads values in its own way; what they mean is said here, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slurm_jobs.common.manifests.rows import (
    Content,
    ManifestRow,
    Message,
    RowOrigin,
    bad_row,
)
from slurm_jobs.common.manifests.turns import (
    BadRowError,
    check_characters,
    fill_images,
    image_of,
    is_open,
    listed_images,
    name_images,
    names_of,
    printable,
    read_turn,
    shorten,
    turns_of,
)
from slurm_jobs.common.stage_config.preprocess import DEFAULT_PROMPT


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionWords:
    """What surrounds a caption; the other formats bring their own words."""

    prompt: str = DEFAULT_PROMPT
    """The user's, beside the image."""
    system_prompt: str = ""
    """Empty for no system message."""


def row_from_csv(origin: RowOrigin, image: str, text: str, words: CaptionWords) -> ManifestRow:
    """A CSV row: the prompt beside the image, `text` as the answer."""
    if not image.strip() or not text.strip():
        empty = "image_path" if not image.strip() else "text"
        return bad_row(origin, f"`{empty}` is empty", source=image)
    content = Content(kind="image", value=image)
    return _caption(origin, content.value, content, text, words)


def _caption(
    origin: RowOrigin, source: str, image: Content, text: str, words: CaptionWords
) -> ManifestRow:
    messages = []
    if words.system_prompt:
        messages.append(_text_message("system", words.system_prompt))
    question = Content(kind="text", value=words.prompt)
    messages.append(Message(role="user", content=(image, question)))
    messages.append(_text_message("assistant", text))
    return ManifestRow(origin=origin, source=source, messages=name_images(tuple(messages)))


def row_from_json(origin: RowOrigin, value: object) -> ManifestRow:
    """A row of a JSON format: `messages`, with images inline or in a list, or `conversations`."""
    try:
        if isinstance(value, dict) and "messages" in value:
            return row_from_turns(origin, value, value["messages"])
        if isinstance(value, dict) and "conversations" in value:
            return row_from_turns(origin, value, value["conversations"], "from", "value")
    except RecursionError:  # printing what was only just parsed
        return bad_row(origin, TOO_DEEP)
    return bad_row(origin, "neither `messages` nor `conversations`")


TOO_DEEP = "lists or mappings are nested too deeply to be read"


def row_from_table(origin: RowOrigin, value: Mapping[str, Any], words: CaptionWords) -> ManifestRow:
    """A row of a table, whose cells may be null: of what it can be, the first that is not.

    `texts` is the layout of The Cauldron and FineVision: pairs of `user` and `assistant`.
    """
    if value.get("messages") is not None:
        return row_from_turns(origin, value, value["messages"])
    if value.get("conversations") is not None:
        return row_from_turns(origin, value, value["conversations"], "from", "value")
    if value.get("texts") is not None:
        return row_from_turns(origin, value, value["texts"], "", "")
    if "text" in value:
        return _caption_from_table(origin, value, words)
    own_id = value.get("id")
    source = "" if own_id is None else printable(str(own_id))
    return bad_row(origin, "no turns: the cell is null", source=source)


def _caption_from_table(
    origin: RowOrigin, value: Mapping[str, Any], words: CaptionWords
) -> ManifestRow:
    images = [image_of(value.get(name)) for name in ("image", "image_path")]
    image = next((image for image in images if not is_open(image)), images[0])
    own_id, text = value.get("id"), value["text"]
    source = printable(image.value if own_id is None else str(own_id))
    if is_open(image) or (image.data is None and not image.value.strip()):
        return bad_row(origin, "no image: neither a path nor bytes", source=source)
    if not isinstance(text, str):
        kind = "null" if text is None else f"a {type(text).__name__}"
        return bad_row(origin, f"`text` is {kind}, expected a string", source=source)
    if not text.strip():
        return bad_row(origin, "`text` is empty", source=source)
    return _caption(origin, source, image, text, words)


def row_from_turns(
    origin: RowOrigin,
    value: Mapping[str, Any],
    turns: Any,
    role_key: str = "role",
    content_key: str = "content",
) -> ManifestRow:
    """A row of turns; without keys they are pairs of `user` and `assistant`."""
    listed = listed_images(value)
    images = listed[0] if listed else []
    first_image, own_id = images[0].value if images else "", value.get("id")
    source = printable(first_image if own_id is None else str(own_id))
    try:
        if len(listed) > 1:
            first, second = (shorten(names_of(images)) for images in listed)
            message = f"`images` lists {first}, `image` {second}"
            raise BadRowError(message)
        found = turns_of(turns)
        if role_key:
            messages = [read_turn(turn, role_key, content_key) for turn in found]
        else:
            messages = [message for pair in found for message in _pair(pair)]
        if messages[-1].role != "assistant":
            message = f"the last turn is the {messages[-1].role}'s, expected the assistant's"
            raise BadRowError(message)
        filled = fill_images(messages, images)
        check_characters(filled)
    except BadRowError as error:
        return bad_row(origin, str(error), source=source)
    row = ManifestRow(origin=origin, source=source, messages=filled)
    if not source and row.images:
        row = replace(row, source=row.images[0].value)
    return replace(row, messages=name_images(filled))


def _pair(pair: Any) -> list[Message]:
    if not isinstance(pair, Mapping):
        message = "a turn without `user` and `assistant`"
        raise BadRowError(message)
    turns = ({"role": role, "content": pair.get(role)} for role in ("user", "assistant"))
    return [read_turn(turn, "role", "content") for turn in turns]


def _text_message(role: str, text: str) -> Message:
    return Message(role=role, content=(Content(kind="text", value=text),))
