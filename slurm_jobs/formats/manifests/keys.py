"""Keys of a row, a turn and a content item: read, metadata, refused or unknown.

Every key is one of four kinds. It is read. It is known metadata. Its name or value shows that it
holds content (a video, a tool, a rejected answer, another picture); then the row is refused,
because the rest of the row would teach something else. Or it is unknown, and is counted and shown.
Names are compared without case, and `-` and blanks count as `_`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slurm_jobs.formats.manifests.inline_images import is_inline_image


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written as one text."""
    return frozenset(text.split())


Meaning = Literal["image", "text", "prompt", "system", "id", "turns", "earlier_turns"]

TURN_KEYS = ("messages", "conversations", "texts")
"""Columns of conversations. The first that is not null is read."""

_READ: Mapping[Meaning, str] = {
    "image": """image images image_path image_paths image_file image_files img imgs img_path
        img_paths image_url image_urls image_name image_names image_filename image_filenames
        image_file_name image_file_names image_filepath image_bytes image_base64 img_file
        img_name""",
    "text": "text caption answer response output completion",
    "prompt": "prompt question query instruction",
    "system": """system system_prompt system_message system_instruction system_text sys
        sys_prompt""",
    "id": "id",
    "turns": " ".join(TURN_KEYS),
    "earlier_turns": "history",
}
SPELLINGS: Mapping[str, Meaning] = {
    name: meaning for meaning, names in _READ.items() for name in names.split()
}
"""Meaning of a row's columns, by name."""

FILE_NAMES = word_set(
    """file_name filename file file_path filepath path file_names filenames file_paths paths"""
)
"""Columns that name the picture if no other column does, as `file_name` of Hugging Face's
ImageFolder. Otherwise they are metadata of a picture that another column holds."""

_METADATA = word_set(
    """id _id ids idx index uid uuid guid key row row_id sample_id question_id image_id img_id
    item_id conversation_id turn_id message_id source sources data_source dataset
    dataset_name origin subset split category categories task task_type type url urls
    coco_url flickr_url source_url page_url license licence copyright author created
    created_at timestamp date time width height size resolution image_width image_height
    image_size num_images md5 sha1 sha256 hash phash language lang version name
    index_level_0 __index_level_0__ status error_message original_width original_height exif"""
)
"""Keys that are known to hold nothing for a sample."""

MediaKind = Literal["video", "audio", "picture"]
UnreadKind = (
    MediaKind
    | Literal["tools", "preference", "thought", "places", "template_settings", "earlier_turns"]
)
"""Kinds of content that is not read."""

_WORDS: Mapping[UnreadKind, str] = {
    "video": "video videos clip clips mp4",
    "audio": "audio audios sound sounds speech wav mp3",
    "tools": "tools tool functions function",
    "preference": "chosen rejected reject kto preferred dispreferred desirable",
    "thought": "reasoning thinking thoughts",
    "places": "objects bbox bboxes boxes grounding",
    "template_settings": "kwargs",
    "earlier_turns": "history",
}
_KIND_OF_WORD: Mapping[str, UnreadKind] = {
    word: kind for kind, words in _WORDS.items() for word in words.split()
}
"""Words in the name of a key that holds content."""
_CLAUSES: Mapping[UnreadKind, str] = {
    "video": "video, which is not read",
    "audio": "audio, which is not read",
    "tools": "tools, which are not supported",
    "preference": "preference data, which is not supported",
    "thought": "a thought before the answer, which is not rendered",
    "places": "places in the picture, which are not put into the text",
    "template_settings": "settings of the template, which are not passed on",
    "earlier_turns": "earlier turns, which are not read here; write `messages`",
}
"""What a key whose name announces content holds, for a message."""

_PICTURE_WORDS = word_set(
    """image images img imgs picture pictures photo photos pic pics screenshot screenshots
    frame frames pixel pixels thumbnail mask masks depth"""
)
_MEDIA_WORDS = word_set(
    """image images img imgs picture pictures photo photos screenshot screenshots
    video videos clip clips audio audios"""
)
_PLACE_WORDS = word_set("path paths file files filename url urls uri link links")
_DESCRIBING_WORDS = word_set(
    """id ids width height size sizes shape format mode hash md5 sha256 license licence source
    caption captions description alt title text count num number total index idx fps
    duration length has is quality score aspect ratio category type names token tokens
    dataset url urls sec seconds start end rate"""
)
"""Words that make a key describe a picture or video, instead of holding it."""
_LABEL_WORDS = word_set(
    """class classes label labels tag tags attribute attributes keyword keywords topic topics
    concept concepts object objects region regions"""
)
"""Words at the end of a key that holds what is in a picture: `image_classes`."""

PICTURE_NAME = re.compile(
    r"\.(avif|bmp|gif|heic|heif|jfif|jp2|jpe|jpeg|jpg|png|ppm|tif|tiff|webp)([?#].*)?$",
    re.IGNORECASE,
)
"""End of the name or the address of a picture."""
_MEDIA_NAME = re.compile(
    r"\.(avi|flac|m4a|m4v|mkv|mov|mp3|mp4|mpeg|mpg|ogg|opus|wav|webm|wmv)([?#].*)?$", re.IGNORECASE
)
_PICTURE_TYPES = ("image", "image_url", "input_image")
"""Types of a content item that is a picture, whatever its name."""
_MAX_LOOKED_AT = 100
"""Number of items of a list that are checked."""
_LONGEST_NAME = 1000
"""Longest name of a file, in characters; longer text is no name, whatever its ending."""

UNLEARNED_KEYS = frozenset({"masked", "is_masked", "ignore_loss", "no_loss"})
"""Keys of turns with the opposite meaning of the others."""
LOSS_KEYS = UNLEARNED_KEYS | word_set(
    """loss train training trainable weight train_on_turn train_on loss_weight loss_mask
    loss_scale learn compute_loss calculate_loss has_loss"""
)
"""Keys of turns, in the formats of other tools, that select the learned turns."""

LEARNING_WORDS = word_set(
    """loss train training trainable trained masked learn learned learnable unlearn unlearned
    supervise supervised unsupervised skip ignore ignored exclude excluded include included
    backprop grad weight weights"""
)
"""Words in the name of a key that may select learned words."""

_CHOICES = "choices of the question"
_BELONGS = "words that belong to the question"
QUESTION_PARTS: Mapping[str, str] = {
    **dict.fromkeys(["input", "inputs"], "words of the user"),
    **dict.fromkeys(
        ["choice", "choices", "option", "options", "candidate", "candidates"], _CHOICES
    ),
    **dict.fromkeys(["ending", "endings", "alternatives", "distractor", "distractors"], _CHOICES),
    **dict.fromkeys(["opa", "opb", "opc", "opd"], _CHOICES),
    **dict.fromkeys(["context", "contexts", "passage", "passages", "hint", "hints"], _BELONGS),
    **dict.fromkeys(["article", "document", "documents", "story", "paragraph"], _BELONGS),
}
"""Words in the keys of a row with a question and its answer, without which the answer has another
meaning."""
_ANSWER_WORDS = word_set("answer answers correct gold label labels target solution explanation")
"""Words of a key about the answer, such as `multiple_choice_answer`."""
_TURN_WORDS = word_set(
    """turn turns message messages role roles answer answers response responses reply replies span
    spans assistant"""
)
"""Words for the parts of a conversation: with a learning word they select what is learned."""
_MASK_WORDS = word_set("mask masks")
_ONE_TURN = word_set("message answer response reply span")
"""Words for a turn whose key may hold the turn's own words."""
_POSITIONS = word_set("id ids idx index start end")
"""Words of keys that say which turns, not how many."""
_LETTERS = frozenset("abcdefghij0123456789")
"""Keys of choices that have a column each: `A`, `B`, `C`, `D`."""

_CHAT_PARTS = word_set(
    """instruction instructions persona personas developer context contexts passage passages
    document documents knowledge"""
)
"""Words in keys next to turns for text that the answers depend on."""
_ARTICLES = word_set("article document story")
"""Words of keys that hold either a text or only its name."""


class BadRowError(ValueError):
    """Row that cannot be used; the message gives the reason."""


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@functools.lru_cache(maxsize=4096)
def normal(key: str) -> str:
    """Return the name as it is compared: `imagePath` and `Image-Path` are `image_path`."""
    return _HUMP.sub("_", key.strip()).lower().replace("-", "_").replace(" ", "_")


def is_empty(value: Any) -> bool:
    """Check whether a value is empty: null, or an empty text, list or mapping."""
    if isinstance(value, Mapping):
        return all(is_empty(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(is_empty(item) for item in value)
    return value is None or value in ("", b"")


def says_nothing(value: Any) -> bool:
    """Check whether a value that is not read is empty, also as the JSON that tables write."""
    return is_empty(value) or (isinstance(value, str) and value.strip() in ("[]", "{}", "null"))


def looks_like_picture(value: Any) -> bool:
    """Check whether a value is a picture: its bytes, the name of its file, or a list of such."""
    if isinstance(value, bytes):
        return True
    if isinstance(value, str):
        is_uri = value.lower().startswith("data:")
        if value.startswith("data:image/") or (not is_uri and is_inline_image(value)):
            return True
        return _is_file_name(value, PICTURE_NAME)
    if isinstance(value, Mapping) and value.get("type") in _PICTURE_TYPES:
        return True
    return any(map(looks_like_picture, _possible_files(value)))


def _looks_like_media(value: Any) -> bool:
    """Check whether a value is a video or audio: its `data:` URI or name, or a list of such."""
    if isinstance(value, str):
        is_uri = value.startswith(("data:video/", "data:audio/"))
        return is_uri or _is_file_name(value, _MEDIA_NAME)
    return any(map(_looks_like_media, _possible_files(value)))


def _is_file_name(text: str, ending: re.Pattern[str]) -> bool:
    return len(text) <= _LONGEST_NAME and ending.search(text) is not None


def _possible_files(value: Any) -> Collection[Any]:
    """Return the items of a list, or the values of an object that describes a file."""
    if isinstance(value, list | tuple):  # a map of a table is a list of pairs
        return value[:_MAX_LOOKED_AT]
    if isinstance(value, Mapping):
        return [value[key] for key in ("bytes", "path", "image", "url") if key in value]
    return ()


@functools.lru_cache(maxsize=4096)
def _announced_content(name: str) -> UnreadKind | None:
    words = name.split("_")
    # `video_length` describes a video; `video_url` is how a row holds one.
    describes = not (_DESCRIBING_WORDS - {"url", "urls"}).isdisjoint({words[0], words[-1]})
    for word in words:
        kind = _KIND_OF_WORD.get(word)
        if kind is not None and not (describes and kind in ("video", "audio")):
            return kind
    return None


@functools.lru_cache(maxsize=4096)
def _names_picture(name: str) -> bool:
    words = name.split("_")
    describes = not _DESCRIBING_WORDS.isdisjoint({words[0], words[-1]}) or words[-1] in _LABEL_WORDS
    return not describes and not _PICTURE_WORDS.isdisjoint(
        {word.rstrip("0123456789") for word in words}
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadContent:
    """Content in a key that is not read, without which the row has another meaning."""

    kind: UnreadKind
    text: str
    """Key and content, for a message."""


def unread_problem(key: str, value: Any, *, has_picture: bool) -> UnreadContent | None:
    """Return the content of an unread key, not empty, that makes its row unusable; None if none.

    If the row has a picture that is read, an address or a file name elsewhere is its origin.
    """
    name = normal(key)
    kind = _kind_by_name(name, value)
    if kind is not None:
        return UnreadContent(kind=kind, text=f"`{key}` holds {_CLAUSES[kind]}")
    is_plain = name in _METADATA or not _can_hold_content(value)
    if is_plain and has_picture:  # `url: https://a.org/1.jpg`
        return None
    if _looks_like_media(value):  # `recording: a.mp4`
        text = f"`{key}` names video or audio, which is not read"
        return UnreadContent(kind="video", text=text)
    is_picture_by_name = _names_picture(name) and not is_plain  # `depth_map: [[3, 1], [0, 2]]`
    if not is_picture_by_name and not looks_like_picture(value):
        return None
    if has_picture and name.rsplit("_", 1)[-1] in _DESCRIBING_WORDS:  # `photo_source: a/1.jpg`
        return None
    return UnreadContent(kind="picture", text=f"`{key}` names a picture, which is not read")


def _kind_by_name(name: str, value: Any) -> UnreadKind | None:
    """Return the content that a name announces, if the value can be that."""
    kind = _announced_content(name)
    if kind is not None and _can_hold_content(value):  # `video: a.mp4`, but not `video: 3`
        return kind
    if kind == "preference" and yes_or_no(value) is not None:  # `chosen: 1`
        return kind
    # The mark of KTO, whether an answer is a good one. `label: 1` may be any class.
    is_text = isinstance(value, str) and value.strip().lower() in ("true", "false")
    if name == "label" and (isinstance(value, bool) or is_text):
        return "preference"
    return None


def _can_hold_content(value: Any) -> bool:
    return isinstance(value, str | bytes | list | tuple | Mapping)


def left_out_media(key: str, value: Any) -> MediaKind | None:
    """Return the media in a key that the user chose to ignore; None if it has none.

    Call it only for rows without a picture: the rest of such a row asks about invisible content.
    """
    # A message tells users to ignore keys that limit learning, such as `train_images: [0, 1]`.
    if says_nothing(value) or limits_learning(key, value):
        return None
    if not (names_media(key) or looks_like_picture(value) or _looks_like_media(value)):
        return None  # `depth: easy`, `frame: Commerce_buy`
    problem = unread_problem(key, value, has_picture=False)
    if problem is None:
        return None
    return problem.kind if problem.kind in ("video", "audio", "picture") else None


def values_of_keys(value: Any, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of these names in a row, and their values, at any depth."""
    if not names:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in names:
                yield key, item
            else:
                yield from values_of_keys(item, names)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from values_of_keys(item, names)


def is_metadata(key: str) -> bool:
    """Check whether a key is known to hold nothing for a sample."""
    return normal(key) in _METADATA


def names_media(key: str) -> bool:
    """Check whether a key's name certainly announces pictures, video or audio."""
    name = normal(key)
    words = [word for part in name.split("_") if (word := part.rstrip("0123456789"))]
    while words and words[-1] in _PLACE_WORDS:
        words.pop()
    return name == "pixel_values" or (bool(words) and words[-1] in _MEDIA_WORDS)


def may_hold_content(key: str) -> bool:
    """Check whether a key's name alone announces content that is not read."""
    name = normal(key)
    is_mark = name == "label" or has_learning_word(name)
    return is_mark or _announced_content(name) is not None or _names_picture(name)


def has_learning_word(name: str) -> bool:
    """Check whether a key may select learned words."""
    return not LEARNING_WORDS.isdisjoint(normal(name).split("_"))


def limits_learning(key: str, value: Any) -> bool:
    """Check whether a key of a row selects nothing, or a part of the row, for learning."""
    name = normal(key)
    says = yes_or_no(value)
    if name in LOSS_KEYS:
        means_learned = name not in UNLEARNED_KEYS
        if says != means_learned:  # `loss: 0`, `masked: true`, `train_on: last`
            return True
    elif has_learning_word(name) and not says_number(name):
        is_weight = isinstance(value, int | float) and name.endswith(("weight", "weights"))
        is_list = isinstance(value, list) and not any(isinstance(item, str) for item in value)
        if says is not None or is_list or is_weight:  # `skip: no`, `exclude: [0, 1]`
            return True
    return _selects_answers(key, value)


def _selects_answers(key: str, value: Any) -> bool:
    """Check whether a key of a row selects learned turns: `supervised_turns: last`, `mask: true`.

    A loss that was measured (`answer_loss: 0.34`) and the words of one turn (`training_message`)
    select nothing.
    """
    words = normal(key).split("_")
    if not _MASK_WORDS.isdisjoint(words):
        return _is_mask_of_turns(words, value)
    turn_words = _TURN_WORDS - _ONE_TURN if isinstance(value, str) else _TURN_WORDS
    if LEARNING_WORDS.isdisjoint(words) or turn_words.isdisjoint(words):
        return False
    is_count = says_number(key) and words[-1] not in _POSITIONS
    is_measured = isinstance(value, float) and not value.is_integer()
    return not (is_count or is_measured or says_nothing(value))


def _is_mask_of_turns(words: Collection[str], value: Any) -> bool:
    """Check whether a mask selects turns.

    A mask of a text or bytes is a picture, `mask: 1` alone may be any number, and a mask of
    something else (`has_mask`) selects nothing.
    """
    if not (_MASK_WORDS | _TURN_WORDS | LEARNING_WORDS).issuperset(words):
        return False
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and _MASK_WORDS.issuperset(words):
        return False
    items = value if isinstance(value, list | tuple) else [value]
    return bool(items) and all(yes_or_no(item) is not None for item in items)


def says_number(name: str) -> bool:
    """Check whether a key counts or rates something, so that 0 and 1 are numbers."""
    words = normal(name).split("_")
    return words[-1] in _DESCRIBING_WORDS or words[0] in ("num", "number", "count")


def question_part(key: str, value: Any) -> str:
    """Return the part of a question that a key holds; empty if none."""
    if not isinstance(value, str | list | tuple | Mapping) or says_nothing(value):
        return ""
    name = normal(key)
    words = [word.rstrip("0123456789") or word for word in name.split("_")]  # `choice2`
    if name not in QUESTION_PARTS:
        # `context_length`, but `context_text`; `multiple_choice_answer`
        describes = not _DESCRIBING_WORDS.isdisjoint({words[0], words[-1]} - {"text"})
        if describes or not _ANSWER_WORDS.isdisjoint(words):
            return ""
    if not _ARTICLES.isdisjoint(words) and isinstance(value, str) and len(value.split()) < 2:
        return ""  # `document: report-17`
    return next((QUESTION_PARTS[word] for word in words if word in QUESTION_PARTS), "")


def names_answers(key: str) -> bool:
    """Check whether a key's name announces answers: `answers`, `gold_answers`, `captions`."""
    name = normal(key)
    words = name.split("_")
    return SPELLINGS.get(name.removesuffix("s")) == "text" or not _ANSWER_WORDS.isdisjoint(words)


def lettered_choice(row: Mapping[str, Any]) -> str:
    """Return the first of several keys `A`, `B`, ... that hold texts; empty without several."""
    keys = [
        key
        for key, value in row.items()
        if normal(key) in _LETTERS and isinstance(value, str) and value.strip()
    ]
    return keys[0] if len(keys) > 1 else ""


def is_chat_part(key: str, value: Any) -> bool:
    """Check whether a key next to turns holds text that their answers build on."""
    words = normal(key).split("_")
    if _CHAT_PARTS.isdisjoint(words) or not _DESCRIBING_WORDS.isdisjoint({words[0], words[-1]}):
        return False
    if isinstance(value, str) and not _ARTICLES.isdisjoint(words):
        return len(value.split()) > 1
    return isinstance(value, str | list | tuple | Mapping) and not says_nothing(value)


def unread_keys(value: Mapping[str, Any], read: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield non-empty keys of a turn or content item that are not read.

    Raises:
        BadRowError: one of them holds content, so that the rest has another meaning.
    """
    for key, item in value.items():
        if normal(key) not in read and not says_nothing(item):
            problem = unread_problem(key, item, has_picture=False)
            if problem is not None:
                raise BadRowError(problem.text)
            if not is_metadata(key):
                yield key, item


def is_learned(turn: Mapping[str, Any], role: str) -> bool:
    """Return whether a turn is learned, by the keys that other tools write for that.

    Raises:
        BadRowError: a value is neither yes nor no, two contradict each other, or a turn that is not
            the assistant's is to be learned.
    """
    marks: dict[str, bool] = {}
    for key, value in turn.items():
        name = normal(key)
        if name == "mask" and value is not None:
            message = f"`{key}` of a turn may mean either; write `loss: true` or `loss: false`"
            raise BadRowError(message)
        if name in LOSS_KEYS and not is_empty(value):
            meaning = yes_or_no(value)
            if meaning is None:
                message = (
                    f"`{key}` of a turn is {shorten(value)}; allowed are true, false, 1 and 0, "
                    "because an answer is learned as a whole or not at all"
                )
                raise BadRowError(message)
            marks[key] = meaning != (name in UNLEARNED_KEYS)
    if len(set(marks.values())) > 1:
        message = f"{' and '.join(f'`{key}`' for key in marks)} of a turn contradict each other"
        raise BadRowError(message)
    learned = next(iter(marks.values()), None)
    if learned and role != "assistant":
        key = next(iter(marks))
        message = f"`{key}` marks a {role}'s turn for training, but only answers are trained"
        raise BadRowError(message)
    return learned is None or learned


def yes_or_no(value: Any) -> bool | None:
    """Return the meaning of a boolean, 0, 1, or a word for them; None for anything else."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _YES or word in _NO:
            return word in _YES
        try:
            value = float(word)
        except ValueError:
            return None
    is_number = not isinstance(value, bytes | list | tuple | Mapping)
    return bool(value) if is_number and value in (0, 1) else None


_YES = word_set("true yes y t on")
_NO = word_set("false no n f off")


_KINDS: Mapping[type, str] = {
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def kind_of(value: Any) -> str:
    """Return the kind of a value in JSON's terms, for a message."""
    if isinstance(value, Mapping):
        return "an object"
    return _KINDS.get(type(value), f"of type {type(value).__name__}")


_MAX_SHOWN = 200
"""Longest part of a manifest's value in a message."""


def shorten(value: Any) -> str:
    """Return the value as Python writes it, shortened for a message."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
