"""Marks of other tools for pictures, videos and sounds within a text; only `<image>` is read.

A mark is a name in brackets that consists of words for media and of words for places in a prompt,
in any combination: `<vid>`, `<|imgpad|>`, `[IMG_0]`, `<fake_token_around_image>`. Names with any
other word are not marks, because texts have them for other reasons: `<image_url>`, `<video-js>`.
"""

from __future__ import annotations

import re

_ORDINARY = "pictures?|pics?|photos?|sounds?|vision|visual|vis|media|clips?|frames?"
_MEDIA = f"images?|imgs?|videos?|vids?|audios?|speech|{_ORDINARY}"
_PLACE = (
    "placeholder|tokens?|context|ctx|soft|pad|patch|start|begin|end|bos|eos|of|here|fake|around"
    "|global|local|features?|feat|embeddings?|embed|break|newline|sep|slot|tile|thumbnail"
)
_NAME = rf"(?:(?:{_PLACE})[ _-]?){{0,4}}(?:{_MEDIA})(?:{_MEDIA}|{_PLACE}|[0-9 _:.#-]){{0,12}}"
_OPEN = r"\[(?<![A-Za-z0-9_]\[)"
"""Bracket that is no index, as in `vocab[image_token]`.

The bracket comes before the condition because a pattern that begins with a character is faster.
"""
_NUMBER = "[0-9]{1,3}"
"""Number of a picture in `[IMG_0]`; `[IMG_1234]` is the name of a camera's file."""
_MARK = re.compile(
    rf"<\s*(bbox|ref-object|im_(?:patch|start|end)|{_NAME})\s*/?>"
    rf"|<\|{_NAME}\|>"
    r"|\[(?-i:IMG(?:_BREAK|_END)?)\]"
    rf"|{_OPEN}(?-i:IMG_?{_NUMBER})\](?![(\[:])"
    rf"|{_OPEN}(?:img|(?-i:(?:{_MEDIA.upper()})(?:_(?:{_PLACE.upper()}))+))\]"
    rf"|{_OPEN}(?P<of_user>(?-i:(?:{_MEDIA.upper()})_?{_NUMBER})"
    rf"|(?:{_MEDIA})(?:_(?:{_PLACE}|{_NUMBER}))+)\]",
    re.IGNORECASE,
)
_HTML_TAGS = frozenset({"video", "audio", "img", "image", "picture"})
_WORD = re.compile(_ORDINARY, re.IGNORECASE)
_TYPE = re.compile(rf"(?i:{_ORDINARY})|(?:[A-Z][a-z]+)+")
"""Names of types, which follow a word in code: `List<Photo>`, `Array<VideoFrame>`."""
_USER_MARK = re.compile(
    r"(?<!!)\[(?:image|picture|photo|video|audio)\](?![(\[:])"
    r"|\{\{?\s*(?:image|img|video|audio)(?:[ _-]?[0-9]{1,6})?\s*\}\}?",
    re.IGNORECASE,
)
"""Marks of templates that count only in texts of the user."""
_CODE = re.compile(
    r"```|\b(?:x?html5?|css|jsx|react|vue|javascript|python|f-string)\b", re.IGNORECASE
)
_TAG_WORD = r"(?:tags?|elements?|attributes?|components?)"
_OTHER_TAGS = r"(?:[\s,/]|\band\b|\bor\b|\bhtml5?\b|<\w+>)*"
_TAG_BEFORE = re.compile(rf"\b{_TAG_WORD}\b{_OTHER_TAGS}$", re.IGNORECASE)
_TAG_AFTER = re.compile(rf"{_OTHER_TAGS}\b{_TAG_WORD}\b", re.IGNORECASE)


def foreign_mark(text: str, *, has_images: bool, is_users: bool) -> str | None:
    """Return a mark for unread media in a text; None if there is none.

    `<video>`, `<audio>`, `<picture>` and `<Image>` are words about HTML, too. They count as marks
    if no end tag follows and a line begins or ends with them. In a text of the user they count also
    elsewhere, unless the text is about code. `<photo>`, `<clip>` and other ordinary words count
    only where a line begins with them, or where a line of the user ends with them.
    """
    if "<" in text or "[" in text:
        for match in _MARK.finditer(text):
            if _is_mark(match, has_images=has_images, is_users=is_users):
                return match[0]
    if not is_users:
        return None
    mark = _USER_MARK.search(text) if "[" in text or "{" in text else None
    is_minicpm = "</image>" in text and "<image" not in text  # `(<image>./</image>)`
    if (mark or is_minicpm) and not _CODE.search(text):
        return mark[0] if mark else "</image>"
    return None


def _is_mark(match: re.Match[str], *, has_images: bool, is_users: bool) -> bool:
    text, mark = match.string, match[0]
    name = (match[1] or "").rstrip(" /")
    word = name.lower()
    if mark.endswith("/>") and name.isalpha() and word != "image":  # an element of XML: `<sound/>`
        return False
    if word == "img":
        return has_images or "</img>" in text
    if f"[/{mark[1:]}" in text or (name and f"</{name}>" in text):
        return False
    if match["of_user"]:
        return is_users
    if word in _HTML_TAGS:
        return _is_mark_of_html(match, is_users=is_users)
    if re.match(r"\w", text[: match.start()][-1:], re.ASCII) and _TYPE.fullmatch(name):
        return False
    if _WORD.fullmatch(name):
        return _begins_line(match) or (is_users and _ends_line(match))
    return True


def _begins_line(match: re.Match[str]) -> bool:
    start = match.string[: match.start()].rpartition("\n")[2]
    return not _MARK.sub("", start).replace("<image>", "").strip()


def _ends_line(match: re.Match[str]) -> bool:
    return not match.string[match.end() :].partition("\n")[0].strip()


def _is_mark_of_html(match: re.Match[str], *, is_users: bool) -> bool:
    """Check whether a name of HTML is a mark: at an end of its line, or in words of a user."""
    if _begins_line(match) or _ends_line(match):
        return True
    before, after = match.string[: match.start()], match.string[match.end() :]
    is_quoted = before[-1:] in ("`", '"', "'") and after[:1] == before[-1:]
    is_tag = _TAG_BEFORE.search(before) or _TAG_AFTER.match(after)
    return is_users and not (is_quoted or is_tag or _CODE.search(match.string))
